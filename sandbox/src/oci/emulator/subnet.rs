//! Subnets: only read.

use serde_json::json;

use super::instance::TIME_CREATED;
use super::message::not_found;
use super::{Emulator, Outcome, Response};

impl Emulator {
    pub(super) fn get_subnet(&self, id: &str) -> Outcome {
        let subnet = self.vcn().subnet_by_id(id).ok_or_else(not_found)?;
        let all = |is_ipv6| subnet.all_blocks().filter(move |block| block.is_ipv6() == is_ipv6).collect::<Vec<_>>();
        let document = json!({
            "id": subnet.id,
            "compartmentId": subnet.compartment,
            "displayName": subnet.name,
            "cidrBlock": subnet.blocks.ipv4,
            "ipv4CidrBlocks": all(false),
            "ipv6CidrBlock": subnet.blocks.ipv6,
            "ipv6CidrBlocks": all(true),
            "ipv6VirtualRouterIp": subnet.router_v6(),
            "lifecycleState": "AVAILABLE",
            "prohibitInternetIngress": subnet.prohibit_public_ip,
            "prohibitPublicIpOnVnic": subnet.prohibit_public_ip,
            "routeTableId": "ocid1.routetable.oc1.iad.aaaaaaaasandbox",
            "timeCreated": TIME_CREATED,
            "vcnId": "ocid1.vcn.oc1.iad.aaaaaaaasandbox",
            "virtualRouterIp": subnet.router_v4(),
            "virtualRouterMac": subnet.router_mac.to_string().to_uppercase(),
        });
        Ok(Response::object(document, 1))
    }
}
