//! The end of an attachment, written once: for DEL, for GC, and for an ADD that failed or was killed. The agent uses it,
//! too, for what no DEL came for.
//!
//! ```text
//!   lock ─▶ record ─▶ still due? ─▶ network down ─▶ VNIC's link back? ─┬─ yes ─▶ addresses free, cooldown
//!                                                                      └─ no  ─▶ record and VNIC stay taken
//! ```

use std::net::IpAddr;
use std::time::{Duration, Instant};

use cni::{AttachmentKey, Error};
use datapath::pod::ExtraNetwork;
use datapath::{Object, Place, Places, dismantle, plan, pod};
use ipam::Allocation;

use crate::extra;
use crate::failure::{self, code};
use crate::node::{self, Node};
use crate::report::Report;

/// How long a VNIC's link may take to come back from a namespace that has ended: the kernel takes namespaces apart one after
/// the other, each within some 50 ms.
const RETURN_TIME: Duration = Duration::from_secs(1);

/// How the lock of an attachment is taken, which serializes all that is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The caller has it.
    Locked,
    /// It is waited for.
    Wait,
    /// If another program has it, nothing happens.
    Try,
}

/// What became of an attachment.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// Nothing of it is left. `allocation` is its record, if there was one.
    Freed {
        /// The record that was removed; none if there was none.
        allocation: Option<Box<Allocation>>,
        /// The addresses that it had by the kernel's account; those of the record if there was one.
        addresses: Vec<IpAddr>,
    },
    /// Its network is down, and the VNIC's link is not on the host: another namespace has it. Record and VNIC stay taken until
    /// that namespace ends and the kernel returns the link.
    LinkMissing(Box<Allocation>),
    /// Another program is working on it.
    Busy,
    /// It is not to end, or not any more.
    Spared,
}

/// Ends an attachment whose record `is_due`; that is checked under its lock. The configuration may have changed or be unreadable,
/// the namespace may be gone or be another pod's, and the pools may be missing. So the allocation alone says what to take down,
/// and without an allocation the host link's name does. The addresses are free only when nothing leads to them any more.
///
/// # Errors
/// When something of it is demonstrably still on the host, so that trying again helps. Nothing that a pod can do is such a thing.
pub fn end(
    key: &AttachmentKey,
    node: &Node,
    access: Access,
    is_due: impl FnOnce(Option<&Allocation>) -> bool,
    report: &mut Report,
) -> Result<Ended, Error> {
    let wrap = |error| failure::of_ipam(&error);
    let lock = match access {
        Access::Locked => None,
        Access::Wait => Some(node.store.attachment(key).map_err(wrap)?),
        Access::Try => match node.store.try_attachment(key).map_err(wrap)? {
            None => return Ok(Ended::Busy),
            lock => lock,
        },
    };
    let (known, unreadable) = match recorded(key, node, report) {
        Ok(known) => (known, None),
        Err(error) => (None, Some(error)),
    };
    if !is_due(known.as_ref()) {
        return unreadable.map_or(Ok(Ended::Spared), |error| Err(failure::of_ipam(&error)));
    }
    report.note_some(unreadable.map(|error| error.to_string()));
    report.mark("record");
    let taken_down = take_down(key, known.as_ref(), node, report)?;
    let ended = match (taken_down, known) {
        (TakenDown { link_is_back: false, .. }, Some(allocation)) => {
            note_unreturned(&allocation, node, report);
            Ended::LinkMissing(Box::new(allocation))
        }
        (TakenDown { addresses, .. }, known) => {
            let released = node.release(key, &addresses, report).map_err(wrap)?;
            Ended::Freed { allocation: released.or(known).map(Box::new), addresses }
        }
    };
    report.mark("ipam");
    drop(lock);
    Ok(ended)
}

/// DEL: ends an attachment, whatever is known of it. A VNIC whose link another namespace has stays taken, and the agent reports
/// that: DEL cannot change it, and a pod whose DEL fails is never gone.
///
/// # Errors
/// As [`end`].
pub fn del(key: &AttachmentKey, node: &Node, report: &mut Report) -> Result<(), Error> {
    match end(key, node, Access::Wait, |_| true, report)? {
        Ended::Freed { allocation: Some(allocation), .. } => report.addresses(&allocation.addresses),
        Ended::Freed { allocation: None, addresses } => report.found(&addresses),
        Ended::LinkMissing(allocation) => report.note(link_missing(&allocation)),
        Ended::Busy | Ended::Spared => {}
    }
    Ok(())
}

/// Ends an attachment whose ADD failed with `error`, which stays the first one. If something of the network is still there, the
/// record stays, for the DEL that follows to find it by.
pub fn give_up(key: &AttachmentKey, error: Error, node: &Node, access: Access, report: &mut Report) -> Error {
    match end(key, node, access, |_| true, report) {
        Ok(Ended::LinkMissing(allocation)) => error.with_details(link_missing(&allocation)),
        Ok(Ended::Freed { .. } | Ended::Busy | Ended::Spared) => error,
        Err(left) => error.with_details(left),
    }
}

/// Takes down and frees what killed ADDs left and no DEL came for. An attachment that cannot be taken down keeps its addresses
/// and does not stop the others. The caller holds the lock of `own`.
pub(crate) fn reclaim(node: &Node, own: &AttachmentKey, report: &mut Report) -> Result<(), Error> {
    node.sweep(Some(own), report)?;
    let (held, damaged) = node.store.read_sound().map_err(|error| failure::of_ipam(&error))?;
    if let Some(error) = damaged {
        report.note(error.to_string());
    }
    let is_tentative = |left: Option<&Allocation>| left.is_some_and(|left| left.tentative_until.is_some());
    for key in held.overdue(node.now).map(|overdue| &overdue.key) {
        match end(key, node, Access::Try, is_tentative, report) {
            Ok(Ended::Freed { .. }) => report.note(format!("took down {key}, whose ADD did not finish")),
            Ok(Ended::LinkMissing(_) | Ended::Busy | Ended::Spared) => {}
            Err(error) => report.note(format!("cannot take down {key}, whose ADD did not finish: {error}")),
        }
    }
    Ok(())
}

/// Why a VNIC stays taken, in words.
pub fn link_missing(allocation: &Allocation) -> String {
    let holder = allocation.holder();
    let link = allocation.exclusive.as_ref().map_or_else(String::new, |device| format!("{} ", device.link));
    format!("pod {holder} is gone, and the link {link}of its VNIC is not on the host: another network namespace has it")
}

/// The record of the attachment. An unreadable one must not keep the pod from going: nothing can be handed out from it
/// either, and the host link's name still leads to what there is.
fn recorded(key: &AttachmentKey, node: &Node, report: &mut Report) -> Result<Option<Allocation>, ipam::Error> {
    match node.store.find(key) {
        Err(ipam::Error::Damaged { .. }) => {
            if let Err(error) = node.rebuild_record(node.pools().ok().as_ref(), Some(key), report) {
                report.note(error.to_string());
            }
            node.store.find(key)
        }
        read => read,
    }
}

/// Notes in the record that the VNIC's link is missing. Without that note the record stays, too, and the agent reports nothing.
fn note_unreturned(allocation: &Allocation, node: &Node, report: &mut Report) {
    if allocation.unreturned_since.is_some() {
        return;
    }
    let key = &allocation.key;
    if let Err(error) = node.store.update_for(key, |held| held.note_unreturned(key, node.now)) {
        report.note(error.to_string());
    }
}

/// What remains of a network that was removed.
struct TakenDown {
    /// The addresses that it had: by its record, or without one by routes.
    addresses: Vec<IpAddr>,
    /// Whether the VNIC's link, if the pod had that for itself, can be used again.
    link_is_back: bool,
}

/// Removes an attachment's network. The pod's namespace is entered for an extra interface alone, if it is still the one of ADD:
/// there is a link to bring back, or rules that stay.
fn take_down(
    key: &AttachmentKey,
    allocation: Option<&Allocation>,
    node: &Node,
    report: &mut Report,
) -> Result<TakenDown, Error> {
    let mut places = node.places()?;
    let extra = allocation.and_then(|held| Some((held, extra::network_of(held, node.pools().ok().as_ref())?)));
    let pod_lives = extra.as_ref().is_some_and(|(held, _)| extra::enter_pod(held, &mut places));
    let mut observed = match allocation {
        Some(exclusive) if exclusive.exclusive.is_some() => Vec::new(),
        // The record was written before the network, which was made from it.
        Some(settled) if settled.tentative_until.is_none() => recorded_of(settled, node, &mut places)?,
        // It is unknown how far the ADD got, and whether another pod has the addresses.
        tentative_or_none => match (node::observe(key, tentative_or_none, &mut places), tentative_or_none) {
            // Another attachment has the link name: ADD failed for that, so this attachment has no link.
            (Err(error), None) if error.code == code::LINK_COLLISION => Vec::new(),
            (Err(error), Some(tentative)) if error.code == code::LINK_COLLISION => {
                recorded_of(tentative, node, &mut places)?
            }
            (observed, _) => observed?,
        },
    };
    if let Some((_, network)) = &extra {
        match pod::observe_rules(network, &mut places) {
            Ok(rules) => observed.extend(rules),
            Err(error) => report.note(error.to_string()),
        }
    }
    report.mark("observe");
    let (inside, failures): (Vec<_>, Vec<_>) =
        dismantle(&plan(&[], &observed), &mut places).into_iter().partition(|it| it.step.place == Place::Pod);
    inside.into_iter().for_each(|failure| report.note(format!("{failure}: {}", failure.source)));
    report.mark("network");
    if let Some((first, others)) = failures.split_first() {
        let msg = format!("part of the network of {key} could not be removed; the next DEL retries");
        let error = Error::new(code::LEFT_OVER, msg).caused_by(first);
        return Err(others.iter().fold(error, |error, failure| error.caused_by(failure)));
    }
    let link_is_back = match &extra {
        Some((held, network)) if network.device.is_some() => {
            bring_back(held, network, pod_lives, node, &mut places)? || is_detached(held, node)
        }
        _ => true,
    };
    let recorded = |known: &Allocation| known.addresses.iter().map(|held| held.address).collect();
    Ok(TakenDown { addresses: allocation.map_or_else(|| routed(&observed), recorded), link_is_back })
}

/// Sees to it that the host has a VNIC's link again that a pod had. Returns whether it has. If the ADD did not finish, no process of
/// the pod ran that could have moved the link: then the host had none.
fn bring_back(
    allocation: &Allocation,
    network: &ExtraNetwork,
    pod_lives: bool,
    node: &Node,
    places: &mut Places,
) -> Result<bool, Error> {
    let (begun, finished) = (Instant::now(), allocation.tentative_until.is_none());
    loop {
        let is_back = pod::retrieve(network, finished, places).map_err(|error| {
            let msg = format!("the link of {} cannot be looked for on the host; the next DEL retries", network.name());
            Error::new(code::LEFT_OVER, msg).caused_by(&error)
        })?;
        if is_back || pod_lives || node.is_resident || begun.elapsed() >= RETURN_TIME {
            return Ok(is_back || !finished);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the VNIC itself is gone: then its link never comes back. No pod is given a link that is not the VNIC's, so a mistake here
/// gives nothing away.
fn is_detached(allocation: &Allocation, node: &Node) -> bool {
    node.pools().is_ok_and(|pools| allocation.addresses.iter().all(|held| pools.find(&held.vnic_id).is_none()))
}

/// The objects of an attachment that its record names.
fn recorded_of(allocation: &Allocation, node: &Node, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    // The proxies of a renamed link moved with it; the pools have its new name.
    let renamed = allocation.addresses.iter().any(|held| !places.has_link(&held.vnic_link));
    let pools = if renamed { node.pools().ok() } else { None };
    let network = node::network(allocation, pools.as_ref(), None);
    pod::recorded(&network, places).map_err(|error| failure::of_datapath(&error))
}

/// The addresses that routes lead to.
fn routed(observed: &[(Place, Object)]) -> Vec<IpAddr> {
    let address = |(place, object): &(Place, Object)| match (place, object) {
        (Place::Host, Object::Route(route)) => Some(route.destination.ip()),
        _ => None,
    };
    observed.iter().filter_map(address).collect()
}
