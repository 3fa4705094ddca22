//! The documents below `/opc/v2`, with the field names that OCI documents.

use serde_json::{Value, json};
use vcn::MachineKind;

use crate::network::Instance;
use crate::network::Vnic;

/// When every instance was created, in milliseconds: fixed, so that documents are the same in every run.
const TIME_CREATED: u64 = 1_767_225_600_000;

/// All documents of one instance as one tree: a request names a place in it.
pub(super) fn tree(instance: &Instance) -> Value {
    json!({
        "instance": instance_document(instance),
        "vnics": instance.vnics.iter().map(|vnic| vnic_document(instance.kind, vnic)).collect::<Vec<_>>(),
    })
}

fn instance_document(instance: &Instance) -> Value {
    json!({
        "availabilityDomain": "SBOX:US-ASHBURN-AD-1",
        "faultDomain": "FAULT-DOMAIN-1",
        "compartmentId": crate::network::identity::COMPARTMENT,
        "displayName": instance.name,
        "hostname": instance.name,
        "id": instance.id,
        "image": "ocid1.image.oc1.iad.aaaaaaaasandbox",
        "metadata": instance.metadata,
        // The short key, as older regions really have it: the canonical one has the long name.
        "region": "iad",
        "canonicalRegionName": "us-ashburn-1",
        "ociAdName": "iad-ad-1",
        "regionInfo": {
            "realmKey": "oc1",
            "realmDomainComponent": "oraclecloud.com",
            "regionKey": "IAD",
            "regionIdentifier": "us-ashburn-1",
        },
        "shape": instance.shape,
        "shapeConfig": {
            "ocpus": f64::from(instance.max_vnics.min(24)),
            "memoryInGBs": 64.0,
            "networkingBandwidthInGbps": 40.0,
            "maxVnicAttachments": instance.max_vnics,
        },
        "state": "Running",
        "timeCreated": TIME_CREATED,
        "agentConfig": { "monitoringDisabled": false, "managementDisabled": false, "allPluginsDisabled": false,
            "pluginsConfig": [] },
        "freeformTags": {},
        "definedTags": {},
    })
}

fn vnic_document(kind: MachineKind, vnic: &Vnic) -> Value {
    let mut document = json!({ "vnicId": vnic.id });
    let Some(fields) = document.as_object_mut() else { return document };
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    if let (Some(address), Some(router), Some(block)) = (vnic.address.ipv4, vnic.subnet.router_v4(), vnic.subnet.ipv4())
    {
        set("privateIp", json!(address));
        set("virtualRouterIp", json!(router));
        set("subnetCidrBlock", json!(block));
    }
    set("vlanTag", json!(vnic.vlan_tag));
    // Upper case, as bare metal often shows it: to be compared without regard to case.
    let mac = vnic.mac.to_string();
    set("macAddr", json!(if kind == MachineKind::BareMetal { mac.to_uppercase() } else { mac }));
    if kind == MachineKind::BareMetal {
        set("nicIndex", json!(vnic.nic_index));
    }
    // All of the VNIC's. OCI promises no order; in this one, the VNIC's own address is the last.
    let addresses = vnic.secondary.ipv6.iter().flatten().rev().chain(&vnic.address.ipv6).collect::<Vec<_>>();
    if let (false, Some(router), Some(block)) = (addresses.is_empty(), vnic.subnet.router_v6(), vnic.subnet.ipv6()) {
        set("ipv6Addresses", json!(addresses));
        set("ipv6SubnetCidrBlock", json!(block));
        set("ipv6VirtualRouterIp", json!(router));
    }
    document
}
