//! Private IPs and IPv6s, one by one and in bulk. The fabric accepts an address as soon as its object exists.

use std::net::IpAddr;
use std::time::SystemTime;

use ipnetwork::IpNetwork;
use serde_json::{Map, Value, json};
use vcn::{Family, Ocid};

use super::attachment::refusal_of;
use super::message::{check_version, invalid, missing, not_found, refuse};
use super::state::{AddressRecord, State};
use super::{AVAILABILITY_DOMAIN, Emulator, OperationResult, Outcome, Request, Response, Task, pick_fields, timestamp};
use crate::Subnet;
use crate::network::{RequestedBlock, width};

/// The fields of a request that the object keeps.
const KEPT: [&str; 5] = ["displayName", "hostnameLabel", "freeformTags", "definedTags", "lifetime"];
/// The most items of one bulk request.
const MAX_ITEMS: usize = 64;

impl Emulator {
    pub(super) fn create_address(
        &self,
        state: &mut State,
        family: Family,
        request: &Request,
    ) -> Outcome<OperationResult> {
        let body = request.json()?;
        let vnic = self.holder(state, family, &body, 1)?;
        let id = self.assign(state, &vnic, family, &body)?;
        Ok(OperationResult { response: Self::get_address(state, &id)?, created: Some(id), later: None })
    }

    /// Takes the addresses, and records the object.
    fn assign(&self, state: &mut State, vnic: &Ocid, family: Family, item: &Map<String, Value>) -> Outcome<String> {
        let holder = state.vnic(vnic.as_str())?;
        let node = holder.node.clone();
        let requested = requested_block(family, &holder.vnic.subnet, item)?;
        let network = self.vcn().assign(&node, vnic, requested).map_err(refusal_of)?;
        let id = state.new_address_id(family);
        let record = AddressRecord {
            vnic: vnic.clone(),
            node,
            network,
            primary: false,
            fields: pick_fields(item, &KEPT),
            created: SystemTime::now(),
        };
        state.addresses.insert(id.clone(), record);
        Ok(id)
    }

    pub(super) fn list_addresses(&self, state: &State, family: Family, request: &Request) -> Outcome {
        let (vnic, subnet) = (request.query("vnicId"), request.query("subnetId"));
        if vnic.is_none() && subnet.is_none() {
            return Err(missing("vnicId or subnetId"));
        }
        vnic.map(|vnic| state.vnic(vnic)).transpose()?;
        let all = state.addresses.iter().filter(|(_, address)| {
            let held_in = || state.vnics.get(&address.vnic).map(|record| record.vnic.subnet.id.as_str());
            Family::of(address.network.ip()) == family
                && vnic.is_none_or(|id| id == address.vnic.as_str())
                && subnet.is_none_or(|id| Some(id) == held_in())
                && request.query("ipAddress").is_none_or(|text| text.parse() == Ok(address.network.ip()))
        });
        Response::page(request, self.settings().page, all.map(|(id, address)| document(state, id, address)))
    }

    pub(super) fn get_address(state: &State, id: &str) -> Outcome {
        let address = state.addresses.get(id).ok_or_else(not_found)?;
        Ok(Response::object(document(state, id, address), 1))
    }

    pub(super) fn delete_address(&self, state: &mut State, id: &str, request: &Request) -> Outcome {
        let (node, vnic, network) = deletable(state, id)?;
        check_version(request, 1)?;
        self.vcn().unassign(&node, &vnic, network).map_err(refusal_of)?;
        state.addresses.remove(id);
        Ok(Response::empty())
    }

    pub(super) fn create_addresses(
        &self,
        state: &mut State,
        family: Family,
        request: &Request,
    ) -> Outcome<OperationResult> {
        let body = request.json()?;
        let name = if family == Family::Ipv4 { "bulkCreatePrivateIpItem" } else { "bulkCreateIpv6sItem" };
        let items: Vec<Map<String, Value>> =
            items(&body, name)?.iter().filter_map(|item| item.as_object().cloned()).collect();
        let vnic = self.holder(state, family, &body, items.len())?;
        let subnet = &state.vnic(vnic.as_str())?.vnic.subnet;
        for item in &items {
            requested_block(family, subnet, item)?;
        }
        let later = Some((self.settings().bulk, Task::CreateAddresses { vnic, family, items }));
        Ok(OperationResult { response: accepted(state), created: None, later })
    }

    pub(super) fn finish_create(&self, vnic: &Ocid, family: Family, items: &[Map<String, Value>]) {
        let mut state = self.current();
        for item in items {
            // As in a work request: an item that fails is missing afterwards.
            let _ = self.assign(&mut state, vnic, family, item);
        }
    }

    /// The VNIC that a request names; it has room for `more` addresses.
    fn holder(&self, state: &State, family: Family, body: &Map<String, Value>, more: usize) -> Outcome<Ocid> {
        let vnic = body.get("vnicId").and_then(Value::as_str).ok_or_else(|| missing("vnicId"))?;
        let record = state.vnic(vnic)?;
        let own = state.addresses.values().filter(|address| address.vnic == record.vnic.id && !address.primary);
        let has = own.filter(|address| Family::of(address.network.ip()) == family).count();
        let most = self.settings().addresses_per_vnic;
        if has + more > most {
            let message = format!("a VNIC has at most {most} secondary {family} addresses");
            return Err(refuse(400, "LimitExceeded", message));
        }
        Ok(record.vnic.id.clone())
    }
}

/// Node, VNIC and network of an address that may be deleted.
fn deletable(state: &State, id: &str) -> Outcome<(String, Ocid, IpNetwork)> {
    let address = state.addresses.get(id).ok_or_else(not_found)?;
    if address.primary {
        return Err(invalid("the VNIC's own address is deleted with the VNIC"));
    }
    Ok((address.node.clone(), address.vnic.clone(), address.network))
}

fn requested_block(family: Family, subnet: &Subnet, item: &Map<String, Value>) -> Outcome<RequestedBlock> {
    let first = item.get("ipAddress").and_then(Value::as_str).map(|text| {
        let address = text.parse::<IpAddr>().ok().filter(|address| Family::of(*address) == family);
        address.ok_or_else(|| invalid(format!("{text:?} is not an {family} address")))
    });
    let prefix = item.get("cidrPrefixLength").and_then(Value::as_u64).map(|prefix| {
        let allowed = match family {
            Family::Ipv4 => (18..=30).contains(&prefix) || prefix == 32,
            Family::Ipv6 => (80..=128).contains(&prefix) && prefix.is_multiple_of(4),
        };
        u8::try_from(prefix).ok().filter(|_| allowed).ok_or_else(|| invalid(format!("cidrPrefixLength {prefix}")))
    });
    let (first, prefix) = (first.transpose()?, prefix.transpose()?);
    let block = block(family, subnet, item)?;
    match first {
        Some(first) if !block.contains(first) => Err(invalid(format!("{first} is not in {block}"))),
        first => Ok(RequestedBlock { block, first, prefix: prefix.unwrap_or(width(block)) }),
    }
}

/// "Required if more than one IPv6 prefix exists on the subnet", Oracle's SDKs say of the field.
fn block(family: Family, subnet: &Subnet, item: &Map<String, Value>) -> Outcome<IpNetwork> {
    let mut blocks = subnet.all_blocks().filter(|block| Family::of(block.ip()) == family);
    let none = || invalid(format!("the subnet has no such {family} block"));
    match item.get("ipv6SubnetCidr").and_then(Value::as_str).filter(|_| family == Family::Ipv6) {
        Some(requested) => blocks.find(|block| requested.parse() == Ok(*block)).ok_or_else(none),
        None if family == Family::Ipv6 && subnet.second_ipv6.is_some() => {
            Err(invalid("ipv6SubnetCidr is missing, and the subnet has more than one IPv6 block"))
        }
        None => blocks.next().ok_or_else(none),
    }
}

fn items<'a>(body: &'a Map<String, Value>, name: &str) -> Outcome<&'a Vec<Value>> {
    let items = body.get(name).and_then(Value::as_array).ok_or_else(|| missing(name))?;
    if items.is_empty() || items.len() > MAX_ITEMS {
        return Err(invalid(format!("{name} has {} entries, 1 to {MAX_ITEMS} are allowed", items.len())));
    }
    Ok(items)
}

fn accepted(state: &mut State) -> Response {
    let work = state.new_id("coreservicesworkrequest");
    Response { status: 202, headers: vec![("opc-work-request-id", work)], body: None }
}

fn document(state: &State, id: &str, address: &AddressRecord) -> Value {
    let network: IpNetwork = address.network;
    let subnet = state.vnics.get(&address.vnic).map(|record| &record.vnic.subnet);
    let mut document = json!({
        "id": id,
        "availabilityDomain": AVAILABILITY_DOMAIN,
        "compartmentId": subnet.map(|subnet| &subnet.compartment),
        "ipAddress": network.ip(),
        "ipState": "ASSIGNED",
        "lifetime": "EPHEMERAL",
        "subnetId": subnet.map(|subnet| &subnet.id),
        "vnicId": address.vnic,
        "freeformTags": {},
        "definedTags": {},
        "timeCreated": timestamp(address.created),
    });
    let Some(all) = document.as_object_mut() else { return document };
    if network.is_ipv4() {
        all.insert("isPrimary".to_owned(), json!(address.primary));
    } else {
        all.insert("lifecycleState".to_owned(), json!("AVAILABLE"));
    }
    if network.prefix() < width(network) {
        all.insert("cidrPrefixLength".to_owned(), json!(network.prefix()));
    }
    all.extend(address.fields.clone());
    document
}
