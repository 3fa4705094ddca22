//! DEL: what there is of the attachment goes, then its addresses cool down. Repeatable; absent things are no error.

use std::path::Path;

use cni::{AttachmentKey, DelRequest, Error};
use datapath::{Places, dismantle, plan, pod};
use ipam::Allocation;

use crate::conf::Conf;
use crate::failure::{self, code};
use crate::node::{self, Node, SYSCTL_ROOT};
use crate::report::Report;

/// The configuration may have changed or be unreadable, the namespace may be gone or be another pod's by now, the pools
/// may be missing: the allocation alone says what to take down, and without one the host link's name does. The namespace
/// is never entered: the pod end goes with the host end.
pub(crate) fn del(request: &DelRequest<Conf>, conf: &Conf, report: &mut Report) -> Result<(), Error> {
    let node = Node::open(&conf.state_dir).map_err(|error| failure::of_ipam(&error))?;
    // An unreadable record must not keep the pod from going: nothing can be handed out from it either.
    let allocation = node.store.read().ok().and_then(|held| held.find(&request.key).cloned());
    report.mark("record");
    take_down(&request.key, allocation.as_ref(), &node, report)?;
    let Some(allocation) = allocation else { return Ok(()) };
    report.addresses(&allocation.addresses);
    let released = node.store.update(|held| Ok::<_, ipam::Error>(held.release(&request.key, node.now)));
    report.mark("ipam");
    released.map(|_| ()).map_err(|error| failure::of_ipam(&error))
}

/// Removes an attachment's network. Fails only when something is demonstrably still there, so that trying again helps.
pub(crate) fn take_down(
    key: &AttachmentKey,
    allocation: Option<&Allocation>,
    node: &Node<'_>,
    report: &mut Report,
) -> Result<(), Error> {
    let mut places = Places::host(Path::new(SYSCTL_ROOT)).map_err(|error| failure::of_host(&error))?;
    let observed = match allocation {
        // The record was written before the network was made, and it is in the record's terms that it was made.
        Some(allocation) => pod::recorded(&node::network(allocation, None), &mut places)
            .map_err(|error| failure::of_datapath(&error))?,
        None => node::observe(key, None, node.pools().ok().as_ref(), &mut places)?,
    };
    report.mark("observe");
    let failures = dismantle(&plan(&[], &observed), &mut places);
    report.mark("network");
    let Some((first, others)) = failures.split_first() else { return Ok(()) };
    let error = Error::new(code::LEFT_OVER, format!("{key} is not wholly taken down; the next DEL tries again"));
    Err(others.iter().fold(error.caused_by(first), |error, failure| error.caused_by(failure)))
}
