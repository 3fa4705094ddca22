//! VNIC attachments: attach, list, read, detach.

use std::net::IpAddr;
use std::time::SystemTime;

use ipnetwork::IpNetwork;
use serde_json::{Map, Value, json};
use vcn::MachineKind;

use super::message::{check_version, invalid, missing, not_found, refuse, related_not_found};
use super::state::{Attachment, AttachmentState, State};
use super::{
    AVAILABILITY_DOMAIN, Emulator, OperationResult, Outcome, Refusal, Request, Response, Task, pick_fields, timestamp,
};
use crate::error::Error;
use crate::network::VnicSpec;

/// The fields of a request that the VNIC keeps.
const KEPT: [&str; 7] = [
    "displayName",
    "hostnameLabel",
    "nsgIds",
    "skipSourceDestCheck",
    "freeformTags",
    "definedTags",
    "securityAttributes",
];

impl Emulator {
    pub(super) fn attach_vnic(&self, state: &mut State, request: &Request) -> Outcome<OperationResult> {
        let body = request.json()?;
        let instance = body.get("instanceId").and_then(Value::as_str).ok_or_else(|| missing("instanceId"))?;
        let details =
            body.get("createVnicDetails").and_then(Value::as_object).ok_or_else(|| missing("createVnicDetails"))?;
        let instance = self.vcn().inventory().by_id(instance).ok_or_else(not_found)?;
        match state.instance_states.get(&instance.name).map(String::as_str) {
            None | Some("RUNNING" | "STOPPED") if !state.is_busy(&instance.name) => {}
            // The last state of an instance; it leaves every other one.
            Some("TERMINATED") => return Err(refuse(409, "IncorrectState", "the instance is TERMINATED")),
            _ => return Err(being_modified(instance.id.as_str())),
        }
        let spec = self.spec_of(instance.kind, details, &body)?;
        let vnic = self.vcn().reserve(&instance.name, &spec).map_err(refusal_of)?;
        let id = state.new_id("vnicattachment");
        let attachment = Attachment {
            node: instance.name,
            instance: instance.id,
            compartment: instance.compartment,
            state: AttachmentState::Attaching,
            vnic,
            display_name: body.get("displayName").and_then(Value::as_str).map(str::to_owned),
            fields: pick_fields(details, &KEPT),
            created: SystemTime::now(),
            version: 1,
        };
        let response = Response::object(document(&id, &attachment), attachment.version);
        state.attachments.insert(id.clone(), attachment);
        state.unlisted.insert(id.clone(), state.list_lag);
        let later = Some((self.settings().attaching, Task::Attach(id.clone())));
        Ok(OperationResult { response, created: Some(id), later })
    }

    fn spec_of(&self, kind: MachineKind, details: &Map<String, Value>, body: &Map<String, Value>) -> Outcome<VnicSpec> {
        let text = |name: &str| details.get(name).and_then(Value::as_str);
        let flag = |name: &str| details.get(name).and_then(Value::as_bool).unwrap_or(false);
        let subnet = text("subnetId").ok_or_else(|| missing("subnetId"))?;
        let subnet = self.vcn().subnet_by_id(subnet).ok_or_else(|| related_not_found("subnet"))?;
        if flag("assignPublicIp") && subnet.prohibit_public_ip {
            return Err(invalid("Invalid VNIC creation parameters"));
        }
        for nsg in details.get("nsgIds").and_then(Value::as_array).into_iter().flatten() {
            if !nsg.as_str().is_some_and(|nsg| nsg.starts_with("ocid1.networksecuritygroup.")) {
                return Err(related_not_found("network security group"));
            }
        }
        let ports = if kind == MachineKind::BareMetal { 2 } else { 1 };
        let nic_index = body.get("nicIndex").and_then(Value::as_u64).unwrap_or(0);
        let nic_index = u8::try_from(nic_index).ok().filter(|index| *index < ports);
        let nic_index = nic_index.ok_or_else(|| invalid(format!("nicIndex must be below {ports} on this shape")))?;
        let mut spec = VnicSpec::new(&subnet.name).nic_index(nic_index);
        if let Some(name) = text("displayName") {
            spec = spec.display_name(name);
        }
        let address = |text: &str| text.parse::<IpAddr>().map_err(|_| invalid(format!("{text:?} is not an address")));
        let mut given = text("privateIp").map(address).transpose()?.into_iter().collect::<Vec<_>>();
        let pair = match details.get("ipv6AddressIpv6SubnetCidrPairDetails").and_then(Value::as_array) {
            Some(pairs) if pairs.len() > 1 => return Err(invalid("the sandbox gives a new VNIC one IPv6 address")),
            pairs => pairs.and_then(|pairs| pairs.first()),
        };
        if !flag("assignIpv6Ip") && pair.is_none() {
            spec = spec.without_ipv6();
        } else if subnet.blocks.ipv6.is_none() {
            return Err(invalid("the subnet has no IPv6 block"));
        } else if let Some(last) = subnet.all_blocks().filter(IpNetwork::is_ipv6).last() {
            // "If not provided, one is chosen for you": not the one that a caller would expect.
            spec = spec.ipv6_block(last);
        }
        let field = |name: &str| pair.and_then(|pair| pair.get(name)).and_then(Value::as_str);
        let own = field("ipv6Address").map(address).transpose()?;
        if let Some(cidr) = field("ipv6SubnetCidr") {
            let block = subnet.all_blocks().find(|block| block.is_ipv6() && cidr.parse() == Ok(*block));
            let block = block.ok_or_else(|| invalid(format!("the subnet has no IPv6 block {cidr}")))?;
            if own.is_some_and(|own| !block.contains(own)) {
                return Err(invalid(format!("ipv6Address is not in {cidr}")));
            }
            spec = spec.ipv6_block(block);
        }
        given.extend(own);
        if let Some(foreign) = given.iter().find(|address| !subnet.contains(**address)) {
            return Err(invalid(format!("{foreign} is not in the subnet")));
        }
        Ok(given.into_iter().fold(spec, VnicSpec::address))
    }

    pub(super) fn finish_attach(&self, id: &str) {
        let mut state = self.state();
        let Some(attachment) = state.attachments.get_mut(id) else { return };
        if attachment.state != AttachmentState::Attaching {
            return;
        }
        match self.vcn().plug(&attachment.node, attachment.vnic.clone()) {
            Ok(vnic) => {
                attachment.vnic = vnic;
                attachment.state = AttachmentState::Attached;
            }
            Err(error) => {
                tracing::warn!(%error, "the sandbox cannot plug a VNIC");
                attachment.state = AttachmentState::Detached;
            }
        }
        attachment.version += 1;
    }

    pub(super) fn list_attachments(&self, state: &mut State, request: &Request) -> Outcome {
        let compartment = self.compartment(request)?;
        let matches = |name: &str, is: &str| request.query(name).is_none_or(|requested| requested == is);
        let hidden_since = SystemTime::now().checked_sub(self.settings().listed_after);
        let State { attachments, unlisted, frozen, instance_states, .. } = state;
        let mut all = Vec::new();
        for (id, attachment) in attachments.iter() {
            let is_new = hidden_since.is_some_and(|since| attachment.created > since);
            // A TERMINATED instance has no VNICs, although its node keeps its link.
            let is_over = instance_states.get(&attachment.node).is_some_and(|state| state == "TERMINATED");
            let is_listed = (if attachment.vnic.primary { !is_over } else { !is_new })
                && attachment.compartment == compartment
                && matches("instanceId", attachment.instance.as_str())
                && matches("availabilityDomain", AVAILABILITY_DOMAIN)
                && (!request.query.contains_key("vnicId") || attachment.state != AttachmentState::Attaching)
                && matches("vnicId", attachment.vnic.id.as_str());
            if !is_listed {
                continue;
            }
            if let Some(lists @ 1..) = unlisted.get_mut(id) {
                *lists -= 1;
                continue;
            }
            let mut document = document(id, attachment);
            if let (Some(frozen), Some(fields)) = (frozen.get(id), document.as_object_mut()) {
                fields.insert("lifecycleState".to_owned(), frozen.name().into());
            }
            all.push(document);
        }
        Response::page(request, self.settings().page, all.into_iter())
    }

    pub(super) fn get_attachment(state: &State, id: &str) -> Outcome {
        let attachment = state.attachments.get(id).ok_or_else(not_found)?;
        Ok(Response::object(document(id, attachment), attachment.version))
    }

    pub(super) fn detach_vnic(&self, state: &mut State, id: &str, request: &Request) -> Outcome<OperationResult> {
        let attachment = state.attachments.get(id).filter(|found| found.state != AttachmentState::Detached);
        let attachment = attachment.ok_or_else(not_found)?;
        check_version(request, attachment.version)?;
        if attachment.vnic.primary {
            return Err(invalid("the primary VNIC cannot be detached"));
        }
        if state.is_busy(&attachment.node) {
            return Err(being_modified(attachment.instance.as_str()));
        }
        if let Some(attachment) = state.attachments.get_mut(id) {
            attachment.state = AttachmentState::Detaching;
            attachment.version += 1;
        }
        let later = Some((self.settings().detaching, Task::Detach(id.to_owned())));
        Ok(OperationResult { response: Response::empty(), created: None, later })
    }

    pub(super) fn finish_detach(&self, id: &str) {
        let found = {
            let state = self.state();
            let found = state.attachments.get(id).filter(|found| found.state == AttachmentState::Detaching);
            found.map(|attachment| (attachment.node.clone(), attachment.vnic.id.clone()))
        };
        let Some((node, vnic)) = found else { return };
        match self.vcn().detach_vnic(&node, &vnic) {
            // The sync that `current` does sees that it is gone.
            Ok(()) | Err(Error::NoVnic { .. }) => drop(self.current()),
            Err(error) => tracing::warn!(%error, "the sandbox cannot unplug a VNIC"),
        }
    }

    /// Undoes what has begun: ATTACHING becomes DETACHED, DETACHING becomes ATTACHED.
    pub(in crate::oci) fn give_up(&self, id: &str) {
        let mut state = self.state();
        let Some(attachment) = state.attachments.get_mut(id) else { return };
        match attachment.state {
            AttachmentState::Attaching => {
                self.vcn().release(&attachment.vnic);
                attachment.state = AttachmentState::Detached;
            }
            AttachmentState::Detaching => attachment.state = AttachmentState::Attached,
            AttachmentState::Attached | AttachmentState::Detached => return,
        }
        attachment.version += 1;
    }
}

/// An instance takes one attach or detach at a time; and none while it starts or stops.
fn being_modified(instance: &str) -> Refusal {
    refuse(409, "Conflict", format!("instance {instance} is currently being modified, try again later"))
}

/// The refusal that stands for an error of the VCN.
pub(super) fn refusal_of(error: Error) -> Refusal {
    let (status, code) = match &error {
        Error::VnicLimit { .. } | Error::SubnetFull { .. } => (400, "LimitExceeded"),
        Error::AddressTaken { .. } => (409, "Conflict"),
        Error::NoNode(_) | Error::NoVnic { .. } => return not_found(),
        _ => (400, "InvalidParameter"),
    };
    refuse(status, code, error.to_string())
}

pub(in crate::oci) fn document(id: &str, attachment: &Attachment) -> Value {
    let is_known = attachment.state != AttachmentState::Attaching;
    json!({
        "id": id,
        "availabilityDomain": AVAILABILITY_DOMAIN,
        "compartmentId": attachment.compartment,
        "displayName": attachment.display_name,
        "instanceId": attachment.instance,
        "lifecycleState": attachment.state.name(),
        "nicIndex": attachment.vnic.nic_index,
        "subnetId": attachment.vnic.subnet.id,
        "timeCreated": timestamp(attachment.created),
        "vnicId": is_known.then_some(&attachment.vnic.id),
        "vlanTag": is_known.then_some(attachment.vnic.vlan_tag),
    })
}
