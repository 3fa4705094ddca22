//! ADD of one attachment, written once: plugins only say what they build. Whatever fails, what was done is undone before the
//! error is returned.
//!
//! ```text
//!   lock ─▶ reserve ─▶ forget old connections ─▶ build (the plugin's) ─▶ commit
//!             ▲                                    │ fails
//!             └──── other addresses, if that helps ┴─▶ end ─▶ error
//! ```

use cni::{Error, ErrorCode};
use ipam::{Allocation, Pools, Reservation};
use vcn::{IfName, LinkIdentity};

use crate::end::{Access, give_up};
use crate::failure;
use crate::follow_up::{DeletionOutcome, forget};
use crate::node::Node;
use crate::report::Report;
use crate::reserve::{Source, reserve};

/// How often an ADD takes other addresses. One reason is that pods without a record use the addresses; all such records are
/// restored at once, so a second time is rare. The other is that the addresses have more connections than can be deleted in time.
const MAX_ADDRESS_CHANGES: usize = 3;

/// One request of a runtime to attach a pod, and where it is carried out.
#[derive(Clone, Debug)]
pub struct Addition<'a> {
    /// What the agent offers.
    pub pools: &'a Pools,
    /// Of that, what addresses are reserved from.
    pub source: &'a Pools,
    /// What is recorded in addition to the addresses.
    pub request: Allocation,
}

/// What an attempt may choose from.
struct Choice<'a> {
    source: Source<'a>,
    /// Whether addresses may be given back for better ones.
    may_change_address: bool,
}

/// A network that was built.
#[derive(Debug)]
pub struct Built<N> {
    /// The network that now exists in the pod and on the host.
    pub network: N,
    /// What identifies the VNIC's link in the pod; only if the build moved or made it there.
    pub link: Option<LinkIdentity>,
}

/// Why there is no network.
#[derive(Debug)]
pub struct BuildFailure {
    /// The error that the runtime gets if no other address helps.
    pub error: Error,
    /// Set if the pod may get other addresses.
    pub problem: Option<AddressProblem>,
}

/// A problem with the addresses that were reserved for a pod.
#[derive(Debug)]
pub enum AddressProblem {
    /// Another pod has one of them.
    Taken,
    /// The host does not have their VNIC's link, or it is down. An agent raises a link that is down, and the pools soon lack one
    /// that is gone.
    Link {
        /// The link of the VNIC that is missing.
        link: IfName,
        /// What the run record says about it.
        note: String,
    },
    /// The kernel has so many connections of the previous pod that there was no time to delete them all.
    Remembered,
}

/// An attachment that was added.
#[derive(Debug)]
pub struct Added<N> {
    /// The network as it was built.
    pub network: N,
    /// The committed record of the attachment.
    pub allocation: Allocation,
    /// An earlier ADD had created it.
    pub is_repeated: bool,
}

impl From<Error> for BuildFailure {
    fn from(error: Error) -> Self {
        Self { error, problem: None }
    }
}

/// Adds an attachment. Its addresses are in `report`, unless a VNIC's own, which the subnet knows already.
///
/// # Errors
/// When there is no network. Nothing of it is left, unless an earlier ADD succeeded: a running pod uses that.
pub fn add<N>(
    node: &Node,
    addition: &Addition<'_>,
    report: &mut Report,
    mut build: impl FnMut(&Reservation, &mut Report) -> Result<Built<N>, BuildFailure>,
) -> Result<Added<N>, Error> {
    let key = &addition.request.key;
    let _lock = node.store.attachment(key).map_err(|error| failure::of_ipam(&error))?;
    // Links of VNICs that are skipped, and the error of the first.
    let (mut avoided, mut first, mut moves) = (Vec::new(), None::<Error>, 0);
    loop {
        // After some attempts a pod starts although old connections of its address remain, because that is better than no pod.
        // A VNIC that one pod has for itself has no other address.
        let may_change_address = moves < MAX_ADDRESS_CHANGES && addition.request.exclusive.is_none();
        let choice = Choice { source: Source { pools: addition.source, avoided: &avoided }, may_change_address };
        let failed = match attempt(node, addition, &choice, report, &mut build) {
            Ok(added) => return Ok(added),
            Err(failed) => failed,
        };
        match failed.problem {
            Some(AddressProblem::Link { link, note }) if !avoided.contains(&link) => {
                report.note(format!("{note}: its VNIC is skipped"));
                avoided.push(link);
                first.get_or_insert(failed.error);
            }
            Some(AddressProblem::Taken) if moves < MAX_ADDRESS_CHANGES => {
                moves += 1;
                node.rebuild_record(Some(addition.pools), Some(key), report)?;
            }
            Some(AddressProblem::Remembered) if moves < MAX_ADDRESS_CHANGES => moves += 1,
            // Too few addresses may be left because VNICs were skipped.
            _ => {
                return Err(match first {
                    Some(first) => first.with_details(format!("nor by another VNIC: {}", failed.error)),
                    None => failed.error,
                });
            }
        }
    }
}

fn attempt<N>(
    node: &Node,
    addition: &Addition<'_>,
    choice: &Choice<'_>,
    report: &mut Report,
    build: &mut impl FnMut(&Reservation, &mut Report) -> Result<Built<N>, BuildFailure>,
) -> Result<Added<N>, BuildFailure> {
    let key = &addition.request.key;
    let reservation = reserve(node, choice.source, &addition.request, report)?;
    if let Some(rested) = reservation.rested {
        report.note(format!(
            "the address had rested only {} s of its cooldown: the pool is nearly empty",
            rested.as_secs()
        ));
    }
    report.mark("ipam");
    let is_repeated = reservation.is_settled();
    let built =
        forget_last_owner(&reservation, choice.may_change_address, report).and_then(|()| build(&reservation, report));
    report.mark("network");
    let committed = built.and_then(|Built { network, link }| {
        let committed = match link {
            Some(link) => node.store.update_for(key, |held| held.commit_link(key, link)),
            None => node.store.commit(key),
        };
        committed.map(|()| network).map_err(|error| failure::of_ipam(&error).into())
    });
    report.mark("commit");
    match committed {
        Ok(network) => {
            let allocation = reservation.allocation;
            if allocation.exclusive.is_none() {
                report.addresses(&allocation.addresses);
            }
            Ok(Added { network, allocation, is_repeated })
        }
        Err(BuildFailure { error, .. }) if is_repeated => Err(error.into()),
        Err(BuildFailure { error, problem }) => {
            Err(BuildFailure { error: give_up(key, error, node, Access::Locked, report), problem })
        }
    }
}

/// Deletes connections of the pod that had the addresses before. Usually the agent has deleted them already.
fn forget_last_owner(
    reservation: &Reservation,
    may_change_address: bool,
    report: &mut Report,
) -> Result<(), BuildFailure> {
    let forgotten = forget(reservation.unforgotten.iter().copied());
    report.note_some(forgotten.problem());
    match forgotten {
        DeletionOutcome::Incomplete if may_change_address => {
            let cause = "conntrack still has connections of the pod that had the address before, and there was no time to delete them all; the runtime retries";
            let error = Error::new(ErrorCode::TRY_AGAIN_LATER, cause);
            Err(BuildFailure { error, problem: Some(AddressProblem::Remembered) })
        }
        DeletionOutcome::All | DeletionOutcome::Incomplete | DeletionOutcome::Failed(_) => Ok(()),
    }
}
