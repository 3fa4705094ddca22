//! Reserving addresses for an attachment, with what must be put right before: lost records, and what killed runs left.

use cni::{Args, ContainerNetns, Error};
use datapath::Places;
use ipam::{Allocation, NetnsRecord, PodRecord, Pools, Reservation};
use vcn::IfName;

use crate::end::reclaim;
use crate::failure;
use crate::node::Node;
use crate::report::Report;

/// What addresses are reserved from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// What the agent offers.
    pub(crate) pools: &'a Pools,
    /// Links whose VNICs are skipped.
    pub(crate) avoided: &'a [IfName],
}

/// Reserves addresses. An empty record may be a lost one, and so may this
/// attachment's: before that is believed, the kernel is queried who has what. A full one may hold what killed runs have left.
///
/// # Errors
/// The pools' and the files' own.
pub(crate) fn reserve(
    node: &Node,
    source: Source<'_>,
    requested: &Allocation,
    report: &mut Report,
) -> Result<Reservation, Error> {
    let Source { pools, avoided } = source;
    let (mut sure, mut swept) = (false, false);
    loop {
        let reserved = node.store.update_for(&requested.key, |held| {
            if !sure && (held.is_empty() || held.lacks_record(&requested.key)) {
                return Ok(None);
            }
            held.reserve_beside(pools, avoided, requested.clone(), node.now).map(Some)
        });
        match reserved {
            Ok(Some(reservation)) => return Ok(reservation),
            Ok(None) | Err(ipam::Error::Damaged { .. }) if !sure => {
                node.rebuild_record(Some(pools), Some(&requested.key), report)?;
                sure = true;
            }
            Ok(None) => return Err(failure::of_ipam(&ipam::Error::NoAllocation(requested.key.to_string()))),
            Err(ipam::Error::Exhausted(_)) if !swept => {
                reclaim(node, &requested.key, report)?;
                swept = true;
            }
            Err(error) => return Err(failure::of_ipam(&error)),
        }
    }
}

/// The pod, where the runtime named it.
pub fn pod_of(args: &Args) -> Option<PodRecord> {
    let (namespace, name) = (args.pod_namespace.clone()?, args.pod_name.clone()?);
    Some(PodRecord { namespace, name, uid: args.pod_uid.clone() })
}

/// The namespace of the pod in `places`, which the runtime named.
pub fn netns_of(netns: &ContainerNetns, places: &Places) -> Option<NetnsRecord> {
    let id = places.pod_id()?;
    Some(NetnsRecord { path: netns.path().to_owned(), dev: id.dev, inode: id.inode })
}
