//! What is to be reported of a VnicAttachment, and whether it is worth a write. Pure.

use std::time::Duration;

use api::{NodeReport, VnicAttachment};
use kube::ResourceExt;
use tokio::time::Instant;
use vcn::Ocid;

use crate::decide::requests::must_report_end;
use crate::facts::condition::Reason;
use crate::facts::reconcile_report::{ReconcileReport, VnicState};

/// How old the last write must be before another number of pods is worth one, if it is neither the first nor the last pod.
const COUNTED_EVERY: Duration = Duration::from_mins(1);

/// For how long the watch may show an object as it was before a write.
const SEEN_WITHIN: Duration = Duration::from_mins(1);

/// What was written last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrittenReport {
    pub(super) report: NodeReport,
    pub(super) at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) object: String,
    pub(super) uid: String,
    pub(super) node: NodeReport,
}

/// What is to be written of an object now, if anything. `pods` counts those of a VNIC; `None` if that cannot be read.
pub(super) fn due(
    attachment: &VnicAttachment,
    reconciled: &ReconcileReport,
    pods: impl Fn(&Ocid) -> Option<u32>,
    written: Option<&WrittenReport>,
    now: Instant,
) -> Option<Report> {
    let status = attachment.status.as_ref()?;
    // Without the Node's name the API server refuses reports.
    let vnic_id = status.vnic_id.as_ref().filter(|_| status.node_name.is_some())?;
    let recent = written.filter(|written| now.duration_since(written.at) < SEEN_WITHIN);
    let known = recent.map(|written| &written.report).or(status.node.as_ref());
    let state = reconciled.vnics.iter().find(|vnic| vnic.id == *vnic_id);
    let node = match state {
        Some(state) => {
            let in_use = match state.purpose? {
                vcn::Purpose::Attach => pods(vnic_id)?,
                vcn::Purpose::Pods | vcn::Purpose::Host => 0,
            };
            report(state, in_use)?
        }
        // It is listed some seconds after it was attached.
        None => {
            let known = known.filter(|known| must_report_end(attachment, known))?;
            // A damaged record must not hide that the VNIC is gone.
            let in_use = pods(vnic_id).unwrap_or(known.in_use);
            let reason = Reason::VnicNotListed.as_str().to_owned();
            NodeReport { configured: false, reason, in_use, generation: known.generation }
        }
    };
    let is_due = match known {
        Some(known) if *known == node => false,
        Some(known) if *known == (NodeReport { in_use: known.in_use, ..node.clone() }) => {
            let is_boundary = known.in_use == 0 || node.in_use == 0;
            is_boundary || written.is_none_or(|written| now.duration_since(written.at) >= COUNTED_EVERY)
        }
        _ => true,
    };
    is_due.then(|| Report { object: attachment.name_any(), uid: attachment.uid().unwrap_or_default(), node })
}

/// `None` while it is not known how the VNIC is.
fn report(state: &VnicState, in_use: u32) -> Option<NodeReport> {
    let configured = state.configured?;
    let reason = match configured {
        true => String::new(),
        false => state.trouble.unwrap_or(Reason::HostNetworkFailed).as_str().to_owned(),
    };
    Some(NodeReport { configured, reason, in_use, generation: state.generation })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::requests::tests::attachment;

    fn state(configured: Option<bool>, trouble: Option<Reason>) -> VnicState {
        let mut state: VnicState = serde_json::from_value(json!({
            "id": "ocid1.vnic.oc1.iad.storage", "mac": "02:00:17:00:00:0c", "primary": false, "addresses": [],
            "name": "storage", "purpose": "attach", "generation": 2,
        }))
        .unwrap();
        (state.configured, state.trouble) = (configured, trouble);
        state
    }

    fn pass(vnics: Vec<VnicState>) -> ReconcileReport {
        let mut pass: ReconcileReport = serde_json::from_value(json!({
            "cause": "timer", "unixMillis": 0, "micros": 0, "changes": [], "conditions": [], "vnics": [], "usable": true,
        }))
        .unwrap();
        pass.vnics = vnics;
        pass
    }

    fn node(configured: bool, reason: &str, in_use: u32) -> Value {
        json!({ "configured": configured, "reason": reason, "inUse": in_use, "generation": 2 })
    }

    /// What is written, with so many pods, if the object says this and the agent wrote that so many seconds ago.
    fn written(
        vnics: Vec<VnicState>,
        pods: Option<u32>,
        said: Value,
        before: Option<(Value, u64)>,
    ) -> Option<NodeReport> {
        let object = attachment(&json!({ "purpose": "Attach" }), &json!({ "node": said }));
        let begun = Instant::now();
        let now = begun + Duration::from_secs(1000);
        let before = before.map(|(report, seconds)| WrittenReport {
            report: serde_json::from_value(report).unwrap(),
            at: now - Duration::from_secs(seconds),
        });
        due(&object, &pass(vnics), |_| pods, before.as_ref(), now).map(|report| report.node)
    }

    #[test]
    fn report_is_written_when_it_changes_and_vnics_are_known() {
        let fine = || vec![state(Some(true), None)];
        let broken = || vec![state(Some(false), Some(Reason::LinkMissing))];
        let report = |value: Value| Some(serde_json::from_value::<NodeReport>(value).unwrap());
        let (one, none) = (report(node(true, "", 1)), Value::Null);
        for (case, found, expected) in [
            ("first", written(fine(), Some(1), none.clone(), None), one.clone()),
            ("the same", written(fine(), Some(1), node(true, "", 1), None), None),
            ("written and not seen yet", written(fine(), Some(1), none.clone(), Some((node(true, "", 1), 5))), None),
            ("lost", written(fine(), Some(1), none.clone(), Some((node(true, "", 1), 100))), one.clone()),
            (
                "last pod",
                written(fine(), Some(0), node(true, "", 1), Some((node(true, "", 1), 1))),
                report(node(true, "", 0)),
            ),
            ("second pod", written(fine(), Some(2), node(true, "", 1), Some((node(true, "", 1), 30))), None),
            (
                "a minute later",
                written(fine(), Some(2), node(true, "", 1), Some((node(true, "", 1), 60))),
                report(node(true, "", 2)),
            ),
            ("broken", written(broken(), Some(1), node(true, "", 1), None), report(node(false, "LinkMissing", 1))),
            ("pending", written(vec![state(None, Some(Reason::LinkMissing))], Some(0), none.clone(), None), None),
            ("pods unknown", written(fine(), None, none.clone(), None), None),
            ("not listed yet", written(vec![], Some(0), none, None), None),
            (
                "not listed any more",
                written(vec![], Some(0), node(true, "", 0), None),
                report(node(false, "VnicNotListed", 0)),
            ),
            (
                "detached under a pod",
                written(vec![], Some(1), node(true, "", 1), None),
                report(node(false, "VnicNotListed", 1)),
            ),
            (
                "its last pod",
                written(vec![], Some(0), node(false, "VnicNotListed", 1), None),
                report(node(false, "VnicNotListed", 0)),
            ),
        ] {
            assert_eq!(found, expected, "{case}");
        }
    }
}
