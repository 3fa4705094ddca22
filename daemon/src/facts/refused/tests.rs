//! What is refused of which source, and that nothing else is.

use api::npn::NpnState;
use vcn::{PerFamily, SubnetAddressing};

use api::npn::NpnAddressing;

use super::blocks::without;
use super::*;
use crate::fixture::{npn, vm_vnics, vnic};

fn block(text: &str) -> IpNetwork {
    match text.contains('/') {
        true => text.parse().unwrap(),
        false => text.parse::<IpAddr>().unwrap().into(),
    }
}

fn ipv6(net: &str, address: &str, others: &[&str]) -> SubnetAddressing {
    SubnetAddressing {
        subnet: format!("{net}::/64").parse().unwrap(),
        router: "fe80::1".parse().unwrap(),
        address: address.parse().unwrap(),
        others: others.iter().map(|other| other.parse().unwrap()).collect(),
    }
}

/// The primary VNIC (10.0.10.0/24) and one for pods (10.0.33.0/24), both with IPv6.
fn dual_stack() -> Vec<Vnic> {
    let mut vnics = vm_vnics();
    vnics[0].addressing.ipv6 = Some(ipv6("2603:c020:0:10", "2603:c020:0:10::7", &[]));
    vnics[1].addressing.ipv6 = Some(ipv6("2603:c020:0:33", "2603:c020:0:33::20", &["2603:c020:0:33::7"]));
    vnics
}

fn offering(family: Family, subnets: &[&str], pods: &[&str]) -> NativePodNetwork {
    let mut npn = npn("SUCCESS");
    let subnets: Vec<IpNetwork> = subnets.iter().map(|text| block(text)).collect();
    npn.vnics[0].addressing = PerFamily::default();
    *npn.vnics[0].addressing.slot(family) = Some(NpnAddressing {
        subnets,
        pods: pods.iter().map(|text| block(text)).collect(),
        ..NpnAddressing::default()
    });
    npn
}

/// What pods may have of it, and what is refused and why.
fn offered(npn: &NativePodNetwork, family: Family) -> (Vec<String>, Vec<(String, String)>) {
    let (npn, refused) = pod_network(npn, &dual_stack());
    let pods = &npn.vnics[0].addressing.of(family).unwrap().pods;
    let refused = refused.iter().map(|it| (it.block.to_string(), it.why.to_string()));
    (pods.iter().map(ToString::to_string).collect(), refused.collect())
}

#[test]
fn ipv4_addresses_that_are_no_host_addresses_are_refused() {
    let primary = "the own address of VNIC ocid1.vnic.oc1.iad.primary";
    let reserved = "reserved by OCI in 10.0.33.0/24";
    for (address, why) in [
        ("169.254.169.254", "link-local"),
        ("169.254.1.1", "link-local"),
        ("127.0.0.1", "loopback"),
        ("224.0.0.251", "multicast"),
        ("239.1.2.3", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("240.0.0.1", "class E"),
        ("0.0.0.0", "unspecified"),
        ("0.0.0.0/0", "unspecified"),
        ("169.254.0.0/16", "link-local"),
        ("10.0.33.0", reserved),
        ("10.0.33.255", reserved),
        ("10.0.33.1", "the router of the subnet"),
        ("10.0.10.7", primary),
        ("10.0.33.7", "the own address of VNIC ocid1.vnic.oc1.iad.pods"),
        ("10.0.10.20", "in the subnet of VNIC ocid1.vnic.oc1.iad.primary"),
        ("192.0.2.1", "outside the subnet"),
        ("10.0.32.0/23", "outside the subnet"),
    ] {
        let (pods, refused) =
            offered(&offering(Family::Ipv4, &["10.0.33.0/24"], &["10.0.33.8", address]), Family::Ipv4);
        assert_eq!(pods, ["10.0.33.8/32"], "{address}");
        assert_eq!(refused, [(block(address).to_string(), why.to_owned())]);
    }
}

#[test]
fn ipv6_addresses_that_are_no_host_addresses_are_refused() {
    for (address, why) in [
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::ffff:10.0.33.9", "IPv4-mapped"),
        ("::10.0.33.9", "no unicast address of a VCN"),
        ("fe80::9", "link-local"),
        ("ff02::1", "multicast"),
        ("fd00:c1::a9fe:a9fe", "the metadata service"),
        ("::/0", "unspecified"),
        ("2603:c020:0:33::", "reserved by OCI in 2603:c020:0:33::/64"),
        ("2603:c020:0:10::7", "the own address of VNIC ocid1.vnic.oc1.iad.primary"),
        ("2603:c020:0:44::9", "outside the subnet"),
    ] {
        let npn = offering(Family::Ipv6, &["2603:c020:0:33::/64"], &["2603:c020:0:33::20", address]);
        let (pods, refused) = offered(&npn, Family::Ipv6);
        assert_eq!(pods, ["2603:c020:0:33::20/128"], "{address}: the metadata service lists pods' addresses, too");
        assert_eq!(refused, [(block(address).to_string(), why.to_owned())]);
    }
}

#[test]
fn address_outside_known_blocks_is_refused_if_all_are_listed() {
    let of = |subnets: &[&str]| offered(&offering(Family::Ipv4, subnets, &["10.0.44.9"]), Family::Ipv4).0;
    assert_eq!(of(&[]), ["10.0.44.9/32"], "no list, as in the legacy shape: there may be another block");
    assert_eq!(of(&["10.0.33.0/24"]), [""; 0]);
    assert_eq!(of(&["10.0.33.0/24", "10.0.44.0/24"]), ["10.0.44.9/32"]);
    let (pods, refused) = offered(
        &offering(Family::Ipv4, &["10.0.33.0/24", "10.0.44.0/24"], &["10.0.44.1", "10.0.44.255"]),
        Family::Ipv4,
    );
    assert_eq!((pods.len(), refused.len()), (0, 2), "each block has reserved addresses");
    // By its router, the third VNIC is in the same subnet.
    let mut third = vnic("third", 0x0c, "10.0.44");
    third.addressing.ipv4.as_mut().unwrap().router = "10.0.33.1".parse().unwrap();
    let (npn, refused) = pod_network(&offering(Family::Ipv4, &[], &["10.0.44.9"]), &[vm_vnics(), vec![third]].concat());
    assert_eq!((npn.vnics[0].addressing.ipv4.as_ref().unwrap().pods.len(), refused), (1, vec![]));
}

#[test]
fn usable_part_of_a_block_stays() {
    let (pods, refused) = offered(&offering(Family::Ipv4, &["10.0.33.0/24"], &["10.0.33.0/29"]), Family::Ipv4);
    // 10.0.33.7 is the VNIC's own address, which pools.json reserves.
    assert_eq!(pods, ["10.0.33.2/31", "10.0.33.4/30"]);
    assert_eq!(refused.iter().map(|(block, _)| block.as_str()).collect::<Vec<_>>(), ["10.0.33.0/32", "10.0.33.1/32"]);
}

#[test]
fn block_without_an_address_contains_all_remaining_addresses() {
    for (whole, length) in [("10.0.33.0/24", 256_usize), ("10.0.33.128/31", 2), ("2603::/120", 256)] {
        let whole = block(whole);
        for address in whole.iter() {
            let parts = without(whole, address);
            let mut left: Vec<IpAddr> = parts.iter().flat_map(IpNetwork::iter).collect();
            left.sort_unstable();
            assert_eq!(left, whole.iter().filter(|it| *it != address).collect::<Vec<_>>());
            assert_eq!(left.len(), length - 1);
        }
    }
}

#[test]
fn refused_host_address_is_not_assigned() {
    let mut npn = npn("SUCCESS");
    for (host, kept) in [("10.0.33.16", true), ("10.0.33.7", true), ("169.254.169.254", false), ("10.0.10.7", false)] {
        let host = host.parse().unwrap();
        npn.vnics[0].addressing.ipv4.as_mut().unwrap().host = Some(host);
        let (usable, refused) = pod_network(&npn, &vm_vnics());
        assert_eq!(usable.vnics[0].addressing.ipv4.as_ref().unwrap().host, kept.then_some(host));
        assert_eq!(refused.is_empty(), kept);
    }
}

#[test]
fn native_pod_network_without_refused_addresses_is_unchanged() {
    let npn = npn("SUCCESS");
    assert_eq!(npn.state, NpnState::Success);
    assert_eq!(pod_network(&npn, &vm_vnics()), (npn, vec![]));
}

#[test]
fn refused_address_is_removed_from_secondary_vnics_only() {
    let primary = vm_vnics()[0].id.clone();
    for (address, why) in
        [("169.254.169.254", "link-local"), ("10.0.10.7", "the own address of VNIC ocid1.vnic.oc1.iad.primary")]
    {
        let mut listed = dual_stack();
        listed[1].addressing.ipv4.as_mut().unwrap().address = address.parse().unwrap();
        let mut expected = listed.clone();
        expected[1].addressing.ipv4 = None;
        let refused = vnics(&mut listed, Some(&primary));
        assert_eq!(listed, expected, "{address}");
        let refused: Vec<_> = refused.iter().map(|it| (it.vnic.unique_id(), it.why.to_string())).collect();
        assert_eq!(refused, [("pods", why.to_owned())]);
    }
    let mut listed = dual_stack();
    assert_eq!(vnics(&mut listed, Some(&primary)), []);
    assert_eq!(listed, dual_stack());
}

#[test]
fn usable_ipv6_addresses_of_a_vnic_stay() {
    let mut listed = dual_stack();
    listed[1].addressing.ipv6 =
        Some(ipv6("2603:c020:0:33", "fd00:c1::a9fe:a9fe", &["2603:c020:0:33::7", "2603:c020:0:10::7"]));
    let primary = listed[0].id.clone();
    assert_eq!(vnics(&mut listed, Some(&primary)).len(), 2);
    assert_eq!(listed[1].addressing.ipv6, Some(ipv6("2603:c020:0:33", "2603:c020:0:33::7", &[])));
}

#[test]
fn first_of_two_vnics_with_one_address_keeps_it() {
    let mut listed = [vm_vnics(), vec![vnic("twin", 0x0c, "10.0.33")]].concat();
    let primary = listed[0].id.clone();
    assert_eq!(vnics(&mut listed, Some(&primary)).len(), 1);
    assert_eq!(listed.iter().map(|vnic| vnic.addressing.is_empty()).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn vnic_condition_names_some_refused_addresses_and_counts_all() {
    let pods: Vec<String> = (0..200).map(|last| format!("127.0.0.{last}")).collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    let (_, refused) = pod_network(&offering(Family::Ipv4, &[], &pods), &vm_vnics());
    let conditions = conditions(&refused);
    assert_eq!(conditions.len(), 1);
    assert_eq!((conditions[0].reason, conditions[0].blocks()), (Reason::AddressRefused, false));
    assert_eq!(
        conditions[0].to_string(),
        "AddressRefused (ocid1.vnic.oc1.iad.pods): no usable host addresses of its subnet: 127.0.0.0 (NativePodNetwork: \
         loopback), 127.0.0.1 (NativePodNetwork: loopback), 127.0.0.2 (NativePodNetwork: loopback) and 197 more; neither the \
         host nor a new pod gets them, all others are served"
    );
}
