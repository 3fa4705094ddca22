//! How often instances are looked at, as configured, as many as there are, and as much as the cloud takes: pauses that were
//! reckoned by the configured most would fill a queue where it takes less. By what it usually takes, for a pause lasts;
//! and the queue holds those that were reckoned against what it takes later.

use std::sync::PoisonError;
use std::time::Duration;

use backoff::Backoff;
use oci::Cloud;
use vcn::Ocid;

use super::AttachmentWorker;
use crate::attachment::apply::objects::Objects;
use crate::attachment::worker::pace;
use crate::work::{Longest, When};

/// The first pause after a failure; they double up to RETRY_MOST_SECONDS.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The first pause until a pod network is looked for again that a VNIC waits for; they double likewise. OKE takes a minute or two
/// to make one.
const FIRST_HELD: Duration = Duration::from_secs(15);

impl<C: Cloud + 'static, O: Objects> AttachmentWorker<C, O> {
    /// The pauses between two attempts at what failed, or came to nothing.
    pub(super) fn pauses(&self) -> Backoff {
        let cap = self.pace.retry_most;
        Backoff { first: FIRST_RETRY.min(cap), cap }
    }

    /// The pauses while a VNIC waits for the instance's pod network.
    pub(super) fn pauses_of_held(&self) -> Backoff {
        let Backoff { cap, .. } = self.pauses();
        Backoff { first: FIRST_HELD.min(cap), cap }
    }

    /// The pause between two looks at what is in order.
    #[must_use]
    pub fn between_looks(&self) -> Duration {
        let resync = self.pace.resync;
        pace::between_looks(resync, self.store.attachments().load(), self.budget.standing().usual)
    }

    /// The pause until an instance of which something is on its way is looked at again.
    pub(super) fn between_polls(&self, instance: &Ocid) -> Duration {
        let poll = self.pace.poll;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(instance.clone());
        pace::between_polls(poll, waiting.len(), self.budget.standing().usual)
    }

    /// How far off the next looks may be, by what the cloud takes now.
    pub(super) fn longest_pauses(&self) -> Longest {
        let poll = self.pace.poll;
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
        let soon = pace::between_polls(poll, waiting, self.budget.standing().usual);
        Longest { regular: self.between_looks(), soon }
    }

    /// When an instance that the API server told something of is to be looked at: at once, or, where it is in order (all
    /// are told of at the start), some time until the next regular look. What was refused as it is asked for now has its turn,
    /// and what a profile asks for of all nodes that it selects does not stand before what somebody asks for by itself.
    #[must_use]
    pub fn due(&self, instance: &Ocid, chance: f64) -> When {
        let (node, is_annotated) = match self.store.nodes().of(instance) {
            Some(node) => (Some(node.name.clone()), node.vnics.is_some()),
            None => (None, false),
        };
        let objects = self.store.attachments().of(instance);
        if objects.is_empty() {
            When::Now
        } else if pace::can_wait(objects.iter().map(AsRef::as_ref), node.as_deref()) {
            When::After(self.between_looks().mul_f64(chance.clamp(0.0, 1.0)))
        } else if pace::was_tried(objects.iter().map(AsRef::as_ref)) {
            When::InTurn
        } else if pace::is_of_rollout(objects.iter().map(AsRef::as_ref), is_annotated) {
            When::Rollout
        } else {
            When::Now
        }
    }
}
