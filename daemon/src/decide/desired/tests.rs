//! Which network follows from which facts.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::LazyLock;

use datapath::{LinkKind, LinkSpec};
use netlink::Link;
use serde_json::json;
use vcn::{LinkKindName, TableId, VlanTag};

use super::*;
use crate::decide::devices::Devices;
use crate::decide::host_facts::HostAddress;
use crate::decide::requests::tests::{attachment, facts as requested};
use crate::decide::requests::{Requests, requests};
use crate::decide::slots::TableReferences;
use crate::fixture::{link, mac, npn, vm_vnics, vnic};

fn slots(vnics: &[Vnic]) -> Slots {
    let mut slots = Slots::default();
    slots.assign(secondary(vnics), &TableReferences::default());
    slots
}

const NO_PORTS: Ports = Ports { zero: None, one: None };

#[expect(clippy::fn_params_excessive_bools, reason = "a table calls it")]
fn policy(ours: bool, oke: bool, lived: bool) -> Policy<'static> {
    Policy { ports: &NO_PORTS, pods_may_use_metadata: true, pods_may_spoof: false, ours, oke, lived }
}

/// On a kernel that speaks IPv6, before anything is on it.
fn facts<'a>(vnics: &'a [Vnic], npn: Option<&'a NativePodNetwork>, links: &'a [Link]) -> HostFacts<'a> {
    static NONE: LazyLock<HashSet<IpAddr>> = LazyLock::new(HashSet::new);
    static DEVICES: LazyLock<Devices> = LazyLock::new(Devices::default);
    static REQUESTS: Requests = Requests::new();
    let (nics, devices, requests) = (&LinkKindName::HARDWARE, &*DEVICES, &REQUESTS);
    static EXPLAINED: BTreeSet<Ocid> = BTreeSet::new();
    let unexplained = &EXPLAINED;
    HostFacts {
        vnics,
        npn,
        links,
        nics,
        devices,
        ipv6: true,
        own: &[],
        held: &NONE,
        requests,
        unexplained,
        needed: &[],
    }
}

fn want(vnics: &[Vnic], links: &[Link], npn: Option<&NativePodNetwork>) -> DesiredState {
    desired_state(facts(vnics, npn, links), &slots(vnics), policy(true, false, true))
}

fn reasons(desired: &DesiredState) -> Vec<(Reason, Option<&str>)> {
    desired.conditions.iter().map(|it| (it.reason, it.subject.as_deref().and_then(last_part))).collect()
}

fn last_part(ocid: &str) -> Option<&str> {
    ocid.rsplit('.').next()
}

fn served(desired: &DesiredState) -> Vec<(&str, String, TableId)> {
    let vnics = &desired.network.as_ref().unwrap().vnics;
    vnics.iter().map(|it| (it.vnic.id.unique_id(), it.placement.link().to_string(), it.table)).collect()
}

#[test]
fn vnics_beyond_the_marks_are_configured_and_reported() {
    let name = |last: u8| format!("v{last}");
    let more = (12..20).map(|last| vnic(&name(last), last, &format!("10.0.{last}")));
    let vnics: Vec<Vnic> = vm_vnics().into_iter().take(1).chain(more).collect();
    let links: Vec<Link> =
        std::iter::once(link("ens3", 0x0a)).chain((12..20).map(|last| link(&format!("ens{last}"), last))).collect();
    let desired = want(&vnics, &links, None);
    assert_eq!(served(&desired).len(), 8);
    assert_eq!(reasons(&desired), [(Reason::ReturnPathMissing, Some("v19"))]);
    assert!(!desired.conditions[0].blocks());
}

#[test]
fn nothing_is_configured_without_the_primary_link() {
    let desired = want(&vm_vnics(), &[link("ens5", 0x0b)], None);
    assert_eq!(desired.network, None);
    assert_eq!(reasons(&desired), [(Reason::PrimaryLinkMissing, Some("primary"))]);
    assert!(desired.conditions[0].blocks());
}

/// What comes in by another one for an address that nothing here has may be on its way through this node.
#[test]
fn only_vnic_of_the_native_pod_network_has_pod_blocks() {
    let vnics = [vm_vnics(), vec![vnic("storage", 0x0c, "10.0.64")]].concat();
    let links = [link("ens3", 0x0a), link("ens5", 0x0b), link("ens6", 0x0c)];
    let blocks = |npn: Option<&NativePodNetwork>| -> Vec<BTreeSet<IpNetwork>> {
        let vnics = want(&vnics, &links, npn).network.unwrap().vnics;
        vnics.into_iter().map(|vnic| vnic.pod_blocks.into_iter().collect()).collect()
    };
    let set = |blocks: &[&str]| blocks.iter().map(|block| block.parse().unwrap()).collect::<BTreeSet<IpNetwork>>();
    let mut network = npn("SUCCESS");
    assert_eq!(blocks(Some(&network)), [set(&["10.0.33.0/24"]), set(&[])]);
    network.vnics[0].addressing.ipv4.as_mut().unwrap().subnets.push("10.0.34.0/24".parse().unwrap());
    assert_eq!(blocks(Some(&network)), [set(&["10.0.33.0/24", "10.0.34.0/24"]), set(&[])]);
    assert_eq!(blocks(None), [set(&[]), set(&[])]);
}

#[test]
fn family_missing_in_metadata_comes_from_the_native_pod_network() {
    let mut vnics = vm_vnics();
    vnics[1].addressing.ipv4 = None;
    let desired = want(&vnics, &[link("ens3", 0x0a), link("ens5", 0x0b)], Some(&npn("SUCCESS")));
    let network = desired.network.unwrap();
    let ipv4 = network.vnics[0].vnic.addressing.ipv4.clone().unwrap();
    assert_eq!(ipv4.address, "10.0.33.16".parse::<std::net::IpAddr>().unwrap());
}

#[test]
fn pod_vnic_with_ipv6_that_the_native_pod_network_lacks_is_reported() {
    let mut vnics = vm_vnics();
    let (subnet, router) = ("2603:c020::/64".parse().unwrap(), "fe80::1".parse().unwrap());
    let address = "2603:c020::9".parse().unwrap();
    vnics[1].addressing.ipv6 = Some(SubnetAddressing { subnet, router, address, others: Vec::new() });
    let links = [link("ens3", 0x0a), link("ens5", 0x0b)];
    let mut npn = npn("SUCCESS");
    assert_eq!(reasons(&want(&vnics, &links, Some(&npn))), [(Reason::PodFamilyNotListed, Some("pods"))]);
    let pods = vec!["2603:c020::20/124".parse().unwrap()];
    npn.vnics[0].addressing.ipv6 = Some(api::npn::NpnAddressing { pods, ..Default::default() });
    assert_eq!(reasons(&want(&vnics, &links, Some(&npn))), []);
}

#[test]
fn vnic_without_address_is_not_configured() {
    let mut vnics = [vm_vnics(), vec![vnic("vlan", 0x0c, "10.0.64")]].concat();
    vnics[2].addressing = PerFamily::default();
    let desired = want(&vnics, &[link("ens3", 0x0a), link("ens5", 0x0b), link("ens6", 0x0c)], None);
    assert_eq!(served(&desired), [("pods", "ens5".to_owned(), TableId(1000))]);
}

#[test]
fn host_keeps_the_ipv6_address_that_a_rule_marks_as_its_own() {
    let ip = |last: &str| format!("2603:c020::{last}").parse::<IpAddr>().unwrap();
    let mut vnics = vm_vnics();
    vnics[1].addressing.ipv6 = Some(SubnetAddressing {
        subnet: "2603:c020::/64".parse().unwrap(),
        router: "fe80::1".parse().unwrap(),
        address: ip("9"),
        others: vec![ip("8"), ip("7")],
    });
    let links = [link("ens3", 0x0a), link("ens5", 0x0b)];
    let of = |npn: Option<&NativePodNetwork>, own: &[HostAddress]| {
        let facts = HostFacts { own, ..facts(&vnics, npn, &links) };
        let network = desired_state(facts, &slots(&vnics), policy(true, false, true)).network.unwrap();
        network.vnics[0].vnic.addressing.ipv6.as_ref().unwrap().listed().collect::<Vec<_>>()
    };
    let own = |table, last| HostAddress { table: TableId(table), address: ip(last), is_assigned: true };
    assert_eq!(of(None, &[own(1001, "8"), own(1000, "7")]), [ip("7")]);
    let mut npn = npn("SUCCESS");
    let pods = vec!["2603:c020::9/128".parse().unwrap()];
    npn.vnics[0].addressing.ipv6 = Some(api::npn::NpnAddressing { pods, ..Default::default() });
    assert_eq!(of(Some(&npn), &[own(1000, "9")]), [ip("9")]);
    let lost = |last| HostAddress { is_assigned: false, ..own(1000, last) };
    assert_eq!(of(Some(&npn), &[lost("9")]), [ip("8")], "the host never had it");
    assert_eq!(of(Some(&npn), &[lost("7")]), [ip("7")], "it went with a link that was lowered");
}

#[test]
fn vnic_without_free_host_address_is_reported_by_family() {
    let ip = |last: &str| format!("2603:c020::{last}").parse::<IpAddr>().unwrap();
    let mut vnics = [vm_vnics(), vec![vnic("storage", 0x0c, "10.0.64")]].concat();
    for (vnic, listed) in vnics[1..].iter_mut().zip([["20", "21"], ["30", "31"]]) {
        let [address, other] = listed.map(ip);
        let (subnet, router) = ("2603:c020::/64".parse().unwrap(), "fe80::1".parse().unwrap());
        vnic.addressing.ipv6 = Some(SubnetAddressing { subnet, router, address, others: vec![other] });
    }
    let ipv4 = vnics[2].addressing.ipv4.as_ref().unwrap().address;
    let links = [link("ens3", 0x0a), link("ens5", 0x0b), link("ens6", 0x0c)];
    let reported = |held: &[IpAddr], ipv6, ours| {
        let held = held.iter().copied().collect();
        let facts = HostFacts { held: &held, ipv6, ..facts(&vnics, None, &links) };
        desired_state(facts, &slots(&vnics), policy(ours, false, true)).conditions
    };
    let about = |vnic: &Vnic, family: &str, address: IpAddr| {
        let message = format!(
            "pods hold every {family} address that could be the host's own, such as {address}: the host has none on this VNIC"
        );
        Condition::degraded(Reason::HostAddressTaken, message).about(&vnic.id)
    };
    assert_eq!(reported(&[ip("20"), ip("30")], true, true), [], "there is another");
    let all = [ip("20"), ip("21"), ip("30")];
    assert_eq!(reported(&all, true, true), [about(&vnics[1], "IPv6", ip("20"))]);
    assert_eq!(reported(&all, true, false), [about(&vnics[1], "IPv6", ip("20"))], "with any owner of the pod network");
    assert_eq!(reported(&all, false, true), [], "the kernel has none");
    assert_eq!(reported(&[ipv4], true, true), [about(&vnics[2], "IPv4", ipv4)]);
}

fn bare_metal() -> Vec<Vnic> {
    let on = |mut vnic: Vnic, index, tag: Option<u16>| {
        vnic.nic_index = Some(index);
        vnic.vlan_tag = tag.map(|tag| VlanTag::new(tag).unwrap());
        vnic
    };
    vec![
        on(vnic("primary", 0x0a, "10.0.10"), 0, None),
        on(vnic("tagged", 0x0b, "10.0.33"), 1, Some(12)),
        on(vnic("port1", 0x0c, "10.0.34"), 1, None),
    ]
}

#[test]
fn bare_metal_ports_come_before_their_vlans() {
    let desired = want(&bare_metal(), &[link("eth0", 0x0a), link("eth1", 0x0c)], None);
    assert_eq!(
        served(&desired),
        [("port1", "eth1".into(), TableId(1001)), ("tagged", "nic1.12".into(), TableId(1000))]
    );
}

#[test]
fn foreign_link_with_name_of_vlan_is_reported_and_kept() {
    let taken = |alias: Option<&str>, last: u8| {
        let mut vlan = link("nic1.12", last);
        (vlan.kind, vlan.vlan) = (Some("vlan".into()), VlanTag::new(12).ok());
        vlan.alias = alias.map(str::to_owned);
        want(&bare_metal(), &[link("eth0", 0x0a), link("eth1", 0x0c), vlan], None)
    };
    for foreign in [taken(None, 0x66), taken(Some("backup network"), 0x0b)] {
        assert_eq!(served(&foreign), [("port1", "eth1".into(), TableId(1001))]);
        assert_eq!(reasons(&foreign), [(Reason::LinkMissing, Some("tagged"))]);
        assert!(foreign.conditions[0].message.contains("nic1.12"), "{}", foreign.conditions[0]);
    }
    assert_eq!(served(&taken(Some("vcn-native:ocid1.vnic.oc1.iad.tagged"), 0x0b)).len(), 2);
    // Made by us, who were killed before it got its alias.
    assert_eq!(served(&taken(None, 0x0b)).len(), 2);
}

#[test]
fn vnic_with_the_primary_links_mac_is_not_configured() {
    let mut vnics = vm_vnics();
    vnics[1].mac = mac(0x0a);
    let desired = want(&vnics, &[link("ens3", 0x0a)], None);
    assert_eq!(served(&desired), []);
    assert_eq!(reasons(&desired), [(Reason::LinkMissing, Some("pods"))]);
}

#[test]
fn vlan_link_that_foreign_pods_may_use_stays() {
    let vnics = bare_metal();
    let mut npn = npn("SUCCESS");
    (npn.vnics[0].vnic_id, npn.vnics[0].mac) = (vnics[1].id.clone(), vnics[1].mac);
    let mut vlan = link("nic1.12", 0x0b);
    (vlan.kind, vlan.vlan) = (Some("vlan".into()), VlanTag::new(12).ok());
    vlan.alias = Some("vcn-native:ocid1.vnic.oc1.iad.tagged".into());
    let links = [link("eth0", 0x0a), link("eth1", 0x0c), vlan];
    let desired = desired_state(facts(&vnics, Some(&npn), &links), &slots(&vnics), policy(false, true, false));
    assert_eq!(served(&desired), [("port1", "eth1".into(), TableId(1001))]);
    let made = LinkSpec {
        name: "nic1.12".parse().unwrap(),
        kind: LinkKind::Vlan { parent: "eth1".parse().unwrap(), tag: VlanTag::new(12).unwrap() },
        mac: Some(mac(0x0b)),
        mtu: Some(Mtu::VCN),
        up: false,
        alias: Some("vcn-native:ocid1.vnic.oc1.iad.tagged".into()),
    };
    assert_eq!(desired.spared, [Object::Link(made)]);
}

/// As OKE's own CNI has it: the VNIC is attached first, and named last.
#[test]
fn potential_oke_vnic_waits_for_a_finished_native_pod_network() {
    let vnics = [vm_vnics(), vec![vnic("storage", 0x0c, "10.0.64")]].concat();
    let links = [link("ens3", 0x0a), link("ens5", 0x0b), link("ens6", 0x0c)];
    let unnamed = |state| NativePodNetwork { vnics: Vec::new(), ..npn(state) };
    let outcome = |npn: Option<&NativePodNetwork>, oke: bool| {
        let policy = policy(false, oke, false);
        let desired = desired_state(facts(&vnics, npn, &links), &slots(&vnics), policy);
        let ids = |ids: Vec<&Ocid>| ids.into_iter().map(|id| id.unique_id().to_owned()).collect::<Vec<_>>();
        let served: Vec<&Ocid> = desired.network.iter().flat_map(|it| &it.vnics).map(|it| &it.vnic.id).collect();
        let undecided = desired.undecided.iter().map(|it| &it.vnic.id).collect();
        let spared = desired.spared.iter().any(|it| it.to_string().contains("1537 from 10.0.33.7"));
        (ids(served), ids(desired.left_alone.keys().collect()), ids(undecided), spared)
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (none, both) = (names(&[]), names(&["pods", "storage"]));
    for npn in [None, Some(&unnamed("IN_PROGRESS")), Some(&unnamed("BACKOFF")), Some(&unnamed("SUCCESS"))] {
        assert_eq!(outcome(npn, true), (none.clone(), both.clone(), both.clone(), true), "{npn:?}");
    }
    let (pods, storage) = (names(&["pods"]), names(&["storage"]));
    assert_eq!(outcome(Some(&npn("BACKOFF")), true), (none.clone(), both.clone(), storage.clone(), true));
    assert_eq!(outcome(Some(&npn("SUCCESS")), true), (storage, pods, none.clone(), false));
    assert_eq!(outcome(None, false), (both, none.clone(), none, true), "nothing of OKE's is here");
}

#[test]
fn vnic_requested_for_pods_is_not_changed_beside_okes_cni() {
    let vnics = [vm_vnics(), vec![vnic("storage", 0x0c, "10.0.64")]].concat();
    let links = [link("ens3", 0x0a), link("ens5", 0x0b), link("ens6", 0x0c)];
    for (purpose, served_too) in [("Host", &["storage"][..]), ("Pods", &[])] {
        let requests_of_vnic = requests(&requested(attachment(&json!({ "purpose": purpose }), &json!({}))));
        let facts = HostFacts { requests: &requests_of_vnic, ..facts(&vnics, None, &links) };
        let desired = desired_state(facts, &slots(&vnics), policy(false, true, true));
        let ids: Vec<&str> = served(&desired).into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids, served_too, "one for pods may be OKE's");
    }
}

#[test]
fn vnic_without_a_known_purpose_is_not_configured() {
    let vnics = vm_vnics();
    let links = [link("ens3", 0x0a), link("ens5", 0x0b)];
    let unexplained = BTreeSet::from([vnics[1].id.clone()]);
    let facts = HostFacts { unexplained: &unexplained, ..facts(&vnics, None, &links) };
    let desired = desired_state(facts, &slots(&vnics), policy(true, false, true));
    assert_eq!(
        desired.left_alone.into_iter().collect::<Vec<_>>(),
        [(vnics[1].id.clone(), UnmanagedReason::PurposeUnknown)]
    );
    assert_eq!((desired.network.unwrap().vnics, desired.conditions), (Vec::new(), Vec::new()));
    assert_eq!(want(&vnics, &links, None).network.unwrap().vnics.len(), 1, "it is known");
}
