//! A host with one VNIC of both families, and what there is to do on it.

use datapath::host::{HostNetwork, HostVnic, Placement, PodServices, desired, observe, placed};
use datapath::{Places, Step, plan};
use vcn::{IfName, Mtu, PerFamily, SubnetAddressing, TableId, Vnic};

pub(crate) fn name(text: &str) -> IfName {
    IfName::new(text).unwrap()
}

/// Its links are ens3 (primary) and ens5.
pub(crate) fn network() -> HostNetwork {
    let addressing = |subnet: &str, router: &str, address: &str| SubnetAddressing {
        subnet: subnet.parse().unwrap(),
        router: router.parse().unwrap(),
        address: address.parse().unwrap(),
        others: Vec::new(),
    };
    let vnic = Vnic {
        id: "ocid1.vnic.oc1.iad.v5".parse().unwrap(),
        mac: "02:00:17:00:00:05".parse().unwrap(),
        nic_index: None,
        vlan_tag: None,
        addressing: PerFamily {
            ipv4: Some(addressing("10.0.4.0/24", "10.0.4.1", "10.0.4.5")),
            ipv6: Some(addressing("2001:db8::/64", "fe80::200:17ff:fe00:1", "2001:db8::5")),
        },
    };
    let placement = Placement::Device { link: name("ens5") };
    let pod_blocks = ["10.0.4.0/24", "2001:db8::/64"].map(|block| block.parse().unwrap()).to_vec();
    let vnics = vec![HostVnic {
        vnic,
        placement,
        table: TableId(1001),
        mtu: Mtu::VCN,
        pod_blocks,
        on_link: Vec::new(),
        routes: Vec::new(),
    }];
    HostNetwork {
        primary: name("ens3"),
        vnics,
        pods: Some(PodServices { may_use_metadata: true, may_spoof: false, ipv6: true }),
    }
}

pub(crate) fn todo(network: &HostNetwork, places: &mut Places) -> Vec<Step> {
    let objects = desired(network);
    let observed = observe(&objects, places).unwrap();
    plan(&placed(objects), &observed)
}
