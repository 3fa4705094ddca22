//! What a successful ADD answers: the newest layout, written down in the version of the configuration.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde_json::{Map, Value, json};
use vcn::{MacAddr, Mtu, TableId};

use crate::{Error, PrevResult, Version, field};

/// The answer to ADD.
#[derive(Clone, Debug, PartialEq)]
pub enum AddResult {
    /// What this plugin made.
    Made(Success),
    /// The previous result, passed on, with what this plugin added to it in place.
    Passed(PrevResult),
}

/// A result: interfaces, addresses, routes, resolver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Success {
    /// The interfaces made, those on the host included. Addresses refer to them by index.
    pub interfaces: Vec<Interface>,
    /// The addresses given.
    pub ips: Vec<Ip>,
    /// The routes made in the container.
    pub routes: Vec<Route>,
    /// The resolver.
    pub dns: Dns,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name where it is.
    pub name: String,
    /// Its Ethernet address; none too when a previous plugin wrote something else here (some do).
    pub mac: Option<MacAddr>,
    /// Its MTU (since 1.1.0).
    pub mtu: Option<Mtu>,
    /// The netns it is in, as CNI_NETNS gave it; none on the host.
    pub sandbox: Option<String>,
    /// The socket of a vhost-user interface (since 1.1.0).
    pub socket_path: Option<String>,
    /// The PCI address of its device (since 1.1.0).
    pub pci_id: Option<String>,
}

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Address and prefix length.
    pub address: IpNetwork,
    /// The gateway of its subnet.
    pub gateway: Option<IpAddr>,
    /// Index of its interface. Runtimes tell the pod's address by it.
    pub interface: Option<usize>,
}

/// A route in the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub dst: IpNetwork,
    /// Next hop.
    pub gw: Option<IpAddr>,
    /// Path MTU (this and all below since 1.1.0).
    pub mtu: Option<Mtu>,
    /// Largest TCP segment to announce, in bytes.
    pub advmss: Option<u32>,
    /// Metric: lower is preferred.
    pub priority: Option<u32>,
    /// Table.
    pub table: Option<TableId>,
    /// Scope, as rtnetlink numbers it (253 is link).
    pub scope: Option<u8>,
}

/// A resolver's configuration. All text: `fe80::1%eth0` is a name server too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dns {
    /// Name servers in order of preference.
    pub nameservers: Vec<String>,
    /// The local domain.
    pub domain: Option<String>,
    /// Search domains in order.
    pub search: Vec<String>,
    /// Resolver options.
    pub options: Vec<String>,
}

impl AddResult {
    /// As JSON, in the terms of `version`.
    #[must_use]
    pub fn to_json(&self, version: Version) -> Value {
        match self {
            Self::Made(success) => success.to_json(version),
            Self::Passed(previous) => previous.to_json(version),
        }
    }
}

impl From<Success> for AddResult {
    fn from(success: Success) -> Self {
        Self::Made(success)
    }
}

impl From<PrevResult> for AddResult {
    fn from(previous: PrevResult) -> Self {
        Self::Passed(previous)
    }
}

impl Success {
    /// As JSON, in the terms of `version`: what it does not know is left out.
    #[must_use]
    pub fn to_json(&self, version: Version) -> Value {
        json!({
            "cniVersion": version.as_str(),
            "interfaces": self.interfaces.iter().map(|interface| interface.to_json(version)).collect::<Vec<_>>(),
            "ips": self.ips.iter().map(|ip| ip.to_json(version)).collect::<Vec<_>>(),
            "routes": self.routes.iter().map(|route| route.to_json(version)).collect::<Vec<_>>(),
            "dns": self.dns.to_json(),
        })
    }
}

impl Interface {
    /// As JSON, in the terms of `version`.
    pub(crate) fn to_json(&self, version: Version) -> Value {
        let mut object = Object::default();
        object.put("name", Some(self.name.as_str()));
        object.put("mac", self.mac.map(|mac| mac.to_string()));
        if version.has_extended_results() {
            object.put("mtu", self.mtu.map(|mtu| mtu.0));
        }
        // Optional, but some decoders insist on it; the specification's word for the host is the empty text.
        object.put("sandbox", Some(self.sandbox.as_deref().unwrap_or_default()));
        if version.has_extended_results() {
            object.put("socketPath", self.socket_path.as_deref());
            object.put("pciID", self.pci_id.as_deref());
        }
        object.done()
    }
}

impl Ip {
    /// As JSON, in the terms of `version`.
    pub(crate) fn to_json(self, version: Version) -> Value {
        let mut object = Object::default();
        object.put("version", version.has_ip_version().then(|| family(self.address.ip())));
        object.put("address", Some(self.address.to_string()));
        object.put("gateway", self.gateway.map(|gateway| gateway.to_string()));
        object.put("interface", self.interface);
        object.done()
    }
}

impl Route {
    /// A route by its destination and next hop alone.
    #[must_use]
    pub fn new(dst: IpNetwork, gw: Option<IpAddr>) -> Self {
        Self { dst, gw, mtu: None, advmss: None, priority: None, table: None, scope: None }
    }

    /// As JSON, in the terms of `version`.
    pub(crate) fn to_json(self, version: Version) -> Value {
        let mut object = Object::default();
        object.put("dst", Some(self.dst.to_string()));
        object.put("gw", self.gw.map(|gw| gw.to_string()));
        if version.has_extended_results() {
            object.put("mtu", self.mtu.map(|mtu| mtu.0));
            object.put("advmss", self.advmss);
            object.put("priority", self.priority);
            object.put("table", self.table.map(|table| table.0));
            object.put("scope", self.scope);
        }
        object.done()
    }
}

impl Dns {
    /// The `dns` of a configuration.
    pub(crate) fn read(dns: Option<&Value>) -> Result<Self, Error> {
        let Some(dns) = field::object("dns", dns)? else { return Ok(Self::default()) };
        let list = |key: &str| match dns.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(value) => field::decode(&format!("dns.{key}"), value),
        };
        let domain = field::string("dns.domain", dns.get("domain"))?.map(str::to_owned);
        Ok(Self { nameservers: list("nameservers")?, domain, search: list("search")?, options: list("options")? })
    }

    /// As JSON; the same in all versions.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = Object::default();
        let list = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
        object.put("nameservers", list(&self.nameservers));
        object.put("domain", self.domain.as_deref());
        object.put("search", list(&self.search));
        object.put("options", list(&self.options));
        object.done()
    }
}

/// The `version` of an address, as versions before 1.0.0 write it.
pub(crate) fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "4" } else { "6" }
}

/// An object under construction: what is none is left out.
#[derive(Default)]
struct Object(Map<String, Value>);

impl Object {
    fn put(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.insert(key.to_owned(), value.into());
        }
    }

    fn done(self) -> Value {
        Value::Object(self.0)
    }
}
