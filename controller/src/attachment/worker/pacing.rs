//! How often instances are reconciled, from the configuration, their number, and the rate that OCI usually accepts. With the
//! configured maximum instead, the queue would overflow when OCI accepts less. The queue adjusts earlier delays when the rate
//! changes.

use std::sync::PoisonError;
use std::time::Duration;

use backoff::Backoff;
use oci::Cloud;
use vcn::Ocid;

use super::AttachmentWorker;
use crate::attachment::apply::objects::Objects;
use crate::attachment::worker::pace;
use crate::work::{DelayLimits, Schedule};

/// The first backoff after a failure; it doubles up to RETRY_MOST_SECONDS.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The first backoff while a VNIC waits for a pod network; it doubles likewise. OKE needs a minute or two to build one.
const FIRST_HELD: Duration = Duration::from_secs(15);

impl<C: Cloud + 'static, O: Objects> AttachmentWorker<C, O> {
    /// The backoff between two attempts after a failure.
    pub(super) fn pauses(&self) -> Backoff {
        let cap = self.pace.retry_most;
        Backoff { first: FIRST_RETRY.min(cap), cap }
    }

    /// The backoff while a VNIC waits for the instance's pod network.
    pub(super) fn pauses_of_held(&self) -> Backoff {
        let Backoff { cap, .. } = self.pauses();
        Backoff { first: FIRST_HELD.min(cap), cap }
    }

    /// The interval between two reconciles of an instance in sync.
    #[must_use]
    pub fn between_looks(&self) -> Duration {
        let resync = self.pace.resync;
        pace::between_looks(resync, self.store.attachments().load(), self.budget.standing().usual)
    }

    /// The interval between two polls of an instance.
    pub(super) fn between_polls(&self, instance: &Ocid) -> Duration {
        let poll = self.pace.poll;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(instance.clone());
        pace::between_polls(poll, waiting.len(), self.budget.standing().usual)
    }

    /// How far away the next reconciles may be, at the rate that OCI accepts now.
    pub(super) fn longest_pauses(&self) -> DelayLimits {
        let poll = self.pace.poll;
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
        let soon = pace::between_polls(poll, waiting, self.budget.standing().usual);
        DelayLimits { regular: self.between_looks(), soon }
    }

    /// When to reconcile an instance after an event of the API server: at once; or, if it is in sync (at the start all are
    /// reported), some time until the next regular reconcile. A request that was already refused is queued with the retries,
    /// and a profile's objects for many nodes come after single requests.
    #[must_use]
    pub fn due(&self, instance: &Ocid, chance: f64) -> Schedule {
        let (node, is_annotated) = match self.store.nodes().of(instance) {
            Some(node) => (Some(node.name.clone()), node.vnics.is_some()),
            None => (None, false),
        };
        let objects = self.store.attachments().of(instance);
        if objects.is_empty() {
            Schedule::Now
        } else if pace::can_wait(objects.iter().map(AsRef::as_ref), node.as_deref()) {
            Schedule::After(self.between_looks().mul_f64(chance.clamp(0.0, 1.0)))
        } else if pace::was_tried(objects.iter().map(AsRef::as_ref)) {
            Schedule::InTurn
        } else if pace::is_of_rollout(objects.iter().map(AsRef::as_ref), is_annotated) {
            Schedule::Rollout
        } else {
            Schedule::Now
        }
    }
}
