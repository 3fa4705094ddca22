//! The link of a VNIC that a pod has for itself: what identifies it there, and its way back to the host. A pod with `NET_ADMIN` may
//! have renamed it, made another of its name, removed it, or moved it to another namespace.

use netlink::{Link, LinkKind, NewLink, Socket};
use vcn::{ExclusiveLink, LinkIdentity, VlanTag};

use super::ExtraNetwork;
use crate::error::during;
use crate::{Error, Places, apply};

/// What identifies the link in the pod, right after it was made or moved there.
///
/// # Errors
/// [`Error::Observe`] when the pod has no such link.
pub fn identify(network: &ExtraNetwork, places: &mut Places) -> Result<Option<LinkIdentity>, Error> {
    let (Some(device), Some(pod)) = (&network.device, &mut places.pod) else { return Ok(None) };
    let device = ExclusiveLink { identity: None, ..device.clone() };
    let links = pod.socket.links().map_err(during("the pod's network"))?;
    Ok(Link::recorded(links, &device).as_ref().map(Link::identity))
}

/// Takes the link back from the pod, if a pod is in `places` and has it, and gives it everything again that it had on the host.
/// Returns whether the VNIC can be used again: the host has its link, or if that was a VLAN link, no namespace has it. If the ADD
/// has not `finished`, a link on the host without a sign of the pod was never in it, and stays as it is.
///
/// # Errors
/// [`Error::Observe`] when the host's kernel does not answer.
pub fn retrieve(network: &ExtraNetwork, finished: bool, places: &mut Places) -> Result<bool, Error> {
    let Some(device) = &network.device else { return Ok(true) };
    let was_there = apply::take_from_pod(device, places);
    let during = during(format!("where link {} is", device.link));
    let is_back = match device.vlan {
        Some(_) if !finished => Ok(true),
        // Also if one was there: the pod may have made that, with this tag and index, on a link of its own.
        Some(tag) => is_tag_free(device, tag, network, &mut places.host),
        None => {
            let ends = &network.pod.ends;
            let is_marked = |link: &Link| link.alias.as_ref() == Some(&ends.alias) || link.name == ends.pod;
            apply::restore(device, &mut places.host, |link| finished || was_there || is_marked(link))
        }
    };
    is_back.map_err(during)
}

/// Whether no other namespace has the VLAN link. The host cannot see those, but the kernel makes no second one of a tag on a port.
fn is_tag_free(
    device: &ExclusiveLink,
    tag: VlanTag,
    network: &ExtraNetwork,
    host: &mut Socket,
) -> netlink::Result<bool> {
    let port = match host.index_of(&device.link) {
        Err(error) if error.is_not_found() => return Ok(true),
        port => port?,
    };
    let has_tag = |link: &Link| link.vlan == Some(tag) && link.parent == Some(port);
    if let Some(found) = host.links()?.into_iter().find(has_tag) {
        // A pod with `NET_ADMIN` can move links to the host: its own interface's peer gives it a number for that namespace.
        let is_pods = match &found.alias {
            Some(alias) => *alias == network.pod.ends.alias,
            None => found.mac == Some(device.mac),
        };
        // A run was killed between the two calls below.
        let is_probe = found.name == network.pod.ends.host;
        return if is_pods || is_probe { host.delete_link(found.index).map(|()| true) } else { Ok(true) };
    }
    // The attachment has no host end, so a link of this name is another program's.
    let name = &network.pod.ends.host;
    let probe = NewLink::new(name.clone(), LinkKind::Vlan { parent: port, tag });
    let mut added = host.add_link(&probe);
    if added.as_ref().is_err_and(netlink::Error::is_already_exists) && host.delete_link_named(name).is_ok() {
        added = host.add_link(&probe);
    }
    match added {
        Ok(()) => host.delete_link_named(name).map(|()| true),
        Err(error) => Ok(!error.is_already_exists()),
    }
}
