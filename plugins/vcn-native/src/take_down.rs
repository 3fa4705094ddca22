//! Taking an attachment's network down: for DEL, for an ADD that failed, for GC, and for ADDs that were killed.

use std::net::IpAddr;
use std::path::Path;

use cni::{AttachmentKey, Error};
use datapath::{Object, Place, Places, dismantle, plan, pod};
use ipam::Allocation;

use crate::conf::{Conf, SYSCTL_ROOT};
use crate::failure::{self, code};
use crate::node::{self, Node};
use crate::report::Report;

/// Removes an attachment's network and returns the addresses it had: those of its record, or without one those of its routes.
/// Fails only when something is still there, so that a retry helps.
pub(crate) fn take_down(
    key: &AttachmentKey,
    allocation: Option<&Allocation>,
    node: &Node<'_>,
    report: &mut Report,
) -> Result<Vec<IpAddr>, Error> {
    let mut places = Places::host(Path::new(SYSCTL_ROOT)).map_err(|error| failure::of_host(&error))?.in_haste();
    let observed = match allocation {
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
    report.mark("observe");
    let failures = dismantle(&plan(&[], &observed), &mut places);
    report.mark("network");
    let Some((first, others)) = failures.split_first() else {
        let recorded = |known: &Allocation| known.addresses.iter().map(|held| held.address).collect();
        return Ok(allocation.map_or_else(|| routed(&observed), recorded));
    };
    let error = Error::new(code::LEFT_OVER, format!("{key} is not wholly taken down; the next DEL retries"));
    Err(others.iter().fold(error.caused_by(first), |error, failure| error.caused_by(failure)))
}

/// The objects of an attachment that its record names.
fn recorded_of(allocation: &Allocation, node: &Node<'_>, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    // The proxies of a renamed link moved with it; the pools have its new name.
    let renamed = allocation.addresses.iter().any(|held| !places.has_link(&held.vnic_link));
    let pools = if renamed { node.pools().ok() } else { None };
    let network = node::network(node::ends(&allocation.key), allocation, pools.as_ref(), &Conf::default());
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

/// Takes down and frees what killed ADDs left and no DEL came for. An attachment that cannot be taken down keeps its addresses
/// and does not stop the others. The caller holds the lock of `own`.
pub(crate) fn reclaim(node: &Node<'_>, own: &AttachmentKey, report: &mut Report) -> Result<(), Error> {
    node.sweep(Some(own), report)?;
    let (held, damaged) = node.store.read_sound().map_err(|error| failure::of_ipam(&error))?;
    if let Some(error) = damaged {
        report.note(error.to_string());
    }
    for key in held.overdue(node.now).map(|overdue| &overdue.key) {
        match reclaim_one(node, key, report) {
            Ok(true) => report.note(format!("took down {key}, whose ADD did not finish")),
            Ok(false) => {}
            Err(error) => report.note(format!("cannot take down {key}, whose ADD did not finish: {error}")),
        }
    }
    Ok(())
}

/// Takes down an overdue attachment, unless another run holds its lock or has finished it.
fn reclaim_one(node: &Node<'_>, key: &AttachmentKey, report: &mut Report) -> Result<bool, Error> {
    let wrap = |error| failure::of_ipam(&error);
    let Some(_lock) = node.store.try_attachment(key).map_err(wrap)? else { return Ok(false) };
    let left = node.store.find(key).map_err(wrap)?;
    let Some(left) = left.filter(|it| it.tentative_until.is_some()) else { return Ok(false) };
    let had = take_down(key, Some(&left), node, report)?;
    node.release(key, &had, report).map_err(wrap)?;
    Ok(true)
}
