//! Pods of our network: by the allocations of this boot, and by their links.

use ipam::{Allocation, BootId, Store};
use vcn::{HOST_LINK_PREFIX, LINK_ALIAS_PREFIX};

use crate::settings::Settings;

/// Named in a message at most.
const SHOWN: usize = 3;

/// What shows pods of our network, for people; empty if there are none.
#[must_use]
pub fn pods(settings: &Settings) -> Vec<String> {
    let allocations = BootId::current().and_then(|boot| Store::new(&settings.state_dir, boot).read());
    let (held, unknown) = match allocations {
        Ok(all) => (all.allocations, None),
        Err(error) => (Vec::new(), Some(format!("reading which pods hold addresses: {error}"))),
    };
    let some: Vec<String> = held.iter().take(SHOWN).map(name).collect();
    let recorded = (!held.is_empty()).then(|| {
        let more = if held.len() > some.len() { ", …" } else { "" };
        format!("{} attachment(s) of this boot hold addresses ({}{more})", held.len(), some.join(", "))
    });
    recorded.into_iter().chain(unknown).chain(links(&held)).collect()
}

/// The pod, if the runtime named it; else the attachment, which contains the container's id.
fn name(held: &Allocation) -> String {
    held.pod.as_ref().map_or_else(|| held.key.to_string(), |pod| format!("{}/{}", pod.namespace, pod.name))
}

/// A pod's link without an allocation: its record is lost.
fn links(held: &[Allocation]) -> Option<String> {
    let links = match netlink::Socket::open().and_then(|mut socket| socket.links()) {
        Ok(links) => links,
        Err(error) => return Some(format!("listing the pods' links: {error}")),
    };
    let of_pod = |link: &&netlink::Link| {
        link.name.as_str().starts_with(HOST_LINK_PREFIX)
            && link.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX))
            && !held.iter().any(|held| held.host_link == link.name)
    };
    let names: Vec<&str> = links.iter().filter(of_pod).map(|link| link.name.as_str()).take(SHOWN).collect();
    (!names.is_empty()).then(|| format!("links of pods are there ({})", names.join(", ")))
}
