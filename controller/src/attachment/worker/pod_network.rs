//! Reads the instance's pod network; a missing answer does not replace an answer in a status.

use api::condition::{ConditionType, find};
use api::{AttachmentReason, Reason as _, VnicAttachment};
use kube::ResourceExt;
use oci::Cloud;
use tokio::time::Instant;
use vcn::Ocid;

use super::AttachmentWorker;
use crate::attachment::apply::objects::Objects;
use crate::attachment::observe::pod_network::{PodNetwork, PodNetworks};
use crate::attachment::report::attachment_status::AttachmentStatus;
use crate::attachment::report::event_diff::{self, Answer};
use crate::attachment::state::instance_memory::InstanceMemory;

impl<C: Cloud + 'static, O: Objects + PodNetworks> AttachmentWorker<C, O> {
    /// Its present state. A failure is logged when it is new: an outage concerns ten thousand instances, every two minutes.
    pub(super) async fn ask_pod_network(&self, instance: &Ocid, memory: &mut InstanceMemory) -> PodNetwork {
        let known = self.objects.pod_network(instance).await;
        match &known {
            PodNetwork::Absent | PodNetwork::There(_) => memory.unread_pod_network = None,
            PodNetwork::Unread(why) | PodNetwork::Silent(why) => {
                if memory.unread_pod_network.as_ref() != Some(&why.words) {
                    tracing::warn!(event = "npn.unread", %instance, why = why.words, error = why.error);
                }
                memory.unread_pod_network = Some(why.words.clone());
            }
        }
        known
    }

    /// Whether a status stays because the API server did not answer: the first time, and while an answer or an outage is
    /// already reported. Otherwise it would be written and reverted at the next reconcile.
    pub(super) fn is_left_unanswered(
        &self,
        object: &VnicAttachment,
        verdict: &AttachmentStatus,
        is_again: bool,
        memory: &InstanceMemory,
    ) -> bool {
        let reason = AttachmentReason::PodNetworkUnanswered;
        if verdict.attached.reason != reason {
            return false;
        }
        let known = memory.written(&object.uid().unwrap_or_default(), Instant::now()).or(object.status.as_ref());
        let is_told = known.is_some_and(|known| {
            let ready = find(&known.conditions, ConditionType::Ready);
            known.observed_generation == object.metadata.generation
                && ready.is_some_and(|ready| ready.reason == reason.as_str())
        });
        !is_again || is_told || event_diff::stays_unread(object, known, Answer::MissingAgain)
    }
}
