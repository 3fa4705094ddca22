//! What is only read: instances, shapes, subnets.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vcn::MachineKind;

use super::answer::{Answer, Asked, Outcome, not_found};
use super::api::Api;
use super::attachment::{AVAILABILITY_DOMAIN, compartment};
use super::books::Books;
use crate::identity::COMPARTMENT;

/// When everything was made.
const TIME_CREATED: &str = "2026-01-01T00:00:00.000Z";

impl Api {
    pub(super) fn get_instance(&self, books: &Books, id: &str) -> Outcome {
        let instances = self.vcn().inventory().lock();
        let instance = instances.values().find(|instance| instance.id.as_str() == id).ok_or_else(not_found)?;
        let state = books.instance_states.get(&instance.name).map_or("RUNNING", String::as_str);
        let document = json!({
            "id": instance.id,
            "availabilityDomain": AVAILABILITY_DOMAIN,
            "compartmentId": COMPARTMENT,
            "displayName": instance.name,
            "lifecycleState": state,
            "region": "iad",
            "shape": instance.shape,
            "shapeConfig": {
                "ocpus": f64::from(instance.max_vnics),
                "maxVnicAttachments": instance.max_vnics,
            },
            "metadata": instance.metadata,
            "freeformTags": {},
            "definedTags": {},
            "timeCreated": TIME_CREATED,
        });
        Ok(Answer::object(document, "v1"))
    }

    /// The shapes of the instances there are.
    pub(super) fn list_shapes(&self, asked: &Asked) -> Outcome {
        compartment(asked)?;
        let shapes: BTreeMap<String, (u32, MachineKind)> = {
            let instances = self.vcn().inventory().lock();
            let all = instances.values();
            all.map(|instance| (instance.shape.clone(), (instance.max_vnics, instance.kind))).collect()
        };
        let all = shapes.into_iter().map(|(shape, (most, kind))| {
            let mut document = json!({ "shape": shape, "ocpus": f64::from(most), "memoryInGBs": 64.0,
                "maxVnicAttachments": most, "networkPorts": if kind == MachineKind::BareMetal { 2 } else { 1 } });
            if let (true, Some(fields)) = (shape.ends_with(".Flex"), document.as_object_mut()) {
                let options = json!({ "min": 2, "max": f64::from(most), "defaultPerOcpu": 1.0 });
                fields.insert("isFlexible".to_owned(), Value::Bool(true));
                fields.insert("maxVnicAttachmentOptions".to_owned(), options);
            }
            document
        });
        Answer::page(asked, self.settings().page, all.collect())
    }

    pub(super) fn get_subnet(&self, id: &str) -> Outcome {
        let subnet = self.vcn().subnets().find(|subnet| subnet.id.as_str() == id).ok_or_else(not_found)?;
        let all = |is_ipv6| subnet.all_blocks().filter(move |block| block.is_ipv6() == is_ipv6).collect::<Vec<_>>();
        let document = json!({
            "id": subnet.id,
            "compartmentId": COMPARTMENT,
            "displayName": subnet.name,
            "cidrBlock": subnet.blocks.ipv4,
            "ipv4CidrBlocks": all(false),
            "ipv6CidrBlock": subnet.blocks.ipv6,
            "ipv6CidrBlocks": all(true),
            "ipv6VirtualRouterIp": subnet.router_v6(),
            "lifecycleState": "AVAILABLE",
            "prohibitInternetIngress": true,
            "prohibitPublicIpOnVnic": true,
            "routeTableId": "ocid1.routetable.oc1.iad.aaaaaaaasandbox",
            "timeCreated": TIME_CREATED,
            "vcnId": "ocid1.vcn.oc1.iad.aaaaaaaasandbox",
            "virtualRouterIp": subnet.router_v4(),
            "virtualRouterMac": subnet.router_mac.to_string().to_uppercase(),
        });
        Ok(Answer::object(document, "v1"))
    }
}
