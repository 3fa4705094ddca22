//! `why-not-ready`: the conditions that prevent new pods, then the others, each with its next step.

use std::time::SystemTime;

use command::page::{Page, age};
use health::{Report, Summary};
use serde::Serialize;

use super::other_network::{self, OtherNetwork};
use super::table::duration;
use crate::facts::condition::{Condition, Severity};
use crate::report::status::Status;

/// Why new pods cannot start.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Diagnosis {
    /// Whether new pods can start; `None` if they use a pod network that the agent cannot judge.
    pub(super) ready: Option<bool>,
    /// Whether the agent is ready; on a full node it is, although new pods cannot start.
    agent_ready: bool,
    /// Oldest first: an earlier one may have caused the later ones.
    blocking: Vec<Finding>,
    degraded: Vec<Finding>,
    /// What is seen of another program's pod network, if pods of this node use that.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_network: Option<OtherNetwork>,
    /// Why problems of devices may be missing in all answers of this agent, on a node with accelerators.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_messages: Option<&'static str>,
}

/// On a node with accelerators, if the agent lacks the capability.
const NOT_READ: &str = "Kernel messages are not read: set agent.kernelLog (docs/accelerators.md). Problems of GPUs and RDMA ports that only \
                        these messages show are not reported.";

/// A condition and its next step.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    #[serde(flatten)]
    condition: Condition,
    /// Purpose and name of the VNIC that it is about, if a VnicAttachment requests it.
    #[serde(skip_serializing_if = "Option::is_none")]
    vnic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    for_seconds: Option<u64>,
    next_step: &'static str,
}

impl Diagnosis {
    pub(super) fn of(status: &Status, other_network: Option<OtherNetwork>, now: SystemTime) -> Self {
        let mut conditions = status.readiness.conditions.clone();
        conditions.sort_by_key(|condition| condition.since_unix_millis.unwrap_or(u64::MAX));
        let finding = |condition: Condition| {
            let (for_seconds, next_step) = (duration(&condition, now), condition.reason.next_step());
            Finding { vnic: requested_for(status, &condition), condition, for_seconds, next_step }
        };
        let (blocking, degraded): (Vec<_>, Vec<_>) =
            conditions.into_iter().map(finding).partition(|it| it.condition.severity == Severity::Blocking);
        let agent_ready = status.readiness.ready;
        let ready = other_network.is_none().then_some(agent_ready && blocking.is_empty());
        Self { ready, agent_ready, blocking, degraded, other_network, kernel_messages: None }
    }

    /// With what the signals say about their own sources.
    pub(super) fn with_signals(self, signals: &Report) -> Self {
        let accelerators = Summary::default().with(signals).accelerators;
        let is_blind = accelerators.is_some_and(|sources| !sources.kernel_messages);
        Self { kernel_messages: is_blind.then_some(NOT_READ), ..self }
    }
}

pub(super) fn text(page: &mut Page, diagnosis: &Diagnosis) {
    let count = diagnosis.blocking.len();
    match (&diagnosis.other_network, diagnosis.ready, diagnosis.agent_ready) {
        (Some(other), ..) => {
            other_network::text(page, other);
            if count > 0 {
                page.line("");
                page.line("Conditions that stop the agent's own work on this node:");
            }
        }
        (None, Some(false), true) => {
            page.line(format_args!("Full: the agent is ready, but new pods cannot start here. {count} reason(s):"));
        }
        (None, Some(false), false) => {
            page.line(format_args!("Not ready: new pods cannot start here. {count} reason(s), oldest first:"));
        }
        (None, ..) => page.line("Ready: new pods can start here."),
    }
    for (number, it) in diagnosis.blocking.iter().enumerate() {
        finding(page, &format!("{}.", number + 1), it);
    }
    if !diagnosis.degraded.is_empty() {
        page.line("");
        page.line(match diagnosis.other_network {
            Some(_) => "Conditions that do not stop it:",
            None => "Conditions that do not prevent new pods:",
        });
    }
    diagnosis.degraded.iter().for_each(|it| finding(page, "- ", it));
    if let Some(kernel_messages) = diagnosis.kernel_messages {
        page.line("");
        page.line(kernel_messages);
    }
}

fn requested_for(status: &Status, condition: &Condition) -> Option<String> {
    let mut vnics = status.report.iter().flat_map(|report| &report.vnics);
    let vnic = vnics.find(|vnic| condition.subject.as_deref() == Some(vnic.id.as_str()))?;
    super::table::requested_for(vnic)
}

fn finding(page: &mut Page, mark: &str, Finding { condition, vnic, for_seconds, next_step }: &Finding) {
    let vnic = vnic.as_ref().map(|vnic| format!(", {vnic}")).unwrap_or_default();
    let subject = condition.subject.as_ref().map(|subject| format!(" ({subject}{vnic})")).unwrap_or_default();
    let since = for_seconds.map(|seconds| format!(", for {}", age(seconds))).unwrap_or_default();
    page.line("");
    page.line(format_args!("{mark} {}{subject}{since}", condition.reason));
    page.line(format_args!("   {}", condition.message));
    page.line(format_args!("   Next: {next_step}"));
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::facts::condition::Reason;
    use crate::report::status::{AgentState, Readiness};

    fn agent() -> AgentState {
        AgentState { running: true, version: "0".to_owned(), uptime_seconds: 0 }
    }

    fn diagnosis(ready: bool, conditions: Vec<Condition>) -> (Diagnosis, String) {
        let readiness = Readiness { ready, conditions };
        let status = Status { agent: agent(), readiness, instance: None, sources: Vec::new(), report: None };
        let diagnosis = Diagnosis::of(&status, None, UNIX_EPOCH + Duration::from_secs(1000));
        let mut page = Page::default();
        text(&mut page, &diagnosis);
        (diagnosis, page.into_text())
    }

    #[test]
    fn condition_of_a_requested_vnic_names_it() {
        let id = "ocid1.vnic.oc1.iad.storage";
        let vnic = serde_json::json!({ "id": id, "mac": "02:00:17:00:00:0c", "primary": false, "addresses": [],
            "name": "storage", "purpose": "attach" });
        let report = serde_json::json!({ "cause": "timer", "unixMillis": 0, "micros": 0, "changes": [], "conditions": [],
            "vnics": [vnic], "usable": true });
        let conditions = vec![Condition::degraded(Reason::LinkMissing, "no link").about(id)];
        let status = Status {
            agent: agent(),
            readiness: Readiness { ready: true, conditions },
            instance: None,
            sources: Vec::new(),
            report: serde_json::from_value(report).unwrap(),
        };
        let mut page = Page::default();
        text(&mut page, &Diagnosis::of(&status, None, UNIX_EPOCH));
        let text = page.into_text();
        assert!(text.contains("LinkMissing (ocid1.vnic.oc1.iad.storage, attach storage)"), "{text}");
    }

    #[test]
    fn node_with_gpus_says_that_kernel_messages_are_not_read() {
        let shown = |signals: &[&str]| {
            let state = |signal: &&str| {
                serde_json::json!({ "signal": signal, "verdict": "healthy", "unit": "count", "detail": "", "sampledUnixMillis": 1,
                    "sinceUnixMillis": 1, "everySeconds": 60 })
            };
            let report = serde_json::json!({ "signals": signals.iter().map(state).collect::<Vec<_>>() });
            let report: Report = serde_json::from_value(report).unwrap();
            let mut page = Page::default();
            text(&mut page, &diagnosis(true, Vec::new()).0.with_signals(&report));
            page.into_text()
        };
        let ready = "Ready: new pods can start here.\n";
        let blind = shown(&["gpus_missing"]);
        assert!(
            blind.starts_with(ready) && blind.contains("Kernel messages are not read: set agent.kernelLog"),
            "{blind}"
        );
        // Messages are read; and a node without accelerators needs none.
        assert_eq!([shown(&["gpus_missing", "gpus_need_reset"]), shown(&["conntrack_use"])], [ready, ready]);
    }

    #[test]
    fn blocking_conditions_come_first_oldest_first() {
        let at =
            |condition: Condition, seconds: u64| Condition { since_unix_millis: Some(seconds * 1000), ..condition };
        let (_, text) = diagnosis(
            false,
            vec![
                at(Condition::blocking(Reason::NoUsableAddress, "none").about("pods"), 900),
                at(Condition::blocking(Reason::HostNetworkFailed, "refused"), 400),
                at(Condition::degraded(Reason::NftFailed, "busy"), 100),
            ],
        );
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("Next: ")).collect();
        assert_eq!(
            lines,
            [
                "Not ready: new pods cannot start here. 2 reason(s), oldest first:",
                "",
                "1. HostNetworkFailed, for 10 min",
                "   refused",
                "",
                "2. NoUsableAddress (pods), for 100 s",
                "   none",
                "",
                "Conditions that do not prevent new pods:",
                "",
                "-  NftFailed, for 15 min",
                "   busy",
            ]
        );
        assert_eq!(text.matches("Next: ").count(), 3);
    }
}
