//! Nodes that unit tests speak of.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::NativePodNetwork;
use clap::Parser as _;
use netlink::Link;
use serde_json::json;
use tokio::sync::watch;
use vcn::{Instance, MacAddr, Mtu, PerFamily, SubnetAddressing, Vnic};

use crate::args::Args;
use crate::facts::node_facts::NodeFacts;
use crate::lifecycle::agent::Agent;
use crate::settings::Settings;

pub(crate) fn settings(arguments: &[&str]) -> Settings {
    Settings::new(Args::try_parse_from(["oke-node-agent"].iter().chain(arguments)).unwrap().options).unwrap()
}

/// An agent that knows nothing.
pub(crate) fn agent(arguments: &[&str]) -> Arc<Agent> {
    let (facts, reports) = (watch::channel(NodeFacts::default()).1, watch::channel(None).1);
    Arc::new(Agent::new(Arc::new(settings(arguments)), facts, reports).unwrap())
}

pub(crate) fn instance() -> Instance {
    Instance {
        id: "ocid1.instance.oc1.iad.node".parse().unwrap(),
        shape: "VM.Standard.E5.Flex".into(),
        region: "us-ashburn-1".into(),
        max_vnic_attachments: Some(4),
        metadata: BTreeMap::from([("oke-native-pod-networking".into(), "true".into())]),
    }
}

/// The primary VNIC (10.0.10.5) and one for pods (10.0.33.7).
pub(crate) fn vm_vnics() -> Vec<Vnic> {
    vec![vnic("primary", 0x0a, "10.0.10"), vnic("pods", 0x0b, "10.0.33")]
}

pub(crate) fn vnic(name: &str, last: u8, net: &str) -> Vnic {
    Vnic {
        id: format!("ocid1.vnic.oc1.iad.{name}").parse().unwrap(),
        mac: mac(last),
        nic_index: None,
        vlan_tag: None,
        addressing: PerFamily {
            ipv4: Some(SubnetAddressing {
                subnet: format!("{net}.0/24").parse().unwrap(),
                router: format!("{net}.1").parse().unwrap(),
                address: format!("{net}.7").parse().unwrap(),
                others: Vec::new(),
            }),
            ipv6: None,
        },
    }
}

pub(crate) fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0x17, 0, 0, last])
}

pub(crate) fn link(name: &str, last: u8) -> Link {
    Link {
        index: u32::from(last),
        name: name.parse().unwrap(),
        mac: Some(mac(last)),
        permanent_mac: None,
        mtu: Mtu(1500),
        queue_length: 1000,
        up: true,
        running: true,
        alias: None,
        group: 0,
        kind: None,
        parent: None,
        peer_netns_id: None,
        master: None,
        vlan: None,
        arp: true,
        loopback: false,
        accept_ra: None,
    }
}

/// One VNIC, `pods`, with a range that holds the host's address, and a single address.
pub(crate) fn npn(state: &str) -> NativePodNetwork {
    let document = json!({
        "kind": "NativePodNetwork",
        "metadata": {"name": "node"},
        "spec": {"id": "ocid1.instance.oc1.iad.node", "maxPodCount": 31},
        "status": {"state": state, "reason": "FailedToCreatePrivateIP", "vnics": [{
            "vnicId": "ocid1.vnic.oc1.iad.pods",
            "macAddress": "02:00:17:00:00:0b",
            "routerIps": [{"v4": "10.0.33.1"}],
            "subnetCidrs": [{"v4": "10.0.33.0/24"}],
            "hostAddresses": [{"v4": "10.0.33.16"}],
            "podAddresses": [{"v4": "10.0.33.16/30"}, {"v4": "10.0.33.40"}],
        }]},
    });
    NativePodNetwork::parse(document.to_string().as_bytes()).unwrap()
}
