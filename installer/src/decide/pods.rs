//! Which pods run on this node. Those of our network are shown by the allocations of this boot, and by their links.
//!
//! OKE's CNI assigns the same addresses as our plugin and documents its state nowhere, so a takeover does not import them but
//! waits until its pods are gone. Three sources show pods of it or of another network, which forget at different times: its own
//! state, the runtime's cache, and the kernel. One is enough.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::Path;

use ipam::{Allocation, BootId, Store};
use netlink::{Link, RouteFilter, RouteKind, Socket};
use serde_json::Value;
use vcn::{Family, IfName, LINK_ALIAS_PREFIX, PROTOCOL};

use crate::files::{entries, name};
use crate::observed::ConfFile;
use crate::settings::Settings;

/// Named in a message at most.
const SHOWN: usize = 3;

/// The name of OKE's network, if its configuration names no other.
const NETWORK: &str = "oci";

/// What shows a pod of another network, if there is one; or why that cannot be known.
pub(crate) type ForeignPods = Result<Option<String>, String>;

/// Searches for them. If our configuration is installed, pods have our network.
pub(crate) fn foreign_pods(settings: &Settings, conf_files: &[ConfFile]) -> ForeignPods {
    if conf_files.iter().any(ConfFile::is_ours) {
        return Ok(None);
    }
    // OKE's IPAM marks an address as used in this boot: the directory does not outlive one.
    let used = first(&settings.oke_state_dir.join("used"), |_| true);
    let sources = [in_kernel(), used, cached(&settings.cni_cache_dir, conf_files)];
    let found =
        sources.iter().find(|source| matches!(source, Ok(Some(_)))).or(sources.iter().rfind(|source| source.is_err()));
    found.cloned().unwrap_or(Ok(None))
}

/// What the kernel shows of a pod of another network, or why that cannot be known.
pub(crate) fn kernel_shows() -> Option<String> {
    in_kernel().unwrap_or_else(|why| Some(format!("reading {why}")))
}

/// The runtime's cache of a pod in a network of OKE's configurations. It may be left from before a reboot.
fn cached(cache: &Path, conf_files: &[ConfFile]) -> ForeignPods {
    if !cache.is_dir() {
        return Err(format!("{}: there is no such directory", cache.display()));
    }
    let named = |file: &ConfFile| Some(format!("{}-", file.document.get("name").and_then(Value::as_str)?));
    let mut networks: Vec<String> = conf_files.iter().filter(|file| file.is_oke()).filter_map(named).collect();
    networks.push(format!("{NETWORK}-"));
    first(&cache.join("results"), |name| networks.iter().any(|network| name.starts_with(network)))
}

fn first(directory: &Path, counts: impl Fn(&str) -> bool) -> ForeignPods {
    let paths = entries(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let paths: Vec<_> = paths.iter().filter(|path| counts(&name(path))).collect();
    Ok(paths.first().map(|path| match paths.len() - 1 {
        0 => path.display().to_string(),
        more => format!("{} and {more} more", path.display()),
    }))
}

/// A pod as the kernel shows it: a veth into another namespace that belongs to no bridge and that a route to a single address
/// uses. Every pod of OKE's CNI has one for packets to its host. A link of the host has routes to subnets, and a container
/// behind a bridge has the bridge's.
fn in_kernel() -> ForeignPods {
    let look = || -> Result<Option<String>, netlink::Error> {
        let mut socket = Socket::open()?;
        let links: BTreeMap<u32, IfName> =
            socket.links()?.into_iter().filter(leads_elsewhere).map(|link| (link.index, link.name)).collect();
        if links.is_empty() {
            return Ok(None);
        }
        // IPv6 has a route of this kind for an address of the host's own that is without its subnet.
        let own: HashSet<IpAddr> = socket.addresses(None)?.into_iter().map(|held| held.address.ip()).collect();
        for family in Family::ALL {
            for route in socket.routes(&RouteFilter::all(family))? {
                let (to, is_single) = (route.destination.ip(), route.destination.prefix() == family.host_prefix());
                let is_foreign = route.kind == RouteKind::Unicast && route.protocol != PROTOCOL && !own.contains(&to);
                if let (true, true, Some(link)) = (is_single, is_foreign, links.get(&route.oif)) {
                    return Ok(Some(format!("a route to {to} by {link}")));
                }
            }
        }
        Ok(None)
    };
    look().map_err(|error| format!("links and routes: {error}"))
}

fn leads_elsewhere(link: &Link) -> bool {
    let is_alone = link.peer_netns_id.is_some() && link.master.is_none();
    link.kind.as_deref() == Some("veth") && is_alone && !has_our_alias(link)
}

/// What shows pods of our network, for people; empty if there are none.
#[must_use]
pub fn pods(settings: &Settings) -> Vec<String> {
    let mut shown = Vec::new();
    let allocations = BootId::current().and_then(|boot| Store::new(&settings.state_dir, boot).read());
    let held = allocations.map(|all| all.allocations).unwrap_or_else(|error| {
        shown.push(format!("reading which pods hold addresses: {error}"));
        Vec::new()
    });
    if !held.is_empty() {
        let more = if held.len() > SHOWN { ", …" } else { "" };
        let some: Vec<String> = held.iter().take(SHOWN).map(pod_of).collect();
        shown.push(format!("{} attachment(s) of this boot hold addresses ({}{more})", held.len(), some.join(", ")));
    }
    match Socket::open().and_then(|mut socket| socket.links()) {
        Ok(links) => {
            // One without an allocation: its record is lost.
            let is_lost = |link: &&Link| is_of_our_pod(link) && !held.iter().any(|held| held.host_link == link.name);
            let names: Vec<&str> = links.iter().filter(is_lost).map(|link| link.name.as_str()).take(SHOWN).collect();
            shown.extend((!names.is_empty()).then(|| format!("links of pods are there ({})", names.join(", "))));
        }
        Err(error) => shown.push(format!("listing the pods' links: {error}")),
    }
    shown
}

/// Whether it is the host's end of a pod's link.
pub(crate) fn is_of_our_pod(link: &Link) -> bool {
    link.name.is_of_pod() && has_our_alias(link)
}

pub(crate) fn has_our_alias(link: &Link) -> bool {
    link.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX))
}

/// The pod, if the runtime named it; else the attachment, which contains the container's id.
fn pod_of(held: &Allocation) -> String {
    held.pod.as_ref().map_or_else(|| held.key.to_string(), |pod| format!("{}/{}", pod.namespace, pod.name))
}
