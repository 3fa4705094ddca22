//! What sources offer and no node has: addresses that are not host addresses, and VNICs that are not for pods in general.

use std::net::{IpAddr, UdpSocket};

use serde_json::json;
use vcn::Family;

use crate::follow_up::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Node, native_pod_network, wait_for};
use crate::pod::Pod;

/// The source address of the host's requests to the metadata service: the service's own where the host took it for its own.
fn metadata_source_address(node: &Node) -> IpAddr {
    let local_address = node.inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect((vcn::METADATA_ADDRESS, 80))?;
        socket.local_addr()
    });
    local_address.unwrap().ip()
}

#[test]
fn refused_address_is_assigned_to_neither_host_nor_new_pod() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    assert_eq!(pod.addresses()[0].to_string(), "10.0.33.32");
    let before = (node.addresses("ens5"), node.routes(Family::Ipv4, 1000), node.routes(Family::Ipv4, 254));

    // The pod's address is another VNIC's own now, and a third one has the primary VNIC's.
    node.plug("ens6", 34);
    node.plug("ens7", 35);
    let own = |mut entry: serde_json::Value, address: &str| {
        entry["privateIp"] = json!(address);
        entry
    };
    let mut storage = own(vnic("storage", 34), "10.0.33.32");
    (storage["subnetCidrBlock"], storage["virtualRouterIp"]) = (json!("10.0.33.0/24"), json!("10.0.33.1"));
    let twin = own(vnic("twin", 35), "10.0.10.7");
    let foul = own(dual_stack("pods", 33), "169.254.169.254");
    node.metadata.set_vnics(vec![vnic("primary", 10), foul, storage, twin]);
    let mut npn = native_pod_network("SUCCESS", &[("pods", 33)], true);
    let offered = npn["status"]["vnics"][0]["podAddresses"].as_array_mut().unwrap();
    offered.push(json!({"v4": "169.254.169.254", "v6": "fd00:c1::a9fe:a9fe"}));
    offered.push(json!({"v4": "10.0.33.1", "v6": "::ffff:10.0.33.9"}));
    offered.push(json!({"v4": "10.0.10.7"}));
    node.publish_document(&npn);
    let refused = || node.conditions().iter().filter(|reason| *reason == "AddressRefused").count() == 2;
    let is_reported = || refused() && node.get("/readyz").1.contains("169.254.169.254 (metadata service: link-local)");
    wait_for("the addresses to be refused", is_reported, || format!("{}\n{}", node.get("/readyz").1, agent.log()));
    // Three passes are beyond the grace.
    node.wait_timer_passes(&agent, 3);
    assert_eq!(node.get("/readyz").0, 200, "all others are served");
    let now = (node.addresses("ens5"), node.routes(Family::Ipv4, 1000), node.routes(Family::Ipv4, 254));
    assert_eq!(now, before, "{}", agent.log());
    assert!(!node.addresses("ens7").iter().any(|it| it.starts_with("10.0.10.7/")));
    assert_eq!(metadata_source_address(&node).to_string(), "10.0.10.7");
    let pools = node.pools()["vnics"].to_string();
    for address in ["169.254.169.254", "10.0.10.7", "10.0.33.1/32", "10.0.33.32", "fd00:c1::a9fe:a9fe", "::ffff:"] {
        assert!(!pools.contains(address), "{address}: {pools}");
    }
    pod.wait_connected();
    let (_, said) = node.run(&["status"]);
    let row = said.lines().find(|line| line.contains("ocid1.vnic.oc1.iad.pods")).unwrap();
    assert!(row.ends_with("AddressRefused"), "{said}");

    // An agent that starts now keeps it so; new pods get the others.
    drop(agent);
    let agent = node.ready_agent(&[]);
    node.wait_timer_passes(&agent, 3);
    assert_eq!(metadata_source_address(&node).to_string(), "10.0.10.7");
    pod.wait_connected();
    let second = Pod::add(&node, "b");
    assert_eq!(second.addresses()[0].to_string(), "10.0.33.33");
    second.wait_connected();
    pod.del(&node);
}

/// As an agent did it that did not look at addresses.
#[test]
fn metadata_address_on_the_host_is_removed_at_start() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    drop(agent);
    let copy = node.path("lib").join(vcn::VNICS_COPY_FILE);
    let kept = std::fs::read_to_string(&copy).unwrap();
    assert!(kept.contains("10.0.33.7"), "{kept}");
    std::fs::write(&copy, kept.replace("10.0.33.7", "169.254.169.254")).unwrap();
    node.sh(
        "ip addr add 169.254.169.254/32 dev ens5; ip rule add pref 1537 from 169.254.169.254 lookup 1000 proto 157",
    );
    assert_eq!(metadata_source_address(&node), IpAddr::from(vcn::METADATA_ADDRESS));
    // While that is so, the service does not answer.
    node.metadata.set_status(503);
    let agent = node.agent(&[]);
    let gone = || metadata_source_address(&node).to_string() == "10.0.10.7";
    wait_for("the address to go", gone, || format!("{:?}\n{}", node.addresses("ens5"), agent.log()));
    assert!(node.routes(Family::Ipv4, 1000).len() >= 2, "{}", agent.log());
}

#[test]
fn node_with_vnics_for_application_resources_only_is_reported() {
    let node = Node::new();
    node.plug("ens5", 33);
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
    let mut npn = native_pod_network("SUCCESS", &[("pods", 33)], false);
    npn["status"]["vnics"][0]["nicConfiguration"] = json!({"applicationResources": ["storage\u{1b}[31m"]});
    node.publish_document(&npn);
    let agent = node.agent(&[]);
    let is_reported = || node.conditions() == ["ApplicationResourcesOnly"];
    wait_for("the condition", is_reported, || format!("{:?}\n{}", node.conditions(), agent.log()));
    let (ready, why) = node.run(&["why-not-ready"]);
    assert!(!ready && why.contains("Next: Add a VNIC without applicationResources"), "{why}");
    let (_, said) = node.run(&["status"]);
    let row = said.lines().find(|line| line.contains("ocid1.vnic.oc1.iad.pods")).unwrap();
    assert!(row.ends_with("reserved for application resource storage\\u{1b}[31m"), "{said}");
    assert!(!said.contains('\u{1b}') && !why.contains('\u{1b}'));
    assert!(!node.path("net.d/05-vcn-native.conflist").exists());
}
