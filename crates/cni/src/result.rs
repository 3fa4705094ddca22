//! What a successful ADD answers: the newest layout, written down in the version of the configuration.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::Serialize;
use serde_json::Value;
use vcn::{MacAddr, Mtu, TableId};

use crate::input::field;
use crate::{Error, PrevResult, Version};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Destination.
    pub dst: IpNetwork,
    /// Next hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Path MTU (this and all below since 1.1.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// Largest TCP segment to announce, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// Metric: lower is preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableId>,
    /// Scope, as rtnetlink numbers it (253 is link).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

/// A resolver's configuration, the same in all versions. All text: `fe80::1%eth0` is a name server too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dns {
    /// Name servers in order of preference.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Search domains in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Resolver options.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// A result in the terms of a version: what that does not know is none, and what is none is left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultDocument<'a> {
    cni_version: &'static str,
    interfaces: Vec<InterfaceDocument<'a>>,
    ips: Vec<IpDocument>,
    routes: Vec<Route>,
    dns: &'a Dns,
}

/// An interface in the terms of a version.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InterfaceDocument<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<MacAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<Mtu>,
    /// Optional, but some decoders insist on it; the specification's word for the host is the empty text.
    sandbox: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket_path: Option<&'a str>,
    #[serde(rename = "pciID", skip_serializing_if = "Option::is_none")]
    pci_id: Option<&'a str>,
}

/// An address in the terms of a version.
#[derive(Serialize)]
pub(crate) struct IpDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    address: IpNetwork,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<usize>,
}

impl AddResult {
    /// The reply: one line of JSON, in the terms of `version`.
    pub fn to_json(&self, version: Version) -> String {
        match self {
            Self::Made(success) => success.to_json(version),
            Self::Passed(previous) => previous.to_json(version).to_string(),
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
    /// As one line of JSON, in the terms of `version`.
    pub fn to_json(&self, version: Version) -> String {
        let document = ResultDocument {
            cni_version: version.as_str(),
            interfaces: self.interfaces.iter().map(|interface| interface.in_terms_of(version)).collect(),
            ips: self.ips.iter().map(|ip| ip.in_terms_of(version)).collect(),
            routes: self.routes.iter().map(|route| route.in_terms_of(version)).collect(),
            dns: &self.dns,
        };
        // Neither of serde_json's two failures, maps with odd keys and writers that fail, can happen here.
        serde_json::to_string(&document).unwrap_or_default()
    }
}

impl Interface {
    pub(crate) fn in_terms_of(&self, version: Version) -> InterfaceDocument<'_> {
        let extended = version.has_extended_results();
        InterfaceDocument {
            name: &self.name,
            mac: self.mac,
            mtu: self.mtu.filter(|_| extended),
            sandbox: self.sandbox.as_deref().unwrap_or_default(),
            socket_path: self.socket_path.as_deref().filter(|_| extended),
            pci_id: self.pci_id.as_deref().filter(|_| extended),
        }
    }
}

impl Ip {
    pub(crate) fn in_terms_of(&self, version: Version) -> IpDocument {
        let Self { address, gateway, interface } = *self;
        IpDocument { version: version.has_ip_version().then(|| family(address.ip())), address, gateway, interface }
    }
}

impl Route {
    /// A route by its destination and next hop alone.
    pub fn new(dst: IpNetwork, gw: Option<IpAddr>) -> Self {
        Self { dst, gw, mtu: None, advmss: None, priority: None, table: None, scope: None }
    }

    pub(crate) fn in_terms_of(&self, version: Version) -> Self {
        if version.has_extended_results() { *self } else { Self::new(self.dst, self.gw) }
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
}

/// The `version` of an address, as versions before 1.0.0 write it.
pub(crate) fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "4" } else { "6" }
}
