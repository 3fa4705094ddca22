//! A link that hardware made, between the host's namespace and a pod's. The kernel moves it first and renames it then, so a
//! name that is taken stops the second half alone: each move is completed or taken back here.

use netlink::{LinkChange, Result, Socket};
use vcn::{IfName, MacAddr, RETURNED_LINK_PREFIX};

use crate::places::PodPlace;
use crate::{LinkSpec, Places};

/// Moves the host's link `from` into the pod. On failure it is on the host again.
pub(super) fn into_pod(link: &LinkSpec, from: &IfName, places: &mut Places) -> Result<()> {
    let Places { host, pod: Some(pod), .. } = places else { return Ok(()) };
    let index = host.index_of(from)?;
    let moved = host.change_link(index, &[LinkChange::Netns(&pod.netns), LinkChange::Rename(link.name.clone())]);
    let finished = moved.and_then(|()| {
        let changes = super::changes(&LinkSpec { mac: None, ..link.clone() });
        pod.socket.change_link_named(&link.name, &changes)
    });
    if finished.is_err() {
        // It may have arrived under its old name.
        for name in [&link.name, from] {
            let _ = move_back(&LinkSpec { name: name.clone(), ..link.clone() }, from, host, pod);
        }
    }
    finished
}

/// Moves a link of the pod back to the host, under its old name where that is free.
pub(super) fn to_host(link: &LinkSpec, from: &IfName, places: &mut Places) -> Result<()> {
    let Places { host, pod: Some(pod), .. } = places else { return Ok(()) };
    move_back(link, from, host, pod)
}

fn move_back(link: &LinkSpec, to: &IfName, host: &mut Socket, pod: &mut PodPlace) -> Result<()> {
    let there = pod.socket.link(&link.name)?;
    if there.mac != link.mac {
        return Ok(());
    }
    let mut moved = Ok(());
    for name in [Some(to.clone()), there.mac.and_then(returned_name)].into_iter().flatten() {
        moved = pod.socket.change_link(there.index, &[LinkChange::Home(&pod.home), LinkChange::Rename(name)]);
        // Refused for its name, it may have moved under the one that it had in the pod.
        if !moved.as_ref().is_err_and(netlink::Error::is_already_exists) || pod.socket.link(&link.name).is_err() {
            break;
        }
    }
    let arrived = host.links()?.into_iter().find(|found| found.mac == there.mac && found.alias == there.alias);
    arrived.map_or(moved, |found| give_back(&found, to, host))
}

/// Gives a link on the host its name again, or if another link has that, [`returned_name`]; and removes our alias.
pub(crate) fn give_back(link: &netlink::Link, to: &IfName, host: &mut Socket) -> Result<()> {
    let mut rename = |name: &IfName| match link.name == *name {
        true => Ok(()),
        // Kernels before 6.2 rename no link that is up.
        false => host
            .change_link(link.index, &[LinkChange::Down])
            .and_then(|()| host.change_link(link.index, &[LinkChange::Rename(name.clone())])),
    };
    match (rename(to), link.mac.and_then(returned_name)) {
        (Err(error), Some(name)) if error.is_already_exists() => rename(&name)?,
        (renamed, _) => renamed?,
    }
    host.change_link(link.index, &[LinkChange::Alias(String::new())])
}

/// Our name for a VNIC's link: 14 bytes.
fn returned_name(MacAddr(bytes): MacAddr) -> Option<IfName> {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    IfName::new(format!("{RETURNED_LINK_PREFIX}{digits}")).ok()
}
