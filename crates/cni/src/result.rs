//! What a successful ADD answers: the newest layout, written down in the version of the configuration.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::Serialize;
use serde_json::{Value, json};
use vcn::{MacAddr, Mtu};

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
    /// The addresses that the interfaces got.
    pub ips: Vec<Ip>,
    /// The routes made in the container.
    pub routes: Vec<Route>,
    /// The settings of the container's resolver.
    pub dns: Dns,
}

/// An interface of the container or of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its name where it is.
    pub name: String,
    /// Its Ethernet address; none too when a previous plugin wrote something else here (some do).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Its MTU (since 1.1.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// The netns it is in, as CNI_NETNS gave it; empty on the host. Optional, but some decoders insist on it.
    pub sandbox: String,
}

/// An address with its interface and gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Ip {
    /// Address and prefix length.
    pub address: IpNetwork,
    /// The gateway of its subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Index of its interface. Runtimes tell the pod's address by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
}

/// A route in the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// The network to which the route leads.
    pub dst: IpNetwork,
    /// The next hop; none for a network on the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

/// A resolver's configuration, the same in all versions. All text: `fe80::1%eth0` is a name server too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dns {
    /// Name servers in order of preference.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain, for short host names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Search domains in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver, such as `ndots:5`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
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
        let Self { interfaces, ips, routes, dns } = self;
        let fields = [
            ("cniVersion", version.as_str().into()),
            ("interfaces", json!([])),
            ("ips", json!(ips)),
            ("routes", json!(routes)),
            ("dns", json!(dns)),
        ];
        let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let mut document = PrevResult::of(version, &fields);
        for interface in interfaces {
            document.add_interface(interface);
        }
        document.to_json(version).to_string()
    }
}

impl Dns {
    /// The `dns` of a configuration.
    pub(crate) fn read(dns: Option<&Value>) -> Result<Self, Error> {
        let Some(dns) = field::object("dns", dns)? else { return Ok(Self::default()) };
        let list = |key: &str| field::strings(&format!("dns.{key}"), dns.get(key));
        let domain = field::string("dns.domain", dns.get("domain"))?.map(str::to_owned);
        Ok(Self { nameservers: list("nameservers")?, domain, search: list("search")?, options: list("options")? })
    }
}
