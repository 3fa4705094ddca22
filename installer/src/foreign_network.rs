//! What the node shows of another program's pod network: its configuration, its binaries, and the addresses that its IPAM plugin
//! has given out. Facts only: this module cannot know whether pods start with it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnetwork::IpNetwork;
use netlink::Socket;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vcn::Family;

use crate::error::Error;
use crate::files::{entries, name};
use crate::libcni::kind;
use crate::observed::{ConfFile, Fault, conf_files, missing};
use crate::settings::Settings;

/// The IPAM plugin whose files are known: an empty file per address, named by it, in a folder per network.
const HOST_LOCAL: &str = "host-local";
/// Where it keeps them below the runtime's directory, unless `dataDir` names another place.
const NETWORKS: &str = "networks";
/// The bridge of the plugins `bridge` and `flannel`, unless their configuration names another.
const BRIDGE: &str = "cni0";
/// The largest number of ranges that are read from a configuration.
const RANGES_MAX: usize = 16;

/// A pod network of another program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignNetwork {
    /// The file of its configuration: the first by name that can give pods a network, which is the runtime's choice too.
    pub file: String,
    /// The name of the network, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The plugins of its chain, in order.
    pub plugins: Vec<ForeignPlugin>,
    /// Why no pod can start with the file, if a reason is visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Its addresses, if files that can be read from here show them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<AddressUse>,
}

/// A plugin of another network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignPlugin {
    /// Its type, which is its binary's name.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether its binary is there.
    pub installed: bool,
}

/// How many addresses a network has given out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressUse {
    /// The folder whose files show it.
    pub directory: PathBuf,
    /// The number of addresses in use.
    pub held: usize,
    /// Free IPv4 addresses, if the ranges are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
}

/// An IPv4 range of addresses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    gateway: u32,
}

/// The pod network of another program that the runtime uses; `None` if there is no configuration of one.
///
/// # Errors
/// When the runtime's directory cannot be read.
pub fn foreign_network(settings: &Settings) -> Result<Option<ForeignNetwork>, Error> {
    let files = conf_files(&settings.cni_conf_dir)?;
    let others = || files.iter().filter(|file| !file.is_ours());
    let usable = others().find(|file| file.may_give_a_network());
    let Some(file) = usable.or_else(|| others().find(|file| file.fault.is_some())) else { return Ok(None) };
    let missing = missing(settings, file);
    let plugins = file
        .kinds()
        .map(|kind| ForeignPlugin { kind: kind.to_owned(), installed: !missing.iter().any(|missing| missing == kind) });
    let network = file.document.get("name").and_then(Value::as_str).map(str::to_owned);
    Ok(Some(ForeignNetwork {
        file: file.name.clone(),
        plugins: plugins.collect(),
        fault: file.fault.as_ref().map(|(Fault::Refused(why) | Fault::Unread(why))| why.clone()),
        addresses: network.as_deref().and_then(|network| addresses(settings, file, network)),
        network,
    }))
}

/// The addresses of a network whose IPAM plugin is host-local, also as the delegate of Flannel.
fn addresses(settings: &Settings, file: &ConfFile, network: &str) -> Option<AddressUse> {
    // A name with a slash would lead elsewhere.
    if network.contains('/') || network.starts_with('.') {
        return None;
    }
    let plugin = file.plugins.iter().find(|plugin| is_flannel(plugin) || ipam(plugin).is_some())?;
    let data = ipam(plugin).and_then(|ipam| ipam.get("dataDir")).and_then(Value::as_str).map(PathBuf::from);
    let directory = data.unwrap_or_else(|| settings.cni_cache_dir.join(NETWORKS)).join(network);
    if !directory.is_dir() {
        return None;
    }
    let held = held(&directory).ok()?;
    let ranges = configured(plugin).or_else(|| of_bridge(plugin)).unwrap_or_default();
    Some(AddressUse { free: free(&ranges, &held), held: held.len(), directory })
}

fn is_flannel(plugin: &Value) -> bool {
    kind(plugin) == Some("flannel")
}

/// The configuration of host-local, if the plugin uses that.
fn ipam(plugin: &Value) -> Option<&Value> {
    plugin.get("ipam").filter(|ipam| kind(ipam) == Some(HOST_LOCAL))
}

/// The addresses that the files of a folder are named by. The folder has other files too.
fn held(directory: &Path) -> std::io::Result<Vec<IpAddr>> {
    Ok(entries(directory)?.iter().filter_map(|path| name(path).parse().ok()).collect())
}

/// The IPv4 ranges of a configuration of host-local.
fn configured(plugin: &Value) -> Option<Vec<Range>> {
    let ipam = ipam(plugin)?;
    let sets = ipam.get("ranges").and_then(Value::as_array).into_iter().flatten();
    let listed = sets.filter_map(Value::as_array).flatten().take(RANGES_MAX);
    let ranges: Vec<Range> = listed.chain([ipam]).filter_map(range).collect();
    (!ranges.is_empty()).then_some(ranges)
}

fn range(at: &Value) -> Option<Range> {
    let IpNetwork::V4(subnet) = at.get("subnet")?.as_str()?.parse().ok()? else { return None };
    let address = |key: &str| at.get(key)?.as_str()?.parse::<std::net::Ipv4Addr>().ok().map(u32::from);
    let whole = whole(IpNetwork::V4(subnet))?;
    Some(Range {
        first: address("rangeStart").unwrap_or(whole.first),
        last: address("rangeEnd").unwrap_or(whole.last),
        gateway: address("gateway").unwrap_or(whole.gateway),
    })
}

/// The host addresses of a subnet. The first is the gateway's.
fn whole(subnet: IpNetwork) -> Option<Range> {
    let IpNetwork::V4(subnet) = subnet else { return None };
    let [network, broadcast] = [subnet.network(), subnet.broadcast()].map(u32::from);
    let first = network.checked_add(1)?;
    Some(Range { first, last: broadcast.checked_sub(1)?, gateway: first })
}

/// The subnet of the bridge: Flannel's daemon chooses it, and its configuration does not name it.
fn of_bridge(plugin: &Value) -> Option<Vec<Range>> {
    let bridge = plugin.get("bridge").or_else(|| plugin.get("delegate")?.get("bridge")).and_then(Value::as_str);
    let bridge = bridge.unwrap_or(BRIDGE).parse().ok()?;
    let mut socket = Socket::open().ok()?;
    let link = socket.link(&bridge).ok()?;
    let held = socket.addresses(Some(link.index)).ok()?;
    let subnets = held.into_iter().filter(|held| Family::of(held.address.ip()) == Family::Ipv4);
    Some(subnets.filter_map(|held| whole(held.address)).collect())
}

/// The free addresses of the ranges; `None` if there are no ranges.
fn free(ranges: &[Range], held: &[IpAddr]) -> Option<u64> {
    let contains = |range: &Range, address: u32| (range.first..=range.last).contains(&address);
    let size = |range: &Range| {
        let all = u64::from(range.last).saturating_sub(u64::from(range.first)) + 1;
        all - u64::from(contains(range, range.gateway))
    };
    let valid: Vec<&Range> = ranges.iter().filter(|range| range.first <= range.last).collect();
    let used = held.iter().filter(|address| match address {
        IpAddr::V4(address) => valid.iter().any(|range| contains(range, u32::from(*address))),
        IpAddr::V6(_) => false,
    });
    let total: u64 = valid.iter().map(|range| size(range)).sum();
    (!valid.is_empty()).then(|| total.saturating_sub(used.count() as u64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn free_of(ipam: Value, held: &[&str]) -> Option<u64> {
        let plugin = json!({ "type": "bridge", "ipam": ipam });
        let held: Vec<IpAddr> = held.iter().map(|address| address.parse().unwrap()).collect();
        free(&configured(&plugin).unwrap_or_default(), &held)
    }

    #[test]
    fn free_addresses_are_those_of_the_ranges_without_the_gateway() {
        let of = |subnet: &str| json!({ "type": "host-local", "subnet": subnet });
        assert_eq!(free_of(of("10.244.1.0/24"), &[]), Some(253));
        assert_eq!(free_of(of("10.244.1.0/24"), &["10.244.1.2", "10.244.1.3", "fd00::2", "10.9.9.9"]), Some(251));
        let part = json!({ "type": "host-local", "ranges": [[{ "subnet": "10.1.0.0/16", "rangeStart": "10.1.0.20",
            "rangeEnd": "10.1.0.29" }], [{ "subnet": "fd00::/64" }]] });
        assert_eq!(free_of(part, &["10.1.0.20"]), Some(9));
        let reversed =
            json!({ "type": "host-local", "subnet": "10.1.0.0/16", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.1" });
        for nothing in [of("fd00::/64"), of("x"), of("10.0.0.0/32"), reversed, json!({ "type": "dhcp" }), json!(7)] {
            assert_eq!(free_of(nothing.clone(), &[]), None, "{nothing}");
        }
    }
}
