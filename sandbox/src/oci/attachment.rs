//! VNIC attachments: attach, list, read, detach.

use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use ipnetwork::IpNetwork;
use serde_json::{Map, Value, json};
use vcn::MachineKind;

use super::answer::{Answer, Asked, Outcome, invalid, missing, not_found, refuse, related_not_found};
use super::api::{Api, Done, Task};
use super::books::{Attachment, Books, State, check_version, etag};
use super::moment::rfc3339;
use crate::error::Error;
use crate::identity::COMPARTMENT;
use crate::spec::VnicSpec;

/// What of a wish the VNIC keeps.
const KEPT: [&str; 7] = [
    "displayName",
    "hostnameLabel",
    "nsgIds",
    "skipSourceDestCheck",
    "freeformTags",
    "definedTags",
    "securityAttributes",
];

pub(super) const AVAILABILITY_DOMAIN: &str = "SBOX:US-ASHBURN-AD-1";

impl Api {
    pub(super) fn attach_vnic(&self, books: &mut Books, asked: &Asked) -> Outcome<Done> {
        let body = asked.json()?;
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let instance = text(&body, "instanceId").ok_or_else(|| missing("instanceId"))?;
        let wish =
            body.get("createVnicDetails").and_then(Value::as_object).ok_or_else(|| missing("createVnicDetails"))?;
        let node = self.instance_name(&instance).ok_or_else(not_found)?;
        if let Some(state) = books.instance_states.get(&node).filter(|state| *state != "RUNNING" && *state != "STOPPED")
        {
            // It ends in no other one.
            let is_lasting = state == "TERMINATED";
            return Err(if is_lasting {
                refuse(409, "IncorrectState", format!("the instance is {state}"))
            } else {
                being_modified(&instance)
            });
        }
        if books.attachments.values().any(|other| other.node == node && other.state.is_passing()) {
            return Err(being_modified(&instance));
        }
        let spec = self.spec_of(&node, wish, &body)?;
        let vnic = self.vcn().reserve(&node, &spec, 0).map_err(refusal_of)?;
        let id = books.new_id("vnicattachment");
        let instance = instance.parse().map_err(|_| not_found())?;
        let fields: Map<String, Value> = wish
            .iter()
            .filter(|(name, _)| KEPT.contains(&name.as_str()))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect();
        let attachment = Attachment {
            node,
            instance,
            state: State::Attaching,
            vnic,
            display_name: text(&body, "displayName"),
            fields,
            created: SystemTime::now(),
            version: 1,
            ended: None,
        };
        let answer = Answer::object(document(&id, &attachment), &etag(attachment.version));
        books.attachments.insert(id.clone(), attachment);
        let later = Some((self.settings().attaching, Task::Attach(id.clone())));
        Ok(Done { answer, made: Some(id), later })
    }

    fn spec_of(&self, node: &str, wish: &Map<String, Value>, body: &Value) -> Outcome<VnicSpec> {
        let text = |name: &str| wish.get(name).and_then(Value::as_str);
        let subnet = text("subnetId").ok_or_else(|| missing("subnetId"))?;
        let subnet =
            self.vcn().subnets().find(|own| own.id.as_str() == subnet).ok_or_else(|| related_not_found("subnet"))?;
        // As the catalogue says of every subnet here.
        if wish.get("assignPublicIp").and_then(Value::as_bool) == Some(true) {
            return Err(invalid("Invalid VNIC creation parameters"));
        }
        for nsg in wish.get("nsgIds").and_then(Value::as_array).into_iter().flatten() {
            if !nsg.as_str().is_some_and(|nsg| nsg.starts_with("ocid1.networksecuritygroup.")) {
                return Err(related_not_found("network security group"));
            }
        }
        let nic_index = body.get("nicIndex").and_then(Value::as_u64).unwrap_or(0);
        let ports = {
            let instances = self.vcn().inventory().lock();
            instances.get(node).map_or(1, |instance| if instance.kind == MachineKind::BareMetal { 2 } else { 1 })
        };
        let nic_index = u8::try_from(nic_index).ok().filter(|index| *index < ports);
        let nic_index = nic_index.ok_or_else(|| invalid(format!("nicIndex must be below {ports} on this shape")))?;
        let mut spec = VnicSpec::new(&subnet.name).nic_index(nic_index);
        if let Some(name) = text("displayName") {
            spec = spec.display_name(name);
        }
        let address = |text: &str| text.parse::<IpAddr>().map_err(|_| invalid(format!("{text:?} is no address")));
        let mut given = text("privateIp").map(address).transpose()?.into_iter().collect::<Vec<_>>();
        let pairs = wish.get("ipv6AddressIpv6SubnetCidrPairDetails").and_then(Value::as_array);
        if pairs.is_some_and(|pairs| pairs.len() > 1) {
            return Err(invalid("the sandbox gives a new VNIC one IPv6 address at most"));
        }
        for pair in pairs.into_iter().flatten() {
            let field = |name: &str| pair.get(name).and_then(Value::as_str);
            let own = field("ipv6Address").map(address).transpose()?;
            if let Some(cidr) = field("ipv6SubnetCidr") {
                let has = |block: &IpNetwork| block.is_ipv6() && cidr.parse() == Ok(*block);
                let none = || invalid(format!("the subnet has no IPv6 block {cidr}"));
                let block = subnet.all_blocks().find(has).ok_or_else(none)?;
                if own.is_some_and(|own| !block.contains(own)) {
                    return Err(invalid(format!("ipv6Address is not in {cidr}")));
                }
                spec = spec.ipv6_block(block);
            }
            given.extend(own);
        }
        let ipv6 = wish.get("assignIpv6Ip").and_then(Value::as_bool).unwrap_or(false) || pairs.is_some();
        if ipv6 && subnet.blocks.ipv6.is_none() {
            return Err(invalid("the subnet has no IPv6 block"));
        }
        if let Some(elsewhere) = given.iter().find(|address| !subnet.contains(**address)) {
            return Err(invalid(format!("{elsewhere} is not in the subnet")));
        }
        if !ipv6 {
            spec = spec.without_ipv6();
        }
        Ok(given.into_iter().fold(spec, VnicSpec::address))
    }

    pub(super) fn finish_attach(&self, id: &str) {
        let mut books = self.books();
        let Some(attachment) = books.attachments.get_mut(id) else { return };
        let outcome = self.vcn().plug(&attachment.node, attachment.vnic.clone());
        match outcome {
            Ok(vnic) => {
                attachment.vnic = vnic;
                attachment.state = State::Attached;
            }
            Err(error) => {
                tracing::warn!(%error, "the sandbox cannot plug a VNIC");
                attachment.state = State::Detached;
                attachment.ended = Some(Instant::now());
            }
        }
        attachment.version += 1;
    }

    pub(super) fn list_attachments(&self, books: &Books, asked: &Asked) -> Outcome {
        compartment(asked)?;
        let wanted = |name: &str, is: &str| asked.query.get(name).is_none_or(|wanted| wanted == is);
        let hidden_since = SystemTime::now().checked_sub(self.settings().listed_after);
        let all = books.attachments.iter().filter(|(_, attachment)| {
            let is_new = hidden_since.is_some_and(|since| attachment.created > since);
            // A TERMINATED instance has no VNICs; the node that plays it keeps its link.
            let is_over = books.instance_states.get(&attachment.node).is_some_and(|state| state == "TERMINATED");
            (if attachment.vnic.primary { !is_over } else { !is_new })
                && wanted("instanceId", attachment.instance.as_str())
                && wanted("availabilityDomain", AVAILABILITY_DOMAIN)
                && (!asked.query.contains_key("vnicId") || attachment.state != State::Attaching)
                && wanted("vnicId", attachment.vnic.id.as_str())
        });
        Answer::page(asked, self.settings().page, all.map(|(id, attachment)| document(id, attachment)).collect())
    }

    pub(super) fn get_attachment(books: &Books, id: &str) -> Outcome {
        let attachment = books.attachments.get(id).ok_or_else(not_found)?;
        Ok(Answer::object(document(id, attachment), &etag(attachment.version)))
    }

    pub(super) fn detach_vnic(&self, books: &mut Books, id: &str, asked: &Asked) -> Outcome<Done> {
        let attachment = books.attachments.get(id).filter(|attachment| attachment.state != State::Detached);
        let attachment = attachment.ok_or_else(not_found)?;
        check_version(asked.header("if-match"), attachment.version)?;
        if attachment.vnic.primary {
            return Err(invalid("the primary VNIC cannot be detached"));
        }
        let (node, instance) = (attachment.node.clone(), attachment.instance.clone());
        if books.attachments.values().any(|other| other.node == node && other.state.is_passing()) {
            return Err(being_modified(instance.as_str()));
        }
        if let Some(attachment) = books.attachments.get_mut(id) {
            attachment.state = State::Detaching;
            attachment.version += 1;
        }
        let later = Some((self.settings().detaching, Task::Detach(id.to_owned())));
        Ok(Done { answer: Answer::nothing(), made: None, later })
    }

    pub(super) fn finish_detach(&self, id: &str) {
        let found =
            self.books().attachments.get(id).map(|attachment| (attachment.node.clone(), attachment.vnic.id.clone()));
        let Some((node, vnic)) = found else { return };
        match self.vcn().detach_vnic(&node, &vnic) {
            // `current` sees that it is gone.
            Ok(()) | Err(Error::NoVnic { .. }) => drop(self.current()),
            Err(error) => tracing::warn!(%error, "the sandbox cannot unplug a VNIC"),
        }
    }

    /// What has begun comes to nothing: what was being attached is DETACHED, what was being detached ATTACHED.
    pub(super) fn give_up(&self, id: &str) {
        let mut books = self.books();
        let Some(attachment) = books.attachments.get_mut(id) else { return };
        match attachment.state {
            State::Attaching => {
                self.vcn().release(&attachment.vnic);
                attachment.state = State::Detached;
                attachment.ended = Some(Instant::now());
            }
            State::Detaching => attachment.state = State::Attached,
            State::Attached | State::Detached => return,
        }
        attachment.version += 1;
    }
}

/// Every list is of a compartment, which must be given and ours.
pub(super) fn compartment(asked: &Asked) -> Outcome<()> {
    match asked.query.get("compartmentId").map(String::as_str) {
        None => Err(missing("compartmentId")),
        Some(COMPARTMENT) => Ok(()),
        Some(_) => Err(not_found()),
    }
}

/// An instance takes one attach or detach at a time; and none while it starts or stops.
fn being_modified(instance: &str) -> super::answer::Refused {
    refuse(409, "Conflict", format!("instance {instance} is currently being modified, try again later"))
}

/// What a failure of the VCN is called here.
pub(super) fn refusal_of(error: Error) -> super::answer::Refused {
    let code = match &error {
        Error::VnicLimit { .. } | Error::SubnetFull { .. } => (400, "LimitExceeded"),
        Error::AddressTaken { .. } => (409, "Conflict"),
        Error::NoNode(_) | Error::NoVnic { .. } => return not_found(),
        _ => (400, "InvalidParameter"),
    };
    refuse(code.0, code.1, error.to_string())
}

fn document(id: &str, attachment: &Attachment) -> Value {
    let mut document = json!({
        "id": id,
        "availabilityDomain": AVAILABILITY_DOMAIN,
        "compartmentId": COMPARTMENT,
        "displayName": attachment.display_name,
        "instanceId": attachment.instance,
        "lifecycleState": attachment.state.name(),
        "nicIndex": attachment.vnic.nic_index,
        "subnetId": attachment.vnic.subnet.id,
        "timeCreated": rfc3339(attachment.created),
    });
    if let (true, Some(fields)) = (attachment.state != State::Attaching, document.as_object_mut()) {
        fields.insert("vnicId".to_owned(), json!(attachment.vnic.id));
        fields.insert("vlanTag".to_owned(), json!(attachment.vnic.vlan_tag));
    }
    document
}
