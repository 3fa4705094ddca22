//! How OKE's pod network blocks steps: while OKE builds it, no VNIC is attached, and one that it uses is not detached. A plan
//! with such a step but without the pod network requests a read of it, and omits the step.

use api::AttachmentReason as Reason;
use api::condition::Condition;
use api::npn::NpnState;
use api::{NativePodNetwork, Reason as _};
use vcn::Ocid;

use super::Plan;
use crate::attachment::observe::observed::Observed;
use crate::attachment::observe::pod_network::PodNetwork;
use crate::attachment::report::attachment_status::StatusReason;

/// Why no VNIC may be attached now, if so. The last reported reason explains the missing readiness.
pub(super) fn before_attach(
    observed: &Observed,
    reported: Option<&Condition>,
    plan: &mut Plan,
) -> Option<StatusReason> {
    hold(observed, plan, |npn| (npn.state != NpnState::Success).then(|| pending(npn, reported)))
}

/// Why this VNIC may not be detached now, if so.
pub(super) fn before_detach(observed: &Observed, vnic: Option<&Ocid>, plan: &mut Plan) -> Option<StatusReason> {
    hold(observed, plan, |npn| {
        // A VNIC that it may name later is not waited for: some stay IN_PROGRESS forever.
        if !vnic.is_some_and(|vnic| npn.names(vnic)) {
            return None;
        }
        let name = name(npn);
        let message = format!(
            "NativePodNetwork {name} lists the VNIC for pods; drain the node, then `kubectl delete npn {name}` or terminate the instance; or set spec.onDelete to Orphan"
        );
        Some(StatusReason::new(Reason::UsedByPods, message))
    })
}

fn hold(
    observed: &Observed,
    plan: &mut Plan,
    judge: impl FnOnce(&NativePodNetwork) -> Option<StatusReason>,
) -> Option<StatusReason> {
    let cause = match &observed.pod_network {
        None => {
            plan.asks_pod_network = true;
            Some(StatusReason::new(Reason::PodNetworkUnknown, "not read yet"))
        }
        Some(PodNetwork::Absent) => None,
        Some(PodNetwork::There(npn)) => judge(npn),
        Some(PodNetwork::Unreadable(why)) => Some(StatusReason::new(Reason::PodNetworkUnknown, why.clone())),
    };
    plan.held |= cause.is_some();
    cause
}

fn pending(npn: &NativePodNetwork, reported: Option<&Condition>) -> StatusReason {
    let of = what(npn);
    // While it fails, OKE alternates between the two states, and the failure is what helps.
    let failed = format!("{of} is {}", NpnState::Backoff);
    let is_kept = |reported: &&Condition| {
        reported.reason == Reason::PodNetworkPending.as_str() && reported.message.starts_with(&failed)
    };
    if let Some(reported) = reported.filter(is_kept).filter(|_| npn.state == NpnState::InProgress) {
        return StatusReason::new(Reason::PodNetworkPending, reported.message.clone());
    }
    let message = match &npn.reason {
        Some(reason) => format!("{of} is {}: {reason}", npn.state),
        None => format!("{of} is {}", npn.state),
    };
    StatusReason::new(Reason::PodNetworkPending, message)
}

fn what(npn: &NativePodNetwork) -> String {
    format!("NativePodNetwork {}", name(npn))
}

fn name(npn: &NativePodNetwork) -> &str {
    npn.name.as_deref().unwrap_or_else(|| npn.instance.unique_id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npn(status: &str) -> PodNetwork {
        let document = format!(
            r#"{{"metadata":{{"name":"x"}},"spec":{{"id":"ocid1.instance.oc1.iad.x"}},"status":{{{status}}}}}"#
        );
        PodNetwork::There(NativePodNetwork::parse(document.as_bytes()).unwrap())
    }

    /// The reasons for an attach and for a detach; and whether something waits.
    fn reported(pod_network: Option<PodNetwork>) -> ([Option<(Reason, String)>; 2], bool, bool) {
        let observed = Observed { pod_network, ..Observed::not_seen() };
        let mut plan = Plan::default();
        let vnic: Ocid = "ocid1.vnic.oc1.iad.a".parse().unwrap();
        let cause = [before_attach(&observed, None, &mut plan), before_detach(&observed, Some(&vnic), &mut plan)];
        (cause.map(|cause| cause.map(|cause| (cause.reason, cause.message))), plan.held, plan.asks_pod_network)
    }

    #[test]
    fn oke_blocks_attaches_and_pods_block_detaches() {
        let entry = |vnic: &str| {
            format!(r#""vnics":[{{"vnicId":"ocid1.vnic.oc1.iad.{vnic}","macAddress":"02:00:17:00:00:01"}}]"#)
        };
        let pending = |words: &str| Some((Reason::PodNetworkPending, format!("NativePodNetwork x is {words}")));
        let used = |words: &str| Some((Reason::UsedByPods, format!("NativePodNetwork x {words}")));
        let listed = "lists the VNIC for pods; drain the node, then `kubectl delete npn x` or terminate the instance; or set spec.onDelete to Orphan";
        for (status, comes, goes) in [
            (String::new(), pending("unreported"), None),
            (r#""state":"IN_PROGRESS","reason":"IN_PROGRESS""#.to_owned(), pending("IN_PROGRESS: IN_PROGRESS"), None),
            (format!(r#""state":"IN_PROGRESS",{}"#, entry("b")), pending("IN_PROGRESS"), None),
            (format!(r#""state":"IN_PROGRESS",{}"#, entry("a")), pending("IN_PROGRESS"), used(listed)),
            (
                r#""state":"BACKOFF","reason":"FailedToAttachVNIC""#.to_owned(),
                pending("BACKOFF: FailedToAttachVNIC"),
                None,
            ),
            (format!(r#""state":"BACKOFF",{}"#, entry("a")), pending("BACKOFF"), used(listed)),
            (r#""state":"HALF_DONE""#.to_owned(), pending("HALF_DONE"), None),
            (format!(r#""state":"SUCCESS",{}"#, entry("b")), None, None),
            (format!(r#""state":"SUCCESS",{}"#, entry("a")), None, used(listed)),
        ] {
            let held = comes.is_some() || goes.is_some();
            assert_eq!(reported(Some(npn(&status))), ([comes, goes], held, false), "{status}");
        }
    }

    #[test]
    fn an_unknown_pod_network_blocks_both() {
        let unknown = |words: &str| Some((Reason::PodNetworkUnknown, words.to_owned()));
        assert_eq!(reported(Some(PodNetwork::Absent)), ([None, None], false, false));
        let unreadable = reported(Some(PodNetwork::Unreadable("403".to_owned())));
        assert_eq!(unreadable, ([unknown("403"), unknown("403")], true, false));
        assert_eq!(reported(None), ([unknown("not read yet"), unknown("not read yet")], true, true));
    }
}
