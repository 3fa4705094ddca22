//! Pods that live by our network: by what is on record of this boot, and by their links.

use ipam::{BootId, Store};
use vcn::{HOST_LINK_PREFIX, LINK_ALIAS_PREFIX};

use crate::Settings;

/// What shows that pods live by our network, for people; nothing where none does.
#[must_use]
pub fn pods(settings: &Settings) -> Vec<String> {
    let allocations = BootId::current().and_then(|boot| Store::new(&settings.state_dir, boot).read());
    let recorded = match allocations {
        Ok(all) if all.allocations.is_empty() => None,
        Ok(all) => {
            let some: Vec<String> = all.allocations.iter().take(3).map(|held| held.key.to_string()).collect();
            Some(format!(
                "{} attachment(s) of this boot hold addresses ({}{})",
                all.allocations.len(),
                some.join(", "),
                if all.allocations.len() > some.len() { ", …" } else { "" },
            ))
        }
        Err(error) => Some(format!("whether pods hold addresses cannot be told: {error}")),
    };
    recorded.into_iter().chain(links()).collect()
}

/// Pods' links whose record is lost still carry pods.
fn links() -> Option<String> {
    let links = match netlink::Socket::open().and_then(|mut socket| socket.links()) {
        Ok(links) => links,
        Err(error) => return Some(format!("whether pods' links are there cannot be told: {error}")),
    };
    let of_pod = |link: &&netlink::Link| {
        link.name.as_str().starts_with(HOST_LINK_PREFIX)
            && link.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX))
    };
    let names: Vec<&str> = links.iter().filter(of_pod).map(|link| link.name.as_str()).take(3).collect();
    (!names.is_empty()).then(|| format!("links of pods are there ({})", names.join(", ")))
}
