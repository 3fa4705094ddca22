//! Which steps fail together, and in which order batches are applied.

use std::net::IpAddr;

use datapath::host::{HostVnic, Placement, PodServices};
use datapath::{AddressSpec, Place};
use netlink::Rule;
use vcn::{Mtu, Priority, TableId, VlanTag};

use super::*;
use crate::fixture::vnic;

fn network() -> HostNetwork {
    let vlan = |name: &str, last, tag| HostVnic {
        vnic: vnic(name, last, &format!("10.0.{last}")),
        placement: Placement::Vlan {
            link: format!("nic1.{tag}").parse().unwrap(),
            parent: "eth1".parse().unwrap(),
            tag: VlanTag::new(tag).unwrap(),
        },
        table: TableId(990 + u32::from(last)),
        mtu: Mtu::VCN,
        pod_blocks: Vec::new(),
        on_link: Vec::new(),
        routes: Vec::new(),
    };
    HostNetwork {
        primary: "eth0".parse().unwrap(),
        vnics: vec![vlan("a", 11, 11), vlan("b", 12, 12)],
        pods: Some(PodServices { may_use_metadata: false, may_spoof: false, ipv6: true }),
    }
}

fn parts(batches: &[Batch]) -> Vec<(String, usize)> {
    batches.iter().map(|batch| (batch.part.to_string(), batch.steps.len())).collect()
}

#[test]
fn vnics_fail_alone_and_share_only_their_port() {
    let network = network();
    let steps = datapath::plan(&host::placed(host::desired(&network)), &[]);
    let batches = batches(steps, &network);
    let own = host::desired(&network).iter().filter(|object| object.to_string().contains("nic1.11")).count();
    let parts = parts(&batches);
    let named = |name: &str| parts.iter().filter(|(part, _)| part.ends_with(name)).cloned().collect::<Vec<_>>();
    // ip_forward, the primary's rp_filter, the rules to pods (2), for metadata (2) and for answers (2), ipv6 (2), the port;
    // in this order.
    assert_eq!(named("host").iter().map(|(_, steps)| *steps).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 1, 1, 1, 2, 1]);
    // The rules from the VNIC's address and for its mark name no link.
    assert_eq!(named(".a"), [("ocid1.vnic.oc1.iad.a".into(), own + 2)]);
    assert_eq!(named(".b").len(), 1);
    assert_eq!(parts.last().unwrap().0, "nft table");
}

#[test]
fn stale_objects_go_first_and_singly() {
    let network = network();
    let rule = |address: &str| {
        let from = Some(ipnetwork::IpNetwork::from(address.parse::<IpAddr>().unwrap()));
        let table = TableId(1007);
        (Place::Host, Object::Rule(Rule { from, ..Rule::new(Family::Ipv4, Priority(1537), table, vcn::PROTOCOL) }))
    };
    let observed = [rule("10.0.7.1"), rule("10.0.7.2")];
    let steps = datapath::plan(&host::placed(host::desired(&network)), &observed);
    let parts = parts(&batches(steps, &network));
    assert_eq!(parts[..2], [("no longer wanted".into(), 1), ("no longer wanted".into(), 1)]);
    assert!(!parts[2..].iter().any(|(part, _)| part == "no longer wanted"));
}

#[test]
fn replaced_address_follows_its_vnic_and_removed_vnics_are_stale() {
    let network = network();
    let address = |link: &str, address: &str| {
        let address = ipnetwork::IpNetwork::from(address.parse::<IpAddr>().unwrap());
        (Place::Host, Object::Address(AddressSpec { link: link.parse().unwrap(), address }))
    };
    let observed = [
        address("nic1.11", "10.0.11.9"),
        address("nic1.11", "2603:c020::7"),
        address("nic1.13", "10.0.13.7"),
        address("nic1.12", "10.0.12.7"),
    ];
    let steps = datapath::plan(&host::placed(host::desired(&network)), &observed);
    let batches = batches(steps, &network);
    let gone = batches.iter().filter(|batch| batch.steps.iter().any(|it| matches!(it.change, Change::Delete(_))));
    let gone: Vec<_> = gone.map(|it| format!("{}: {}", it.part, it.steps[0])).collect();
    assert_eq!(
        gone,
        [
            "ocid1.vnic.oc1.iad.a: addr del 10.0.11.9/32 dev nic1.11",
            "no longer wanted: addr del 10.0.13.7/32 dev nic1.13",
            "no longer wanted: addr del 2603:c020::7/128 dev nic1.11",
        ]
    );
    assert!(batches.last().is_some_and(|batch| batch.part == Part::Stale), "all that is added comes before");
}
