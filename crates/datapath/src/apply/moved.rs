//! A link that hardware made, between the host's namespace and a pod's. The kernel moves it first and renames it then, so a
//! name that is taken stops the second half alone: each move is completed or taken back here.
//!
//! What comes back from a pod is what a pod made of it, so it is found by its identity, and gets everything again that it had.

use netlink::{Link, LinkChange, Result, Socket};
use vcn::{ExclusiveLink, IfName, MacAddr, RETURNED_LINK_PREFIX};

use crate::places::PodPlace;
use crate::{LinkSpec, Places};

/// How often a link is moved that processes of the pod keep changing.
const ATTEMPTS: usize = 3;

/// Moves the host's link of `device` into the pod. On failure it is on the host again.
pub(super) fn into_pod(link: &LinkSpec, device: &ExclusiveLink, places: &mut Places) -> Result<()> {
    let Places { host, pod: Some(pod), .. } = places else { return Ok(()) };
    let device = &unidentified(device);
    let index = host.index_of(&device.link)?;
    let moved = host.change_link(index, &[LinkChange::Netns(&pod.netns), LinkChange::Rename(link.name.clone())]);
    let finished = moved.and_then(|()| {
        let changes = super::changes(&LinkSpec { mac: None, ..link.clone() });
        pod.socket.change_link_named(&link.name, &changes)
    });
    if finished.is_err() {
        // It may have arrived under its old name.
        let was_there = take_from_pod(device, places);
        let _ = restore(device, &mut places.host, |_| was_there);
    }
    finished
}

/// Moves a link of the pod back to the host.
pub(super) fn to_host(link: &LinkSpec, device: &ExclusiveLink, places: &mut Places) -> Result<()> {
    let Some(pod) = &mut places.pod else { return Ok(()) };
    let there = pod.socket.link(&link.name)?;
    let device = &unidentified(device);
    if there.is_recorded(device) {
        send_home(there, device, pod)?;
        restore(device, &mut places.host, |_| true)?;
    }
    Ok(())
}

/// Takes the link of `device` out of the pod, if it is there: to the host, or if it is a VLAN link, away. Returns whether it was
/// there and is gone.
pub(crate) fn take_from_pod(device: &ExclusiveLink, places: &mut Places) -> bool {
    let Some(pod) = &mut places.pod else { return false };
    // Processes of the pod may do what they can that this fails.
    let Ok(links) = pod.socket.links() else { return false };
    let Some(there) = Link::recorded(links, device) else { return false };
    match device.vlan {
        Some(_) => pod.socket.delete_link(there.index).is_ok(),
        None => send_home(there, device, pod).is_ok(),
    }
}

/// Sends a link to the host under its name there, or [`returned_name`], or any. An alternative name that the host has would
/// keep it here.
fn send_home(mut there: Link, device: &ExclusiveLink, pod: &mut PodPlace) -> Result<()> {
    let mut moved = Ok(());
    for _ in 0..ATTEMPTS {
        let _ = pod.socket.delete_altnames(there.index);
        if there.mac != Some(device.mac) {
            let _ = pod.socket.change_link(there.index, &[LinkChange::Down]);
            let _ = pod.socket.change_link(there.index, &[LinkChange::Mac(device.mac)]);
        }
        for name in names(device).map(LinkChange::Rename).chain([LinkChange::RenameFree]) {
            moved = pod.socket.change_link(there.index, &[LinkChange::Home(&pod.home), name]);
            // Refused for its name, it may have moved all the same, under that which it had here. Another link may have its index
            // by now.
            match pod.socket.link_at(there.index) {
                Ok(found) if moved.is_err() && found.is_recorded(device) => there = found,
                _ => return Ok(()),
            }
        }
    }
    moved
}

/// Gives the link of `device` on the host everything again that it had before a pod had it, if it `was_in_pod`: its name, or
/// [`returned_name`] if that is taken. Returns whether the host has the link. What the driver refuses stays as it is.
pub(crate) fn restore(
    device: &ExclusiveLink,
    host: &mut Socket,
    was_in_pod: impl FnOnce(&Link) -> bool,
) -> Result<bool> {
    let links = host.links()?;
    let Some(link) = Link::returned(&links, device, &device.kind) else { return Ok(false) };
    if !was_in_pod(link) {
        return Ok(true);
    }
    let settings = device.settings.unwrap_or_default();
    // Kernels before 6.2 rename no link that is up, and many drivers change no address then.
    if link.name != device.link || link.mac != Some(device.mac) {
        host.change_link(link.index, &[LinkChange::Down])?;
    }
    let _ = host.delete_altnames(link.index);
    if link.name != device.link {
        let _ = names(device).find(|name| host.change_link(link.index, &[LinkChange::Rename(name.clone())]).is_ok());
    }
    for change in [
        LinkChange::Mac(device.mac),
        LinkChange::PlainReception,
        LinkChange::Group(settings.group),
        LinkChange::QueueLength(settings.queue_length),
        LinkChange::Mtu(settings.mtu),
    ] {
        // A driver may refuse an address although it is the one it has.
        if !matches!(change, LinkChange::Mac(mac) if link.mac == Some(mac)) {
            let _ = host.change_link(link.index, &[change]);
        }
    }
    host.change_link(link.index, &[LinkChange::Alias(String::new())])?;
    Ok(true)
}

/// The link before anything is known of it in the pod: a move gives it another index where another link has its own.
fn unidentified(device: &ExclusiveLink) -> ExclusiveLink {
    ExclusiveLink { identity: None, ..device.clone() }
}

/// Its names on the host, in the order to try.
fn names(device: &ExclusiveLink) -> impl Iterator<Item = IfName> {
    [Some(device.link.clone()), returned_name(device.mac)].into_iter().flatten()
}

/// Our name for a VNIC's link: 14 bytes.
fn returned_name(MacAddr(bytes): MacAddr) -> Option<IfName> {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    IfName::new(format!("{RETURNED_LINK_PREFIX}{digits}")).ok()
}
