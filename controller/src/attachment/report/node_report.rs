//! What the node's agent reports of a VNIC, and what follows from it: the condition Configured, whether Ready means usable, and
//! what must wait because pods use the VNIC. Pure.

use std::net::IpAddr;
use std::time::Duration;

use api::{AttachmentReason as Reason, ConditionType, FORCE_DETACH_ANNOTATION, NodeReport, Purpose, VnicAttachment};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::attachment::report::attachment_status::{AttachmentStatus, StatusReason};
use crate::attachment::report::event_diff;

/// For how long the detachment of a VNIC that no pod used waits for the agent to stop new use. A node that is down does not
/// answer.
const AGENT_ANSWERS_WITHIN: Duration = Duration::from_mins(1);

/// How long Ready of a VNIC that pods request by name waits for the agent's first report: until then the agent may not know what
/// the VNIC is for. An older agent reports nothing.
const FIRST_REPORT_WITHIN: Duration = Duration::from_secs(30);

/// What the agent reported last.
pub(crate) fn of(object: &VnicAttachment) -> Option<&NodeReport> {
    object.status.as_ref()?.node.as_ref()
}

pub(crate) fn configured(object: &VnicAttachment) -> Reason {
    match of(object) {
        None => Reason::NotReported,
        Some(report) if report.configured => Reason::Configured,
        Some(_) => Reason::NotConfigured,
    }
}

/// The same status; not Ready while the node's agent reports that the VNIC is not set up, has not set up the present spec, or is
/// expected to report soon.
pub(crate) fn with_report(
    object: &VnicAttachment,
    status: AttachmentStatus,
    node: Option<&str>,
    now: Timestamp,
) -> AttachmentStatus {
    if expected_within(object, &status, node, now).is_some() {
        let message = "the VNIC is attached; the agent on the node has not reported yet that pods can have it";
        return AttachmentStatus { ready: Some(StatusReason::new(Reason::NotReported, message)), ..status };
    }
    if status.ready_reason() != Reason::Ready {
        return status;
    }
    let Some(report) = of(object) else { return ready(object, status) };
    let ready = if !report.configured {
        StatusReason::new(Reason::NotConfigured, format!("the agent on the node reports {}", report.reason))
    } else if is_behind(object, report) {
        StatusReason::new(Reason::ChangePending, "the agent on the node has not applied the last change of the spec")
    } else {
        return self::ready(object, status);
    };
    AttachmentStatus { ready: Some(ready), ..status }
}

/// The remaining time for the agent's first report, if the VNIC is ready apart from that.
pub(crate) fn expected_within(
    object: &VnicAttachment,
    status: &AttachmentStatus,
    node: Option<&str>,
    now: Timestamp,
) -> Option<Duration> {
    let is_awaited = node.is_some() && object.spec.vnic.purpose == Purpose::Attach && of(object).is_none();
    let attached = event_diff::condition(object, ConditionType::Attached).filter(|attached| attached.is_true());
    let since = attached.map_or(now, |attached| attached.last_transition_time.0);
    let left = FIRST_REPORT_WITHIN.saturating_sub(now.duration_since(since).unsigned_abs());
    (is_awaited && status.ready_reason() == Reason::Ready && !left.is_zero()).then_some(left)
}

/// The status of a ready VNIC, with a reason that its owner should know.
fn ready(object: &VnicAttachment, status: AttachmentStatus) -> AttachmentStatus {
    let (vnic, own) = (&object.spec.vnic, &status.facts.own_addresses);
    let other = vnic.private_ip.filter(|address| !own.is_empty() && !own.contains(&IpAddr::V4(*address)));
    let cause = if let Some(address) = other {
        let message =
            format!("the VNIC is ready; privateIp {address} is ignored, because the VNIC has another address");
        StatusReason::new(Reason::PrivateIpIgnored, message)
    } else if vnic.lacks_routes() {
        let message = "the VNIC is ready; the host uses it only for packets from its address: neither subnetRoute nor \
                       routes is set";
        StatusReason::new(Reason::NoRoutes, message)
    } else {
        return status;
    };
    AttachmentStatus { ready: Some(cause), ..status }
}

/// Why the VNIC must stay as it is for now, if it is to be detached or to lose addresses.
pub(crate) fn in_use(object: &VnicAttachment, now: Timestamp) -> Option<StatusReason> {
    let is_forced = object.annotations().get(FORCE_DETACH_ANNOTATION).is_some_and(|value| value == "true");
    let report = of(object).filter(|_| object.spec.vnic.purpose == Purpose::Attach && !is_forced)?;
    let cause = |message: String| Some(StatusReason::new(Reason::InUse, message));
    let deleted = object.metadata.deletion_timestamp.as_ref();
    let is_silent = deleted.is_some_and(|at| now.duration_since(at.0).unsigned_abs() >= AGENT_ANSWERS_WITHIN);
    match report.in_use {
        0 if is_silent || !is_behind(object, report) => None,
        0 => cause("waiting for the agent on the node to stop new use of the VNIC".to_owned()),
        pods => cause(format!("{pods} pod(s) on the node use the VNIC; no new pod gets it")),
    }
}

/// What is left until [`in_use`] changes without a report.
pub(crate) fn answers_within(object: &VnicAttachment, now: Timestamp) -> Option<Duration> {
    let (report, deleted) = (of(object)?, object.metadata.deletion_timestamp.as_ref()?);
    let left = AGENT_ANSWERS_WITHIN.saturating_sub(now.duration_since(deleted.0).unsigned_abs());
    (report.in_use == 0 && !left.is_zero()).then_some(left)
}

/// Whether the agent has not seen the present spec, or that the object is being deleted, which is a generation of its own.
fn is_behind(object: &VnicAttachment, report: &NodeReport) -> bool {
    report.generation < object.metadata.generation
}

#[cfg(test)]
mod tests {
    use api::VnicAttachmentStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::attachment::sample::attachment;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn reported(configured: bool, in_use: u32, generation: i64) -> VnicAttachment {
        let mut object = attachment("a", 1);
        object.spec.vnic.purpose = Purpose::Attach;
        object.metadata.generation = Some(2);
        let reason = if configured { String::new() } else { "LinkMissing".to_owned() };
        let node = Some(NodeReport { configured, reason, in_use, generation: Some(generation) });
        object.status = Some(VnicAttachmentStatus { node, ..VnicAttachmentStatus::default() });
        object
    }

    #[test]
    fn ready_means_usable_once_the_agent_has_reported() {
        let case = |object: &VnicAttachment, reason| {
            let status = AttachmentStatus {
                ready: Some(StatusReason::new(reason, "")),
                ..AttachmentStatus::without_vnic(Reason::Attached, "")
            };
            let status = with_report(object, status, Some("node"), at(0));
            let names_word = status.ready.as_ref().is_some_and(|ready| ready.message.contains("LinkMissing"));
            (configured(object), status.ready_reason(), names_word)
        };
        for (object, reason, expected) in [
            (&attachment("a", 1), Reason::Ready, (Reason::NotReported, Reason::Ready, false)),
            (&reported(true, 0, 2), Reason::Ready, (Reason::Configured, Reason::Ready, false)),
            (&reported(true, 0, 1), Reason::Ready, (Reason::Configured, Reason::ChangePending, false)),
            (&reported(false, 0, 2), Reason::Ready, (Reason::NotConfigured, Reason::NotConfigured, true)),
            (&reported(false, 0, 2), Reason::SubnetFull, (Reason::NotConfigured, Reason::SubnetFull, false)),
        ] {
            assert_eq!(case(object, reason), expected, "{object:?}");
        }
    }

    #[test]
    fn ready_of_a_vnic_for_single_pods_waits_for_the_first_report() {
        let object = |attached: Option<i64>| {
            let mut object = attachment("a", 1);
            object.spec.vnic.purpose = Purpose::Attach;
            let attached = attached
                .map(|second| api::Condition::new(ConditionType::Attached, Reason::Attached, "", Time(at(second))));
            object.status =
                Some(VnicAttachmentStatus { conditions: attached.into_iter().collect(), ..Default::default() });
            object
        };
        let mut host = object(None);
        host.spec.vnic.purpose = Purpose::Host;
        host.spec.vnic.subnet_route = true;
        for (case, object, node, expected) in [
            ("attached now", object(None), Some("node"), Some(30)),
            ("attached before", object(Some(985)), Some("node"), Some(15)),
            ("an agent that reports nothing", object(Some(970)), Some("node"), None),
            ("no Node", object(None), None, None),
            ("for the host", host, Some("node"), None),
            ("reported", reported(true, 0, 2), Some("node"), None),
        ] {
            let ready = StatusReason::new(Reason::Ready, "");
            let status =
                AttachmentStatus { ready: Some(ready), ..AttachmentStatus::without_vnic(Reason::Attached, "") };
            let left = expected_within(&object, &status, node, at(1000));
            assert_eq!(left.map(|left| left.as_secs()), expected, "{case}");
            let reason = if expected.is_some() { Reason::NotReported } else { Reason::Ready };
            assert_eq!(with_report(&object, status, node, at(1000)).ready_reason(), reason, "{case}");
        }
    }

    #[test]
    fn used_vnic_waits_until_the_agent_has_stopped_new_use() {
        let deleted = |mut object: VnicAttachment, second: i64| {
            object.metadata.deletion_timestamp = Some(Time(at(second)));
            object
        };
        let mut host = reported(true, 3, 2);
        host.spec.vnic.purpose = Purpose::Host;
        host.spec.vnic.subnet_route = true;
        let mut forced = reported(true, 3, 2);
        forced.annotations_mut().insert(FORCE_DETACH_ANNOTATION.to_owned(), "true".to_owned());
        for (case, object, waits) in [
            ("no report", attachment("a", 1), false),
            ("used", reported(true, 3, 2), true),
            ("used for long", deleted(reported(true, 3, 2), 0), true),
            ("unused", reported(true, 0, 2), false),
            ("the agent has not seen the change", reported(true, 0, 1), true),
            ("nor the deletion", deleted(reported(true, 0, 1), 941), true),
            ("nor that for a minute", deleted(reported(true, 0, 1), 940), false),
            ("for the host", host, false),
            ("forced", forced, false),
        ] {
            assert_eq!(in_use(&object, at(1000)).is_some(), waits, "{case}");
        }
        let left = answers_within(&deleted(reported(true, 0, 1), 950), at(1000));
        assert_eq!(left, Some(Duration::from_secs(10)));
    }
}
