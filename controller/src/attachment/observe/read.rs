//! Reads OCI's state of one instance. Decides nothing.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::VnicAttachment as Object;
use oci::{AttachmentState, CloudView, Error, Instance, InstanceState, Kind, VnicAttachment, VnicState};
use vcn::{Family, Ocid};

use super::cache::Cache;
use super::observed::{Listed, Machine, Observed, ObservedAttachment, ObservedVnic, Owner, ReadError};
use crate::attachment::mark::{Mark, Uid};
use crate::attachment::refusal::{self, visible};

/// What to read.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The instance.
    pub instance: &'a Ocid,
    /// The mark of our VNICs.
    pub mark: &'a Mark,
    /// The requested subnets.
    pub subnets: &'a BTreeSet<Ocid>,
    /// Whether IPv6 addresses are requested.
    pub ipv6: bool,
    /// The VNICs' own addresses in statuses.
    pub own: &'a BTreeSet<IpAddr>,
    /// The existing objects: an attachment named for one of them is its VNIC, even without tags.
    pub present: &'a HashSet<Uid>,
    /// Those being deleted: their VNICs' addresses are not needed.
    pub leaving: &'a HashSet<Uid>,
    /// The VNICs in statuses.
    pub told: &'a BTreeSet<Ocid>,
    /// Attachments that are known to be foreign.
    pub foreign: &'a HashSet<Ocid>,
    /// Attachments whose detach OCI accepted.
    pub detaching: &'a BTreeSet<Ocid>,
}

/// The VNICs in these objects' statuses.
#[must_use]
pub fn told_vnics(objects: &[Arc<Object>]) -> BTreeSet<Ocid> {
    objects.iter().filter_map(|object| object.status.as_ref()?.vnic_id.clone()).collect()
}

/// Their own addresses in statuses.
#[must_use]
pub fn told_addresses(objects: &[Arc<Object>]) -> BTreeSet<IpAddr> {
    objects.iter().filter_map(|object| object.status.as_ref()).flat_map(|status| status.own_addresses.clone()).collect()
}

/// The objects that are being deleted.
#[must_use]
pub fn leaving(objects: &[Arc<Object>]) -> HashSet<Uid> {
    let leaving = objects.iter().filter(|object| object.metadata.deletion_timestamp.is_some());
    leaving.filter_map(|object| object.metadata.uid.clone()).collect()
}

/// Reads the state.
///
/// # Errors
/// When OCI does not answer, or only incompletely. An invisible instance, VNIC or subnet is an answer. Unlistable addresses,
/// or an unreadable foreign VNIC, concern only that VNIC.
pub async fn read<C: CloudView>(cloud: &C, cache: &Cache, question: Question<'_>) -> Result<Observed, ReadError> {
    let Some(instance) = visible(cloud.instance(question.instance).await)? else {
        return Ok(Observed::not_seen());
    };
    let most = most_vnics(cloud, cache, &instance).await?;
    let mut subnets = BTreeMap::new();
    for id in question.subnets {
        if let Some(subnet) = cache.subnet(cloud, id).await? {
            subnets.insert(id.clone(), subnet);
        }
    }
    let mut listed = cloud.vnic_attachments(&instance.compartment_id, Some(question.instance)).await?;
    follow_detaches(cloud, question.detaching, &mut listed).await?;
    let mut attachments = Vec::new();
    for attachment in listed {
        attachments.push(look(cloud, question, attachment).await?);
    }
    let Instance { lifecycle_state: state, shape, compartment_id, .. } = instance;
    if has_primary(state) && !attachments.iter().any(ObservedAttachment::may_be_primary) {
        return Err(ReadError::NotWhole(attachments.iter().filter(|seen| seen.state().counts()).count()));
    }
    let mut unlisted = question.told.clone();
    for seen in &attachments {
        seen.attachment.vnic_id.as_ref().map(|id| unlisted.remove(id));
    }
    for id in std::mem::take(&mut unlisted) {
        if visible(cloud.vnic(&id).await)?.is_some_and(|vnic| is_there(vnic.value.lifecycle_state)) {
            unlisted.insert(id);
        }
    }
    let machine = Machine::There { state, shape, most };
    Ok(Observed { machine, compartment: Some(compartment_id), attachments, unlisted, subnets, pod_network: None })
}

/// Reads each detaching attachment by its OCID, because that answer is current; a list may be stale.
async fn follow_detaches<C: CloudView>(
    cloud: &C,
    accepted: &BTreeSet<Ocid>,
    listed: &mut Vec<VnicAttachment>,
) -> Result<(), Error> {
    let shown = listed.iter().filter(|own| own.lifecycle_state == AttachmentState::Detaching).map(|own| own.id.clone());
    for id in shown.chain(accepted.iter().cloned()).collect::<BTreeSet<_>>() {
        let read = match cloud.vnic_attachment(&id).await {
            Ok(read) => read.value,
            // Forgotten, or not readable: the list counts.
            Err(error) if is_of_one(&error) => continue,
            Err(error) => return Err(error),
        };
        match listed.iter_mut().find(|own| own.id == id) {
            Some(own) => *own = read,
            None => listed.push(read),
        }
    }
    Ok(())
}

async fn look<C: CloudView>(
    cloud: &C,
    question: Question<'_>,
    attachment: VnicAttachment,
) -> Result<ObservedAttachment, Error> {
    let named = Mark::named(attachment.display_name.as_deref());
    let present = named.as_ref().filter(|uid| question.present.contains(*uid));
    let foreign = present.is_none() && question.foreign.contains(&attachment.id);
    let is_there = attachment.lifecycle_state == AttachmentState::Attached;
    let vnic = match &attachment.vnic_id {
        Some(id) if is_there && !foreign => match visible(cloud.vnic(id).await) {
            // Not our VNIC: neither its name nor any status refers to it.
            Err(error) if present.is_none() && !question.told.contains(id) && is_of_one(&error) => None,
            answer => answer?,
        },
        _ => None,
    };
    let Some(vnic) = vnic else {
        let owner = named.filter(|_| !foreign).map_or(Owner::Foreign, Owner::Ours);
        return Ok(ObservedAttachment { attachment, owner, vnic: None });
    };
    let tags = &vnic.value.freeform_tags;
    // Its tags are missing, or name a former cluster name: the plan restores them.
    let present = present.filter(|_| !Mark::is_released(tags)).cloned();
    let owner = question.mark.owner(tags).or(present).filter(|_| !vnic.value.is_primary);
    let Some(uid) = owner else { return Ok(ObservedAttachment { attachment, owner: Owner::Foreign, vnic: None }) };
    let (mut ipv4, mut ipv6) = (Listed::Unasked, Listed::Unasked);
    let stays = question.present.contains(&uid) && !question.leaving.contains(&uid);
    if stays && matches!(vnic.value.lifecycle_state, VnicState::Available | VnicState::Unknown) {
        ipv4 = list(cloud, &vnic.value.id, Family::Ipv4).await?;
        // The VNIC lists its IPv6 addresses and does not mark its own: the one in the status counts. A VNIC that was created
        // without one, or lost it, has others only.
        let has_others = vnic.value.ipv6_addresses.iter().any(|address| !question.own.contains(address));
        ipv6 = match question.ipv6 || has_others {
            true => list(cloud, &vnic.value.id, Family::Ipv6).await?,
            false => Listed::Known(Vec::new()),
        };
    }
    Ok(ObservedAttachment { attachment, owner: Owner::Ours(uid), vnic: Some(ObservedVnic { vnic, ipv4, ipv6 }) })
}

async fn list<C: CloudView>(cloud: &C, vnic: &Ocid, family: Family) -> Result<Listed, Error> {
    match cloud.addresses(vnic, family).await {
        Ok(all) => Ok(Listed::Known(all)),
        Err(error) if is_of_one(&error) => Ok(Listed::Refused(refusal::said(&error, None))),
        Err(error) => Err(error),
    }
}

/// Whether an answer is about the requested resource. An outage, a 429 or a refused login would answer the next request
/// alike.
fn is_of_one(error: &Error) -> bool {
    !matches!(error.kind(), Kind::Throttled | Kind::Unavailable | Kind::Login)
}

async fn most_vnics<C: CloudView>(cloud: &C, cache: &Cache, instance: &Instance) -> Result<Option<u32>, Error> {
    let config = instance.shape_config.as_ref();
    if let Some(most) = config.and_then(|config| config.max_vnic_attachments) {
        return Ok(Some(most));
    }
    let shapes = cache.shapes(cloud, &instance.compartment_id).await?;
    let shape = shapes.iter().find(|shape| shape.shape == instance.shape);
    Ok(shape.and_then(|shape| shape.vnics_for(config.and_then(|config| config.ocpus))))
}

const fn is_there(state: VnicState) -> bool {
    matches!(state, VnicState::Provisioning | VnicState::Available)
}

/// Whether an instance in this state certainly has its primary VNIC: it appears during creation, and goes before the instance
/// is gone.
const fn has_primary(state: InstanceState) -> bool {
    use InstanceState::{CreatingImage, Moving, Running, Starting, Stopped, Stopping};
    matches!(state, Moving | Running | Starting | Stopping | Stopped | CreatingImage)
}
