//! Collects evidence for or against an instance's end when OCI answers 404 for it. Reads only; decides nothing.

use std::sync::{Arc, PoisonError};

use api::VnicAttachment;
use kube::ResourceExt;
use oci::{Cloud, Error};
use resident::logging::chain;
use tokio::time::Instant;
use vcn::Ocid;

use super::{AttachmentWorker, InstanceMemory};
use crate::attachment::apply::objects::Objects;
use crate::attachment::compartment_scan::CompartmentScan;
use crate::attachment::observe::forgotten::Evidence;
use crate::attachment::refusal::visible;
use crate::attachment::report::event_diff;

/// How many other VNICs of each kind are read until one is visible.
const WITNESSES: usize = 5;

impl<C: Cloud + 'static, O: Objects> AttachmentWorker<C, O> {
    /// Collects evidence for each object whose instance was not seen to end.
    pub(super) async fn seek(&self, objects: &[Arc<VnicAttachment>], memory: &mut InstanceMemory) {
        let open = |object: &&Arc<VnicAttachment>| !event_diff::was_seen_terminated(object.status.as_ref());
        for object in objects.iter().filter(open) {
            let uid = object.uid().unwrap_or_default();
            match self.evidence(object).await {
                Ok(evidence) => memory.of(&uid).judged(evidence.judge(), Instant::now()),
                Err(error) => {
                    tracing::warn!(event = "evidence.unanswered", object = object.name_any(), error = chain(&error));
                    memory.of(&uid).unanswered();
                }
            }
        }
    }

    /// Cheap checks that alone raise a doubt come first.
    async fn evidence(&self, object: &VnicAttachment) -> Result<Evidence, Error> {
        let (spec, mut evidence) = (&object.spec, Evidence::default());
        evidence.no_node = self.store.nodes().of(&spec.instance_id).is_none();
        if !evidence.no_node {
            return Ok(evidence);
        }
        let told = object.status.as_ref().and_then(|status| status.vnic_id.as_ref());
        evidence.no_vnic = match told {
            Some(id) => visible(self.cloud.vnic(id).await)?.is_none(),
            None => true,
        };
        if !evidence.no_vnic {
            return Ok(evidence);
        }
        // Not from the cache: its visibility now is the question.
        let Some(subnet) = visible(self.cloud.subnet(&spec.vnic.subnet_id).await)? else { return Ok(evidence) };
        evidence.subnet = true;
        let mut compartments = self.compartments.lock().unwrap_or_else(PoisonError::into_inner).clone();
        compartments.insert(subnet.compartment_id.clone());
        let resync = self.pace.resync;
        let listed = self.listings.whole(&self.cloud, &compartments, resync).await?;
        let Some(listed) = listed else { return Ok(evidence) };
        evidence.compartments = Some(compartments.len());
        evidence.unlisted = !listed.shows(&spec.instance_id, &object.uid().unwrap_or_default(), told);
        for id in self.witnesses(object, &listed, &subnet.compartment_id) {
            let found = visible(self.cloud.vnic(&id).await)?;
            if found.is_some_and(|vnic| vnic.value.compartment_id == subnet.compartment_id) {
                evidence.witness = Some(id);
                break;
            }
        }
        Ok(evidence)
    }

    /// Listed VNICs that may be in the subnet's compartment: constant while they exist, so that reconciles agree. Those of
    /// other objects in the same subnet are in it, and others may be.
    fn witnesses(&self, object: &VnicAttachment, listed: &CompartmentScan, compartment: &Ocid) -> Vec<Ocid> {
        let subnet = &object.spec.vnic.subnet_id;
        let mut named: Vec<Ocid> = self.store.attachments().vnics_in(subnet);
        named.retain(|id| listed.has_vnic(id));
        named.sort_unstable();
        named.truncate(WITNESSES);
        let mut others = listed.some_vnics(subnet, compartment, WITNESSES);
        others.retain(|id| !named.contains(id));
        named.append(&mut others);
        named
    }
}
