//! How often instances are reconciled. A reconcile costs some calls, and OCI accepts a limited rate, so the intervals grow
//! with the number of instances. In between, lists of whole compartments (`compartment_scan`) show which ones need a
//! reconcile. Failing instances have a share of the requests, however many there are, so that the others need not wait.
//!
//! The rate is the one that OCI usually accepts: with the configured one, the queue would overflow when OCI accepts less.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::condition::find;
use api::{ConditionType, Reason as _, VnicAttachment};
use backoff::Backoff;
use vcn::Ocid;

use super::AttachmentWorker;
use crate::attachment::apply::objects::Objects;
use crate::attachment::report::event_diff::{is_settled, is_tried};
use crate::attachment::report::node_report;
use crate::attachment::report::status::node_name;
use crate::cluster::stamp::profile_of;
use crate::work::Lane;

/// Per reconcile: the instance, its list, and occasional calls.
const CALLS_PER_INSTANCE: f64 = 3.0;
/// Each of our VNICs and its addresses.
const CALLS_PER_VNIC: f64 = 2.0;
/// The share of regular reconciles, and of polls: the rest is for waiting requests.
const SHARE: f64 = 0.5;
/// The share of retries: with the regular reconciles, something is left.
const SHARE_OF_RETRIES: f64 = 1.0 / 3.0;

/// Bounds of the intervals, so that those set while OCI accepts little soon end. They are twice as long as ten thousand
/// instances need at 20 requests per second, and a poll of five hundred.
const MAX_REFRESH: Duration = Duration::from_hours(4);
const MAX_POLL: Duration = Duration::from_mins(3);

/// The first backoff after a failure; it doubles up to RETRY_MOST_SECONDS.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The first backoff while a VNIC waits for a pod network; it doubles likewise. OKE needs a minute or two to build one.
const FIRST_HELD: Duration = Duration::from_secs(15);

impl<O: Objects> AttachmentWorker<O> {
    /// The backoff between two attempts after a failure.
    pub(super) fn pauses(&self) -> Backoff {
        let cap = self.context.pace.retry_most;
        Backoff { first: FIRST_RETRY.min(cap), cap }
    }

    /// The backoff while a VNIC waits for the instance's pod network.
    pub(super) fn pauses_of_held(&self) -> Backoff {
        let cap = self.context.pace.retry_most;
        Backoff { first: FIRST_HELD.min(cap), cap }
    }

    /// The interval between two reconciles of an instance in sync: longer if these would take more than half of the requests.
    pub(crate) fn between_looks(&self) -> Duration {
        let (instances, objects) = self.context.store.attachments().load();
        // No cloud has 2^53 instances.
        let calls = CALLS_PER_INSTANCE * instances as f64 + CALLS_PER_VNIC * objects as f64;
        self.context.pace.resync.max(self.time_of(calls, SHARE).min(MAX_REFRESH))
    }

    /// The interval between two polls of an instance: longer if polls would take more than half of the requests.
    pub(super) fn between_polls(&self, instance: &Ocid) -> Duration {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(instance.clone());
        let calls = CALLS_PER_INSTANCE * waiting.len() as f64;
        self.context.pace.poll.max(self.time_of(calls, SHARE).min(MAX_POLL))
    }

    /// The interval between two retries of any failing instances: all of them together take at most a third of the requests.
    pub(super) fn between_retries(&self) -> Duration {
        self.time_of(CALLS_PER_INSTANCE, SHARE_OF_RETRIES)
    }

    /// The time that so many calls take with this share of the requests.
    fn time_of(&self, calls: f64, share: f64) -> Duration {
        Duration::from_secs_f64(calls / (self.context.budget.state().usual * share).max(0.01))
    }

    /// When to reconcile an instance after an event of the API server: at once, unless it is in sync. At the start all
    /// instances are reported; one in sync waits some time until the next regular reconcile. A request that was already
    /// refused is queued with the retries, and a profile's objects for many nodes come after single requests.
    pub(crate) fn due(&self, instance: &Ocid, chance: f64) -> (Lane, Duration) {
        let node = self.context.store.nodes().of(instance).cloned();
        let objects = self.context.store.attachments().of(instance);
        let name = node.as_ref().map(|node| node.name.as_str());
        if !objects.is_empty() && objects.iter().all(|object| can_wait(object, name)) {
            return (Lane::Regular, self.between_looks().mul_f64(chance.clamp(0.0, 1.0)));
        }
        let is_refused = objects.iter().any(|object| is_tried(object)) && objects.iter().all(|object| !is_new(object));
        let lane = if is_refused {
            Lane::Again
        } else if node.is_none_or(|node| node.vnics.is_none()) && is_of_rollout(&objects) {
            Lane::Rollout
        } else {
            Lane::Requested
        };
        (lane, Duration::ZERO)
    }
}

/// Whether an object matches its spec, names the present Node, and has the condition that follows from its agent's last report.
fn can_wait(object: &VnicAttachment, node: Option<&str>) -> bool {
    let status = object.status.as_ref();
    let named = status.and_then(|status| status.node_name.as_deref());
    let configured = status.and_then(|status| find(&status.conditions, ConditionType::Configured));
    let is_derived = configured.is_none_or(|condition| condition.reason == node_report::configured(object).as_str());
    is_settled(object) && is_derived && (node.and_then(node_name).is_none() || named == node)
}

/// Whether an object was neither tried in its present generation, nor matches it.
fn is_new(object: &VnicAttachment) -> bool {
    !is_settled(object) && !is_tried(object)
}

/// Whether profiles made all that is new. If the objects have nothing new, the Node has.
fn is_of_rollout(objects: &[Arc<VnicAttachment>]) -> bool {
    let mut of_profiles = objects.iter().filter(|object| is_new(object)).map(|object| profile_of(object).is_some());
    of_profiles.next() == Some(true) && of_profiles.all(|is| is)
}

#[cfg(test)]
mod tests {
    use api::VnicAttachmentStatus;
    use serde_json::json;

    use super::*;
    use crate::attachment::sample::attachment;

    #[test]
    fn instance_cannot_wait_with_an_underived_report() {
        let object = |configured: &str, node: serde_json::Value| {
            let condition = |kind: &str, reason: &str| json!({ "type": kind, "status": "True", "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z" });
            let conditions = [condition("Configured", configured), condition("Ready", "Ready")];
            let status = json!({ "observedGeneration": 1, "conditions": conditions, "nodeName": "n", "node": node });
            let status: VnicAttachmentStatus = serde_json::from_value(status).unwrap();
            VnicAttachment { status: Some(status), ..attachment("a", 1) }
        };
        let report = |configured| json!({ "configured": configured, "generation": 1 });
        for (condition, node, waits) in [
            ("NotReported", serde_json::Value::Null, true),
            ("NotReported", report(true), false),
            ("Configured", report(true), true),
            ("Configured", report(false), false),
        ] {
            assert_eq!(can_wait(&object(condition, node.clone()), Some("n")), waits, "{condition} {node}");
        }
    }
}
