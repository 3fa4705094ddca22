//! What CHECK says of an attachment that is not as ADD made it.

use cni::{AttachmentKey, Error};
use datapath::{Change, Object, Place, Step, plan};
use ipam::{Allocation, Pools};

use crate::failure::code;

/// VNICs that are the node's no more: what is sent to their addresses does not arrive here.
pub fn vanished(allocation: &Allocation, pools: &Pools) -> impl Iterator<Item = String> {
    let gone = |held: &&ipam::AssignedAddress| !pools.vnics.iter().any(|vnic| vnic.vnic_id == held.vnic_id);
    allocation
        .addresses
        .iter()
        .filter(gone)
        .map(|held| format!("{} is on VNIC {}, which is not among this node's any more", held.address, held.vnic_id))
}

/// The steps to what ADD made. What later plugins added in the pod is their business.
pub fn drifted(desired: &[(Place, Object)], observed: &[(Place, Object)]) -> impl Iterator<Item = String> {
    let added = |step: &Step| step.place == Place::Pod && matches!(step.change, Change::Delete(_));
    plan(desired, observed).into_iter().filter(move |step| !added(step)).map(|step| step.to_string())
}

/// # Errors
/// [`code::CHECK_DIFFERS`] where there are differences.
pub fn in_sync(key: &AttachmentKey, differences: &[String]) -> Result<(), Error> {
    if differences.is_empty() {
        return Ok(());
    }
    let msg = format!("{key} is not as ADD made it, in {} respect(s); see the details", differences.len());
    Err(Error::new(code::CHECK_DIFFERS, msg).with_details(differences.join("; ")))
}
