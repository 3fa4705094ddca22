//! Reads OCI's state of one instance. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::VnicAttachment as Object;
use oci::{AttachmentState, CloudView, Error, Instance, InstanceState, Kind, VnicAttachment, VnicState};
use vcn::{Family, Ocid};

use super::cache::Cache;
use super::observed::{AddressList, Machine, Observed, ObservedAttachment, ObservedVnic, ReadError};
use crate::attachment::mark::Mark;
use crate::attachment::refusal::{self, visible};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub instance: &'a Ocid,
    pub mark: &'a Mark,
    pub objects: &'a [Arc<Object>],
    /// Attachments whose detach OCI accepted.
    pub detaching: &'a BTreeSet<Ocid>,
}

/// Reads the state.
///
/// # Errors
/// When OCI does not answer, or only incompletely. An invisible instance, VNIC or subnet is an answer. Unlistable addresses,
/// or an unreadable foreign VNIC, concern only that VNIC.
pub(crate) async fn read(cloud: &CloudView, cache: &Cache, question: Question<'_>) -> Result<Observed, ReadError> {
    let Some(instance) = visible(cloud.instance(question.instance).await)? else {
        return Ok(Observed::not_seen());
    };
    let most = most_vnics(cloud, cache, &instance).await?;
    let mut subnets = BTreeMap::new();
    for id in question.objects.iter().map(|object| &object.spec.vnic.subnet_id).collect::<BTreeSet<_>>() {
        if let Some(subnet) = cache.subnet(cloud, id).await? {
            subnets.insert(id.clone(), subnet);
        }
    }
    let mut listed = cloud.vnic_attachments(&instance.compartment_id, Some(question.instance)).await?;
    follow_detaches(cloud, question.detaching, &mut listed).await?;
    let mut attachments = Vec::new();
    for attachment in listed {
        attachments.push(read_attachment(cloud, question, attachment).await?);
    }
    let Instance { lifecycle_state: state, shape, compartment_id, .. } = instance;
    if has_primary(state) && !attachments.iter().any(ObservedAttachment::may_be_primary) {
        return Err(ReadError::NotWhole(attachments.iter().filter(|seen| seen.state().counts()).count()));
    }
    let reported = question.objects.iter().filter_map(|object| object.status.as_ref()?.vnic_id.clone());
    let is_listed = |id: &Ocid| attachments.iter().any(|seen| seen.attachment.vnic_id.as_ref() == Some(id));
    let mut unlisted = BTreeSet::new();
    for id in reported.filter(|id| !is_listed(id)) {
        if visible(cloud.vnic(&id).await)?.is_some_and(|vnic| is_there(vnic.value.lifecycle_state)) {
            unlisted.insert(id);
        }
    }
    let machine = Machine::There { state, shape, most };
    Ok(Observed { machine, compartment: Some(compartment_id), attachments, unlisted, subnets, pod_network: None })
}

/// Reads each detaching attachment by its OCID, because that answer is current; a list may be stale.
async fn follow_detaches(
    cloud: &CloudView,
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

async fn read_attachment(
    cloud: &CloudView,
    question: Question<'_>,
    attachment: VnicAttachment,
) -> Result<ObservedAttachment, Error> {
    let foreign = |attachment| ObservedAttachment { attachment, owner: None, vnic: None };
    let Some(uid) = Mark::named(attachment.display_name.as_deref()) else { return Ok(foreign(attachment)) };
    let object = question.objects.iter().find(|object| object.metadata.uid.as_ref() == Some(&uid));
    let vnic = match &attachment.vnic_id {
        Some(id) if attachment.lifecycle_state == AttachmentState::Attached => match visible(cloud.vnic(id).await) {
            // No object needs it.
            Err(error) if object.is_none() && is_of_one(&error) => None,
            answer => answer?,
        },
        _ => None,
    };
    let Some(vnic) = vnic else { return Ok(ObservedAttachment { attachment, owner: Some(uid), vnic: None }) };
    let tags = &vnic.value.freeform_tags;
    // If its object exists, its tags may be missing or name a former cluster name: the plan restores them.
    let is_ours = question.mark.owner(tags).as_ref() == Some(&uid) || object.is_some() && !Mark::is_released(tags);
    if !is_ours || vnic.value.is_primary {
        return Ok(foreign(attachment));
    }
    let (mut ipv4, mut ipv6) = (AddressList::NotRead, AddressList::NotRead);
    let stays = object.filter(|object| object.metadata.deletion_timestamp.is_none());
    let is_created = matches!(vnic.value.lifecycle_state, VnicState::Available | VnicState::Unknown);
    if let Some(object) = stays.filter(|_| is_created) {
        ipv4 = list(cloud, &vnic.value.id, Family::Ipv4).await?;
        // The VNIC lists its IPv6 addresses and does not mark its own: the one in the status counts. A VNIC that was created
        // without one, or lost it, has others only.
        let own = object.status.as_ref().map(|status| status.own_addresses.as_slice()).unwrap_or_default();
        let has_others = vnic.value.ipv6_addresses.iter().any(|address| !own.contains(address));
        ipv6 = match object.spec.vnic.ipv6_count > 0 || has_others {
            true => list(cloud, &vnic.value.id, Family::Ipv6).await?,
            false => AddressList::Known(Vec::new()),
        };
    }
    Ok(ObservedAttachment { attachment, owner: Some(uid), vnic: Some(ObservedVnic { vnic, ipv4, ipv6 }) })
}

async fn list(cloud: &CloudView, vnic: &Ocid, family: Family) -> Result<AddressList, Error> {
    match cloud.addresses(vnic, family).await {
        Ok(all) => Ok(AddressList::Known(all)),
        Err(error) if is_of_one(&error) => Ok(AddressList::Refused(refusal::status_reason(&error, None))),
        Err(error) => Err(error),
    }
}

/// Whether an answer is about the requested resource. An outage, a 429 or a refused login would answer the next request
/// alike.
fn is_of_one(error: &Error) -> bool {
    !matches!(error.kind(), Kind::Throttled | Kind::Unavailable | Kind::Login)
}

async fn most_vnics(cloud: &CloudView, cache: &Cache, instance: &Instance) -> Result<Option<u32>, Error> {
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
