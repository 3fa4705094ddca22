//! Pods of our network: by the allocations of this boot, and by their links.

use ipam::{Allocation, BootId, Store};
use netlink::{Link, Socket};
use vcn::{HOST_LINK_PREFIX, LINK_ALIAS_PREFIX};

use crate::settings::Settings;

/// Named in a message at most.
const SHOWN: usize = 3;

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
        let some: Vec<String> = held.iter().take(SHOWN).map(name).collect();
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
    link.name.as_str().starts_with(HOST_LINK_PREFIX) && has_our_alias(link)
}

pub(crate) fn has_our_alias(link: &Link) -> bool {
    link.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX))
}

/// The pod, if the runtime named it; else the attachment, which contains the container's id.
fn name(held: &Allocation) -> String {
    held.pod.as_ref().map_or_else(|| held.key.to_string(), |pod| format!("{}/{}", pod.namespace, pod.name))
}
