//! DEL: what there is of the attachment goes, then its addresses cool down. Repeatable; absent things are no error.

use std::net::IpAddr;
use std::path::Path;

use cni::{AttachmentKey, DelRequest, Error};
use datapath::{Object, Place, Places, dismantle, plan, pod};
use ipam::Allocation;

use crate::conf::Conf;
use crate::failure::{self, code};
use crate::node::{self, Node, SYSCTL_ROOT};
use crate::report::Report;

/// The configuration may have changed or be unreadable, the namespace may be gone or be another pod's by now, the pools
/// may be missing: the allocation alone says what to take down, and without one the host link's name does. The namespace
/// is never entered: the pod end goes with the host end. The addresses are free only when nothing leads to them any more.
pub(crate) fn del(request: &DelRequest<Conf>, conf: &Conf, report: &mut Report) -> Result<(), Error> {
    let node = Node::open(&conf.state_dir).map_err(|error| failure::of_ipam(&error))?;
    let _lock = node.store.attachment(&request.key).map_err(|error| failure::of_ipam(&error))?;
    let known = recorded(request, &node, report);
    report.mark("record");
    let had = take_down(&request.key, known.as_ref(), &node, report)?;
    let released = node.release(&request.key, &had, report).map_err(|error| failure::of_ipam(&error))?;
    report.mark("ipam");
    match released.or(known) {
        Some(allocation) => report.addresses(&allocation.addresses),
        None => report.found(&had),
    }
    Ok(())
}

/// The record of the attachment. An unreadable one must not keep the pod from going: nothing can be handed out from it
/// either, and the host link's name still leads to what there is.
fn recorded(request: &DelRequest<Conf>, node: &Node<'_>, report: &mut Report) -> Option<Allocation> {
    let mut read = node.store.find(&request.key);
    if matches!(read, Err(ipam::Error::Damaged { .. })) {
        if let Err(error) = node.rebuild_record(node.pools().ok().as_ref(), Some(&request.key), report) {
            report.note(error.to_string());
        }
        read = node.store.find(&request.key);
    }
    read.unwrap_or_else(|error| {
        report.note(error.to_string());
        None
    })
}

/// Removes an attachment's network. Fails only when something is demonstrably still there, so that trying again helps.
/// Answers the addresses that it had: by its record, or without one by routes.
pub(crate) fn take_down(
    key: &AttachmentKey,
    allocation: Option<&Allocation>,
    node: &Node<'_>,
    report: &mut Report,
) -> Result<Vec<IpAddr>, Error> {
    let mut places = Places::host(Path::new(SYSCTL_ROOT)).map_err(|error| failure::of_host(&error))?.in_haste();
    let observed = match allocation {
        // The record was written before the network was made, and it is in the record's terms that it was made.
        Some(settled) if settled.tentative_until.is_none() => recorded_of(settled, node, &mut places)?,
        // How far its ADD got, and whether the addresses were another pod's, nobody knows.
        unsure => match (node::observe(key, unsure, &mut places), unsure) {
            // The name is somebody else's: ADD answered so, and no link of this attachment can be there.
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
    let error = Error::new(code::LEFT_OVER, format!("{key} is not wholly taken down; the next DEL tries again"));
    Err(others.iter().fold(error.caused_by(first), |error, failure| error.caused_by(failure)))
}

/// What there is of an attachment by its record.
fn recorded_of(allocation: &Allocation, node: &Node<'_>, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    // A VNIC's link that was renamed took the proxy along; the pools have its name.
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
