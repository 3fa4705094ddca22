//! How often instances are reconciled. A reconcile costs some calls, and OCI accepts a limited rate: with many instances the
//! intervals grow, and lists of whole compartments (`compartment_scan`) show in between which ones need a reconcile. Failing
//! instances have a share of the requests, however many there are, so that the others need not wait.

use std::time::Duration;

use api::condition::find;
use api::{ConditionType, Reason as _, VnicAttachment};

use crate::attachment::report::event_diff::{is_settled, is_tried};
use crate::attachment::report::node_report;
use crate::attachment::report::status::node_name;
use crate::profile::select::from_template::profile_of;

/// Per reconcile: the instance, its list, and occasional calls.
const CALLS_PER_INSTANCE: f64 = 3.0;
/// Each of our VNICs and its addresses.
const CALLS_PER_VNIC: f64 = 2.0;
/// The share of regular reconciles: the rest is for waiting requests.
const SHARE: f64 = 0.5;
/// The share of retries: with the regular reconciles, something is left.
const SHARE_OF_RETRIES: f64 = 1.0 / 3.0;

/// The number of instances and objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Instances with objects.
    pub instances: usize,
    /// Objects.
    pub objects: usize,
}

/// The interval between two reconciles of an instance in sync: `resync`, or longer if half of `rate` requests per second
/// would not be enough.
#[must_use]
pub fn between_looks(resync: Duration, load: Load, rate: f64) -> Duration {
    // No cloud has 2^53 instances.
    let calls = CALLS_PER_INSTANCE * load.instances as f64 + CALLS_PER_VNIC * load.objects as f64;
    resync.max(Duration::from_secs_f64(calls / (rate * SHARE).max(0.01)))
}

/// The interval between two polls of an instance: `poll`, or longer if polls would take more than half of `rate` requests per
/// second. The other half is for attaches.
#[must_use]
pub fn between_polls(poll: Duration, waiting: usize, rate: f64) -> Duration {
    let calls = CALLS_PER_INSTANCE * waiting as f64;
    poll.max(Duration::from_secs_f64(calls / (rate * SHARE).max(0.01)))
}

/// The interval between two retries of any failing instances: all of them together take at most a third of `rate` requests
/// per second.
#[must_use]
pub fn between_retries(rate: f64) -> Duration {
    Duration::from_secs_f64(CALLS_PER_INSTANCE / (rate * SHARE_OF_RETRIES).max(0.01))
}

/// Whether an instance can wait: all its objects match their specs, name the present Node, and have the condition that follows
/// from its agent's last report.
#[must_use]
pub fn can_wait<'a>(objects: impl IntoIterator<Item = &'a VnicAttachment>, node: Option<&str>) -> bool {
    objects.into_iter().all(|object| {
        let status = object.status.as_ref();
        let named = status.and_then(|status| status.node_name.as_deref());
        let configured = status.and_then(|status| find(&status.conditions, ConditionType::Configured));
        let is_derived =
            configured.is_none_or(|condition| condition.reason == node_report::configured(object).as_str());
        is_settled(object, status) && is_derived && (node.and_then(node_name).is_none() || named == node)
    })
}

/// Whether an instance has no new request: its objects were tried in their present generation, or match it.
#[must_use]
pub fn was_tried<'a>(objects: impl IntoIterator<Item = &'a VnicAttachment>) -> bool {
    let mut tried = false;
    objects.into_iter().all(|object| {
        let status = object.status.as_ref();
        let is_tried = is_tried(object, status);
        tried |= is_tried;
        is_tried || is_settled(object, status)
    }) && tried
}

/// Whether the news of an instance are part of a rollout: profiles made all of it, and no annotation of this Node requested
/// it.
#[must_use]
pub fn is_of_rollout<'a>(objects: impl IntoIterator<Item = &'a VnicAttachment>, is_annotated: bool) -> bool {
    let new = |object: &VnicAttachment| {
        let status = object.status.as_ref();
        !is_settled(object, status) && !is_tried(object, status)
    };
    let mut of_profiles = objects.into_iter().filter(|object| new(object)).map(|object| profile_of(object).is_some());
    // If the objects have no news, the Node has.
    !is_annotated && of_profiles.next() == Some(true) && of_profiles.all(|is| is)
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
            assert_eq!(can_wait([&object(condition, node.clone())], Some("n")), waits, "{condition} {node}");
        }
    }

    #[test]
    fn intervals_grow_with_the_number_of_instances() {
        let resync = Duration::from_mins(5);
        assert_eq!(between_looks(resync, Load { instances: 100, objects: 200 }, 20.0), resync);
        let many = Load { instances: 10_000, objects: 20_000 };
        assert_eq!(between_looks(resync, many, 20.0), Duration::from_secs(7000));
        let poll = Duration::from_secs(3);
        assert_eq!([1, 10, 200].map(|waiting| between_polls(poll, waiting, 20.0).as_secs()), [3, 3, 60]);
        assert_eq!([0.5, 20.0].map(|rate| between_retries(rate).as_millis()), [18_000, 450]);
    }
}
