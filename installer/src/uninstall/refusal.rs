//! Why a node is not to be uninstalled now: pods that live by our network, and an agent that would put everything back.

use std::os::unix::net::UnixStream;

use ipam::{BootId, Store};
use vcn::{HOST_LINK_PREFIX, LINK_ALIAS_PREFIX};

use crate::Settings;

/// The agent's socket, in the state directory.
const AGENT: &str = "agent.sock";

/// All reasons, for people.
pub(super) fn refusals(settings: &Settings) -> Vec<String> {
    let mut refusals = Vec::new();
    if UnixStream::connect(settings.state_dir.join(AGENT)).is_ok() {
        refusals
            .push("the node agent runs and would put everything back: stop it first (delete its DaemonSet)".to_owned());
    }
    let allocations = BootId::current().and_then(|boot| Store::new(&settings.state_dir, boot).read());
    match allocations {
        Ok(all) if all.allocations.is_empty() => {}
        Ok(all) => {
            let some: Vec<String> = all.allocations.iter().take(3).map(|held| held.key.to_string()).collect();
            refusals.push(format!(
                "{} attachment(s) of this boot hold addresses ({}{}): drain the node, or lose their network with --force",
                all.allocations.len(),
                some.join(", "),
                if all.allocations.len() > some.len() { ", …" } else { "" },
            ));
        }
        Err(error) => refusals.push(format!("whether pods hold addresses cannot be told: {error}")),
    }
    refusals.extend(links());
    refusals
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
    (!names.is_empty()).then(|| format!("links of pods are there ({}): drain the node", names.join(", ")))
}
