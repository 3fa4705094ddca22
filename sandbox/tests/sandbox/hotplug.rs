//! VNICs come and go while a node runs.

use crate::fixture::two_nodes;
use sandbox::{NpnShape, VnicSpec};
use serde_json::Value;

#[test]
fn names_and_addresses_recycle_and_identities_do_not() {
    let vcn = two_nodes();
    let first = vcn.attach_vnic("node-a", &VnicSpec::new("pods")).unwrap();
    vcn.detach_vnic("node-a", &first.id).unwrap();
    let second = vcn.attach_vnic("node-a", &VnicSpec::new("pods")).unwrap();
    assert_eq!((&first.link, &first.address), (&second.link, &second.address));
    assert!(first.id != second.id && first.mac != second.mac);
}

#[test]
fn native_pod_network_has_both_shapes() {
    let vcn = two_nodes();
    let a = vcn.node("node-a").unwrap();
    let legacy = vcn.native_pod_network("node-a", NpnShape::Legacy).unwrap();
    let vnic = &legacy["status"]["vnics"][0];
    assert_eq!(vnic["macAddress"], a.vnics()[1].mac.to_string());
    assert_eq!((&vnic["routerIp"], &vnic["subnetCidr"]), (&Value::from("10.0.32.1"), &Value::from("10.0.32.0/24")));
    assert_eq!((&vnic["hostAddress"], vnic["addresses"].as_array().unwrap().len()), (&Value::from("10.0.32.3"), 7));
    assert_eq!(legacy["metadata"]["name"], a.id().unique_id());
    assert_eq!(legacy["spec"].get("ipFamilies"), None);

    let plural = vcn.native_pod_network("node-a", NpnShape::PerFamily).unwrap();
    let vnic = &plural["status"]["vnics"][0];
    assert_eq!(vnic["podAddresses"][0], serde_json::json!({ "v4": "10.0.32.4", "v6": "2603:c020:0:2::4" }));
    assert_eq!(plural["spec"]["ipFamilies"], serde_json::json!(["IPv4", "IPv6"]));
}
