//! DEL: what there is of the attachment goes, then its addresses cool down. Repeatable; absent things are no error.

use cni::{DelRequest, Error};
use ipam::Allocation;

use crate::conf::Conf;
use crate::failure;
use crate::node::Node;
use crate::report::Report;
use crate::take_down::take_down;

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
