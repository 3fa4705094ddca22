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
/// is never entered: the pod end goes with the host end. The addresses are free only when nothing leads to them any more.
pub(crate) fn del(request: &DelRequest<Conf>, conf: &Conf, report: &mut Report) -> Result<(), Error> {
    let node = Node::open(&conf.state_dir).map_err(|error| failure::of_ipam(&error))?;
    let _lock = node.store.attachment(&request.key).map_err(|error| failure::of_ipam(&error))?;
    let known = recorded(request, &node, report);
    report.mark("record");
    take_down(&request.key, known.as_ref(), report)?;
    let released = node.release(&request.key, report).map_err(|error| failure::of_ipam(&error))?;
    report.mark("ipam");
    if let Some(allocation) = released.or(known) {
        report.addresses(&allocation.addresses);
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
pub(crate) fn take_down(
    key: &AttachmentKey,
    allocation: Option<&Allocation>,
    report: &mut Report,
) -> Result<(), Error> {
    let mut places = Places::host(Path::new(SYSCTL_ROOT)).map_err(|error| failure::of_host(&error))?;
    let observed = match allocation {
        // The record was written before the network was made, and it is in the record's terms that it was made.
        Some(allocation) => pod::recorded(&node::network(allocation, None, &Conf::default()), &mut places)
            .map_err(|error| failure::of_datapath(&error))?,
        None => match node::observe(key, None, &mut places) {
            // The name is somebody else's: ADD answered so, and nothing of this attachment can be there.
            Err(error) if error.code == code::LINK_COLLISION => Vec::new(),
            observed => observed?,
        },
    };
    report.mark("observe");
    let failures = dismantle(&plan(&[], &observed), &mut places);
    report.mark("network");
    let Some((first, others)) = failures.split_first() else { return Ok(()) };
    let error = Error::new(code::LEFT_OVER, format!("{key} is not wholly taken down; the next DEL tries again"));
    Err(others.iter().fold(error.caused_by(first), |error, failure| error.caused_by(failure)))
}
