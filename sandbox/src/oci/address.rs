//! Private IPs and IPv6s, one by one and in bulk. What is created here the fabric accepts from then on.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use ipnetwork::IpNetwork;
use serde_json::{Map, Value, json};
use vcn::{Family, Ocid};

use super::answer::{Answer, Asked, Outcome, invalid, missing, not_found, refuse};
use super::api::{Api, Done, Task};
use super::attachment::{AVAILABILITY_DOMAIN, refusal_of};
use super::books::{AddressRecord, Books, check_version, etag};
use super::moment::rfc3339;
use crate::Subnet;
use crate::addresses::width;
use crate::identity::COMPARTMENT;

/// What of a wish the object keeps.
const KEPT: [&str; 5] = ["displayName", "hostnameLabel", "freeformTags", "definedTags", "lifetime"];
/// The most of one bulk request.
const MOST_ITEMS: usize = 64;

impl Api {
    pub(super) fn create_address(&self, books: &mut Books, family: Family, asked: &Asked) -> Outcome<Done> {
        let body = asked.json()?;
        let wish = body.as_object().ok_or_else(|| invalid("the body is no object"))?;
        let (node, vnic) = self.holder(books, wish)?;
        self.has_room(books, (&vnic, family), 1)?;
        let subnet = subnet_of(books, &vnic)?;
        let wanted = wanted(family, &subnet, wish)?;
        let network = self.vcn().assign(&node, &vnic, wanted).map_err(refusal_of)?;
        let id = books.new_address_id(family);
        let record =
            AddressRecord { vnic, node, network, primary: false, fields: kept(wish), created: SystemTime::now() };
        let answer = Answer::object(self.document(books, &id, &record), &etag(1));
        books.addresses.insert(id.clone(), record);
        Ok(Done { answer, made: Some(id), later: None })
    }

    pub(super) fn list_addresses(&self, books: &Books, family: Family, asked: &Asked) -> Outcome {
        let query = |name: &str| asked.query.get(name).map(String::as_str);
        if query("vnicId").is_none() && query("subnetId").is_none() {
            return Err(missing("vnicId or subnetId"));
        }
        if query("vnicId").is_some_and(|id| !books.vnics.keys().any(|vnic| vnic.as_str() == id)) {
            return Err(not_found());
        }
        let all = books.addresses.iter().filter(|(_, address)| {
            let subnet = || books.vnics.get(&address.vnic).map(|record| record.vnic.subnet.id.as_str());
            Family::of(address.network.ip()) == family
                && query("vnicId").is_none_or(|id| id == address.vnic.as_str())
                && query("subnetId").is_none_or(|id| Some(id) == subnet())
                && query("ipAddress").is_none_or(|text| text.parse() == Ok(address.network.ip()))
        });
        Answer::page(asked, self.settings().page, all.map(|(id, address)| self.document(books, id, address)).collect())
    }

    pub(super) fn get_address(books: &Books, id: &str) -> Outcome {
        let address = books.addresses.get(id).ok_or_else(not_found)?;
        Ok(Answer::object(document(books, id, address), &etag(1)))
    }

    pub(super) fn delete_address(&self, books: &mut Books, id: &str, asked: &Asked) -> Outcome {
        let address = books.addresses.get(id).ok_or_else(not_found)?;
        check_version(asked.header("if-match"), 1)?;
        if address.primary {
            return Err(invalid("the VNIC's own address goes with the VNIC"));
        }
        self.vcn().unassign(&address.node, &address.vnic, address.network).map_err(refusal_of)?;
        books.addresses.remove(id);
        Ok(Answer::nothing())
    }

    pub(super) fn create_addresses(&self, books: &mut Books, family: Family, asked: &Asked) -> Outcome<Done> {
        let body = asked.json()?;
        let wish = body.as_object().ok_or_else(|| invalid("the body is no object"))?;
        let (node, vnic) = self.holder(books, wish)?;
        let name = if family == Family::Ipv4 { "bulkCreatePrivateIpItem" } else { "bulkCreateIpv6sItem" };
        let items: Vec<Map<String, Value>> =
            items(wish, name)?.iter().filter_map(|item| item.as_object().cloned()).collect();
        let subnet = subnet_of(books, &vnic)?;
        for item in &items {
            wanted(family, &subnet, item)?;
        }
        self.has_room(books, (&vnic, family), items.len())?;
        let work = books.new_id("coreservicesworkrequest");
        let later = Some((self.settings().bulk, Task::CreateAddresses { node, vnic, family, items }));
        Ok(Done { answer: accepted(&work), made: None, later })
    }

    pub(super) fn finish_create(&self, (node, vnic): (&str, &Ocid), family: Family, items: &[Map<String, Value>]) {
        let mut books = self.current();
        for item in items {
            let assigned = subnet_of(&books, vnic)
                .and_then(|subnet| wanted(family, &subnet, item))
                .and_then(|wanted| self.vcn().assign(node, vnic, wanted).map_err(refusal_of));
            // As in a work request: what cannot be had is missing afterwards.
            let Ok(network) = assigned else { continue };
            let id = books.new_address_id(family);
            let record = AddressRecord {
                vnic: vnic.clone(),
                node: node.to_owned(),
                network,
                primary: false,
                fields: kept(item),
                created: SystemTime::now(),
            };
            books.addresses.insert(id, record);
        }
    }

    pub(super) fn delete_addresses(&self, books: &mut Books, family: Family, asked: &Asked) -> Outcome<Done> {
        let body = asked.json()?;
        let wish = body.as_object().ok_or_else(|| invalid("the body is no object"))?;
        let (name, key) = match family {
            Family::Ipv4 => ("bulkDeletePrivateIpItem", "privateIpId"),
            Family::Ipv6 => ("bulkDeleteIpv6sItem", "ipv6Id"),
        };
        let mut addresses = Vec::new();
        for item in items(wish, name)? {
            let id = item.get(key).and_then(Value::as_str).ok_or_else(|| missing(key))?;
            let address = books.addresses.get(id).ok_or_else(not_found)?;
            if address.primary {
                return Err(invalid("the VNIC's own address goes with the VNIC"));
            }
            addresses.push((address.node.clone(), address.vnic.clone(), address.network));
        }
        let work = books.new_id("coreservicesworkrequest");
        let later = Some((self.settings().bulk, Task::DeleteAddresses { addresses }));
        Ok(Done { answer: accepted(&work), made: None, later })
    }

    /// The VNIC that a wish names, and its node.
    fn holder(&self, books: &Books, wish: &Map<String, Value>) -> Outcome<(String, Ocid)> {
        let vnic = wish.get("vnicId").and_then(Value::as_str).ok_or_else(|| missing("vnicId"))?;
        let mut records = books.vnics.values();
        let record = records.find(|record| record.vnic.id.as_str() == vnic).ok_or_else(not_found)?;
        Ok((record.node.clone(), record.vnic.id.clone()))
    }

    fn has_room(&self, books: &Books, (vnic, family): (&Ocid, Family), more: usize) -> Outcome<()> {
        let has = books
            .addresses
            .values()
            .filter(|address| address.vnic == *vnic && !address.primary && Family::of(address.network.ip()) == family);
        let most = self.settings().addresses_per_vnic;
        if has.count() + more > most {
            return Err(refuse(
                400,
                "LimitExceeded",
                format!("a VNIC has {most} secondary {family} addresses at most"),
            ));
        }
        Ok(())
    }

    fn document(&self, books: &Books, id: &str, address: &AddressRecord) -> Value {
        document(books, id, address)
    }
}

fn subnet_of(books: &Books, vnic: &Ocid) -> Outcome<Arc<Subnet>> {
    let mut records = books.vnics.values();
    let record = records.find(|record| record.vnic.id == *vnic).ok_or_else(not_found)?;
    Ok(Arc::clone(&record.vnic.subnet))
}

/// The block of the subnet; first address and prefix length, where given.
fn wanted(
    family: Family,
    subnet: &Subnet,
    wish: &Map<String, Value>,
) -> Outcome<(IpNetwork, Option<IpAddr>, Option<u8>)> {
    let first = wish.get("ipAddress").and_then(Value::as_str).map(|text| {
        let address = text.parse::<IpAddr>().ok().filter(|address| Family::of(*address) == family);
        address.ok_or_else(|| invalid(format!("{text:?} is no {family} address")))
    });
    let prefix = wish.get("cidrPrefixLength").and_then(Value::as_u64).map(|prefix| {
        let allowed = match family {
            Family::Ipv4 => (18..=30).contains(&prefix) || prefix == 32,
            Family::Ipv6 => (80..=128).contains(&prefix) && prefix.is_multiple_of(4),
        };
        u8::try_from(prefix).ok().filter(|_| allowed).ok_or_else(|| invalid(format!("cidrPrefixLength {prefix}")))
    });
    Ok((block(family, subnet, wish)?, first.transpose()?, prefix.transpose()?))
}

/// "Required if more than one IPv6 prefix exists on the subnet", Oracle's SDKs say of the field.
fn block(family: Family, subnet: &Subnet, wish: &Map<String, Value>) -> Outcome<IpNetwork> {
    let mut blocks = subnet.all_blocks().filter(|block| Family::of(block.ip()) == family);
    let none = || invalid(format!("the subnet has no such {family} block"));
    match wish.get("ipv6SubnetCidr").and_then(Value::as_str).filter(|_| family == Family::Ipv6) {
        Some(asked) => blocks.find(|block| asked.parse() == Ok(*block)).ok_or_else(none),
        None if family == Family::Ipv6 && subnet.second_ipv6.is_some() => {
            Err(invalid("ipv6SubnetCidr is missing, and the subnet has more than one IPv6 block"))
        }
        None => blocks.next().ok_or_else(none),
    }
}

fn items<'a>(wish: &'a Map<String, Value>, name: &str) -> Outcome<&'a Vec<Value>> {
    let items = wish.get(name).and_then(Value::as_array).ok_or_else(|| missing(name))?;
    if items.is_empty() || items.len() > MOST_ITEMS {
        return Err(invalid(format!("{name} has {} entries, 1 to {MOST_ITEMS} are allowed", items.len())));
    }
    Ok(items)
}

fn kept(wish: &Map<String, Value>) -> Map<String, Value> {
    wish.iter().filter(|(name, _)| KEPT.contains(&name.as_str())).map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn accepted(work: &str) -> Answer {
    Answer { status: 202, headers: vec![("opc-work-request-id", work.to_owned())], body: None }
}

fn document(books: &Books, id: &str, address: &AddressRecord) -> Value {
    let network: IpNetwork = address.network;
    let mut document = json!({
        "id": id,
        "availabilityDomain": AVAILABILITY_DOMAIN,
        "compartmentId": COMPARTMENT,
        "ipAddress": network.ip(),
        "ipState": "ASSIGNED",
        "lifetime": "EPHEMERAL",
        "subnetId": books.vnics.get(&address.vnic).map(|record| record.vnic.subnet.id.clone()),
        "vnicId": address.vnic,
        "freeformTags": {},
        "definedTags": {},
        "timeCreated": rfc3339(address.created),
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
    all.extend(address.fields.iter().map(|(name, value)| (name.clone(), value.clone())));
    document
}
