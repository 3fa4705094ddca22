//! Taking an attachment's network down: for DEL, for an ADD that failed, for GC, and for ADDs that were killed.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use cni::{AttachmentKey, Error};
use datapath::pod::ExtraNetwork;
use datapath::{Object, Place, Places, dismantle, plan, pod};
use ipam::Allocation;

use crate::extra;
use crate::failure::{self, code};
use crate::node::{self, Node};
use crate::report::Report;
use crate::state_dir::SYSCTL_ROOT;

/// How long a VNIC's link may take to come back from a namespace that has ended: the kernel takes namespaces apart one after
/// the other, each within some 50 ms.
const RETURN_TIME: Duration = Duration::from_secs(1);

/// Ends one attachment. The configuration may have changed or be unreadable, the namespace may be gone or be another pod's by
/// now, the pools may be missing: the allocation alone says what to take down, and without one the host link's name does. The
/// addresses are free only when nothing leads to them any more.
///
/// # Errors
/// When something of it is demonstrably still there, so that trying again helps.
pub fn del(key: &AttachmentKey, node: &Node, report: &mut Report) -> Result<(), Error> {
    let _lock = node.store.attachment(key).map_err(|error| failure::of_ipam(&error))?;
    let known = recorded(key, node, report);
    report.mark("record");
    let had = take_down(key, known.as_ref(), node, report)?;
    let released = node.release(key, &had, report).map_err(|error| failure::of_ipam(&error))?;
    report.mark("ipam");
    match released.or(known) {
        Some(allocation) => report.addresses(&allocation.addresses),
        None => report.found(&had),
    }
    Ok(())
}

/// The record of the attachment. An unreadable one must not keep the pod from going: nothing can be handed out from it
/// either, and the host link's name still leads to what there is.
fn recorded(key: &AttachmentKey, node: &Node, report: &mut Report) -> Option<Allocation> {
    let mut read = node.store.find(key);
    if matches!(read, Err(ipam::Error::Damaged { .. })) {
        if let Err(error) = node.rebuild_record(node.pools().ok().as_ref(), Some(key), report) {
            report.note(error.to_string());
        }
        read = node.store.find(key);
    }
    read.unwrap_or_else(|error| {
        report.note(error.to_string());
        None
    })
}

/// Removes an attachment's network. Fails only when something is demonstrably still there, so that trying again helps.
/// Answers the addresses that it had: by its record, or without one by routes. The pod's namespace is entered for an extra
/// interface alone, if it is still the one of ADD: there is a link to bring back, or rules that stay.
///
/// # Errors
/// [`code::LEFT_OVER`].
pub fn take_down(
    key: &AttachmentKey,
    allocation: Option<&Allocation>,
    node: &Node,
    report: &mut Report,
) -> Result<Vec<IpAddr>, Error> {
    let mut places = Places::host(Path::new(SYSCTL_ROOT)).map_err(|error| failure::of_host(&error))?.in_haste();
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
        observed.extend(in_the_pod(network, &mut places)?);
    }
    report.mark("observe");
    let failures = dismantle(&plan(&[], &observed), &mut places);
    report.mark("network");
    let Some((first, others)) = failures.split_first() else {
        if let Some((_, network)) = &extra {
            bring_back(network, pod_lives, &mut places, report)?;
        }
        let recorded = |known: &Allocation| known.addresses.iter().map(|held| held.address).collect();
        return Ok(allocation.map_or_else(|| routed(&observed), recorded));
    };
    let error =
        Error::new(code::LEFT_OVER, format!("part of the network of {key} could not be removed; the next DEL retries"));
    Err(others.iter().fold(error.caused_by(first), |error, failure| error.caused_by(failure)))
}

/// Ends an attachment whose ADD failed with `error`, which stays the first one. The address goes back, unless something of the
/// network is still there: then the record must stay, for the DEL that follows to find it by.
pub fn give_up(key: &AttachmentKey, allocation: &Allocation, error: Error, node: &Node, report: &mut Report) -> Error {
    let had = match take_down(key, Some(allocation), node, report) {
        Ok(had) => had,
        Err(left) => return error.with_details(left),
    };
    match node.release(key, &had, report) {
        Ok(_) => error,
        Err(release) => error.with_details("the address could not be given back").caused_by(&release),
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
    for key in held.overdue(node.now).map(|overdue| &overdue.key) {
        match take_back(node, key, report) {
            Ok(true) => report.note(format!("took down {key}, whose ADD did not finish")),
            Ok(false) => {}
            Err(error) => report.note(format!("cannot take down {key}, whose ADD did not finish: {error}")),
        }
    }
    Ok(())
}

/// Ends an ADD that is overdue. Not where it is under way after all, or another verb is at it.
fn take_back(node: &Node, key: &AttachmentKey, report: &mut Report) -> Result<bool, Error> {
    let wrap = |error| failure::of_ipam(&error);
    let Some(_lock) = node.store.try_attachment(key).map_err(wrap)? else { return Ok(false) };
    let left = node.store.find(key).map_err(wrap)?;
    let Some(left) = left.filter(|it| it.tentative_until.is_some()) else { return Ok(false) };
    let had = take_down(key, Some(&left), node, report)?;
    node.release(key, &had, report).map_err(wrap)?;
    Ok(true)
}

/// What of an extra interface does not go with its host end: rules, and the link where that is the VNIC's.
fn in_the_pod(network: &ExtraNetwork, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    let inside = pod::observe_inside(network, places).map_err(|error| failure::of_datapath(&error))?;
    let stays = |object: &Object| network.device.is_some() || matches!(object, Object::Rule(_));
    Ok(inside.into_iter().filter(|object| stays(object)).map(|object| (Place::Pod, object)).collect())
}

/// Sees to it that the host has a VNIC's link again that a pod had, by its old name.
fn bring_back(network: &ExtraNetwork, pod_lives: bool, places: &mut Places, report: &mut Report) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        match pod::give_back(network, places) {
            Err(error) => {
                let msg = format!("link {} is not back on the host; the next DEL retries", network.name());
                return Err(Error::new(code::LEFT_OVER, msg).caused_by(&error));
            }
            Ok(true) => return Ok(()),
            Ok(false) if pod_lives || begun.elapsed() >= RETURN_TIME => {
                report.note(
                    "the host has no link of the VNIC: it was detached, or a process keeps the pod's namespace".into(),
                );
                return Ok(());
            }
            Ok(false) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The objects of an attachment that its record names.
fn recorded_of(allocation: &Allocation, node: &Node, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    // The proxies of a renamed link moved with it; the pools have its new name.
    let renamed = allocation.addresses.iter().any(|held| !places.has_link(&held.vnic_link));
    let pools = if renamed { node.pools().ok() } else { None };
    let network = node::network(node::ends(&allocation.key), allocation, pools.as_ref(), None);
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
