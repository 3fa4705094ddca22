//! `prevResult`: what the chain has done so far. It is kept as a document and edited in place, so that fields of other
//! plugins survive; reading ignores unknown fields.

use ipnetwork::IpNetwork;
use serde_json::{Map, Value, json};
use vcn::Mtu;

use crate::{Dns, Interface, Ip, Route, Success, Version};

/// The result of the plugin before this one in the chain.
#[derive(Clone, Debug, PartialEq)]
pub struct PrevResult {
    /// The configuration's version: additions are written in it.
    version: Version,
    fields: Map<String, Value>,
}

impl PrevResult {
    pub(crate) fn of(version: Version, fields: &Map<String, Value>) -> Self {
        Self { version, fields: fields.clone() }
    }

    /// What can be understood of it, but for the resolver. Positions are kept: an interface that cannot be understood is one
    /// with an empty name, an address or route is left out. An index of an interface that does not exist is none.
    pub fn read(&self) -> Success {
        let interfaces: Vec<_> = self.items("interfaces").iter().map(interface).collect();
        let ips = self.items("ips").iter().filter_map(|item| ip(item, interfaces.len())).collect();
        let routes = self.items("routes").iter().filter_map(route).collect();
        Success { interfaces, ips, routes, dns: Dns::default() }
    }

    /// Appends an interface and returns its index, for the addresses on it.
    pub fn add_interface(&mut self, interface: &Interface) -> usize {
        let mtu = interface.mtu.filter(|_| self.version.has_extended_results());
        self.push("interfaces", json!(Interface { mtu, ..interface.clone() }))
    }

    /// Appends an address to the result that the next plugin gets.
    pub fn add_ip(&mut self, ip: Ip) {
        self.push("ips", json!(ip));
    }

    /// As JSON, in the terms of `version`: the document with that cniVersion, and in older versions the family of
    /// each address, which they demand.
    pub fn to_json(&self, version: Version) -> Value {
        let mut fields = self.fields.clone();
        fields.insert("cniVersion".to_owned(), version.as_str().into());
        if version.has_ip_version()
            && let Some(Value::Array(items)) = fields.get_mut("ips")
        {
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                if let Some(address) = item.get("address").and_then(network) {
                    let family = if address.is_ipv4() { "4" } else { "6" };
                    item.insert("version".to_owned(), family.into());
                }
            }
        }
        Value::Object(fields)
    }

    fn items(&self, key: &str) -> &[Value] {
        self.fields.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Appends to a list and returns the index. Anything else becomes a list, such as null, which Go writes for an empty one.
    fn push(&mut self, key: &str, item: Value) -> usize {
        if let Some(Value::Array(items)) = self.fields.get_mut(key) {
            items.push(item);
            return items.len() - 1;
        }
        self.fields.insert(key.to_owned(), Value::Array(vec![item]));
        0
    }
}

fn interface(item: &Value) -> Interface {
    let mtu = item.get("mtu").and_then(Value::as_u64).and_then(|mtu| mtu.try_into().ok());
    Interface {
        name: text(item, "name").unwrap_or_default().to_owned(),
        mac: text(item, "mac").and_then(|mac| mac.parse().ok()),
        mtu: mtu.map(Mtu),
        sandbox: text(item, "sandbox").unwrap_or_default().to_owned(),
    }
}

fn ip(item: &Value, interfaces: usize) -> Option<Ip> {
    let index = item.get("interface").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
    Some(Ip {
        address: item.get("address").and_then(network)?,
        gateway: text(item, "gateway").and_then(|gateway| gateway.parse().ok()),
        interface: index.filter(|index| *index < interfaces),
    })
}

fn route(item: &Value) -> Option<Route> {
    let gw = text(item, "gw").and_then(|gw| gw.parse().ok());
    Some(Route { dst: item.get("dst").and_then(network)?, gw })
}

/// An address with its prefix length; without one it is not what the specification means.
fn network(value: &Value) -> Option<IpNetwork> {
    value.as_str().filter(|text| text.contains('/'))?.parse().ok()
}

fn text<'a>(item: &'a Value, key: &str) -> Option<&'a str> {
    item.get(key)?.as_str()
}
