//! `prevResult`: what the chain has done so far. It is kept as a document and edited in place, so that fields of other
//! plugins survive; reading ignores unknown fields.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::Serialize;
use serde_json::{Map, Value};
use vcn::{Mtu, TableId};

use crate::result::family;
use crate::{Dns, Interface, Ip, Route, Success, Version};

/// A previous result.
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

    /// The document.
    pub fn raw(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// What can be understood of it. Positions are kept: an interface that cannot be understood is one with an empty
    /// name, an address or route is left out. An index of an interface that does not exist is none.
    pub fn read(&self) -> Success {
        let interfaces: Vec<_> = self.items("interfaces").iter().map(interface).collect();
        let ips = self.items("ips").iter().filter_map(|item| ip(item, interfaces.len())).collect();
        let routes = self.items("routes").iter().filter_map(route).collect();
        Success { interfaces, ips, routes, dns: self.dns() }
    }

    /// Appends an interface and returns its index, for the addresses on it.
    pub fn add_interface(&mut self, interface: &Interface) -> usize {
        self.push("interfaces", &interface.in_terms_of(self.version))
    }

    /// Appends an address.
    pub fn add_ip(&mut self, ip: Ip) {
        self.push("ips", &ip.in_terms_of(self.version));
    }

    /// Appends a route.
    pub fn add_route(&mut self, route: Route) {
        self.push("routes", &route.in_terms_of(self.version));
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
                    item.insert("version".to_owned(), family(address.ip()).into());
                }
            }
        }
        Value::Object(fields)
    }

    fn items(&self, key: &str) -> &[Value] {
        self.fields.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Appends to a list and returns the index; what is no list (null, which Go writes for none) becomes one.
    fn push(&mut self, key: &str, item: &impl Serialize) -> usize {
        // Maps with odd keys alone fail.
        let value = serde_json::to_value(item).unwrap_or_default();
        if let Some(Value::Array(items)) = self.fields.get_mut(key) {
            items.push(value);
            return items.len() - 1;
        }
        self.fields.insert(key.to_owned(), Value::Array(vec![value]));
        0
    }

    fn dns(&self) -> Dns {
        let dns = self.fields.get("dns");
        let list = |key: &str| {
            let items = dns.and_then(|dns| dns.get(key)).and_then(Value::as_array);
            items.map(|items| items.iter().filter_map(Value::as_str).map(str::to_owned).collect()).unwrap_or_default()
        };
        Dns {
            nameservers: list("nameservers"),
            domain: dns.and_then(|dns| text(dns, "domain")),
            search: list("search"),
            options: list("options"),
        }
    }
}

fn interface(item: &Value) -> Interface {
    Interface {
        name: text(item, "name").unwrap_or_default(),
        mac: text(item, "mac").and_then(|mac| mac.parse().ok()),
        mtu: number(item, "mtu").map(Mtu),
        sandbox: text(item, "sandbox"),
        socket_path: text(item, "socketPath"),
        pci_id: text(item, "pciID"),
    }
}

fn ip(item: &Value, interfaces: usize) -> Option<Ip> {
    let index = item.get("interface").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
    Some(Ip {
        address: item.get("address").and_then(network)?,
        gateway: address(item, "gateway"),
        interface: index.filter(|index| *index < interfaces),
    })
}

fn route(item: &Value) -> Option<Route> {
    Some(Route {
        dst: item.get("dst").and_then(network)?,
        gw: address(item, "gw"),
        mtu: number(item, "mtu").map(Mtu),
        advmss: number(item, "advmss"),
        priority: number(item, "priority"),
        table: number(item, "table").map(TableId),
        scope: item.get("scope").and_then(Value::as_u64).and_then(|scope| scope.try_into().ok()),
    })
}

/// An address with its prefix length; without one it is not what the specification means.
fn network(value: &Value) -> Option<IpNetwork> {
    value.as_str().filter(|text| text.contains('/'))?.parse().ok()
}

fn address(item: &Value, key: &str) -> Option<IpAddr> {
    item.get(key)?.as_str()?.parse().ok()
}

/// A text; an empty one says nothing (Go plugins write `"mac": ""`).
fn text(item: &Value, key: &str) -> Option<String> {
    item.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn number(item: &Value, key: &str) -> Option<u32> {
    item.get(key)?.as_u64()?.try_into().ok()
}
