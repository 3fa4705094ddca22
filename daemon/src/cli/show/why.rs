//! `why-not-ready`: one screen for whoever was woken up.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use vcn::printable;

use super::table::age;
use crate::report::condition::{Condition, Reason, Severity};
use crate::report::status::Status;

/// What keeps new pods from starting, and what else is not as it should be.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Why {
    /// Nothing keeps them.
    pub(super) ready: bool,
    /// Whether the agent is ready: on a full node it is, and new pods cannot start.
    agent_ready: bool,
    /// What blocks first, each the oldest first: what came first is likely the cause of what came later.
    blocking: Vec<Because>,
    degraded: Vec<Because>,
}

/// A condition and what to do about it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Because {
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// Purpose and name of the VNIC that it is about, if a VnicAttachment requests it.
    #[serde(skip_serializing_if = "Option::is_none")]
    vnic: Option<String>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    for_seconds: Option<u64>,
    to_do: &'static str,
}

impl Why {
    pub(super) fn of(status: &Status, now: SystemTime) -> Self {
        let of = |severity: Severity| {
            let mut conditions: Vec<&Condition> =
                status.conditions.iter().filter(|condition| condition.severity == severity).collect();
            conditions.sort_by_key(|condition| condition.since_unix_millis.unwrap_or(u64::MAX));
            let of = |condition: &Condition| because(condition, requested_for(status, condition), now);
            conditions.into_iter().map(of).collect()
        };
        let blocking: Vec<Because> = of(Severity::Blocking);
        let ready = status.ready && blocking.is_empty();
        Self { ready, agent_ready: status.ready, blocking, degraded: of(Severity::Degraded) }
    }
}

pub(super) fn text(why: &Why) -> String {
    let mut text = String::new();
    let count = why.blocking.len();
    let _ = match (why.ready, why.agent_ready) {
        (true, _) => writeln!(text, "Ready: new pods can start here."),
        (false, true) => writeln!(text, "Full: the agent is ready, but new pods cannot start here. {count} reason(s):"),
        (false, false) => writeln!(text, "Not ready: new pods cannot start here. {count} reason(s), the first first:"),
    };
    for (number, because) in why.blocking.iter().enumerate() {
        let _ = writeln!(text, "\n{}. {}", number + 1, said(because));
    }
    if !why.degraded.is_empty() {
        text.push_str("\nPods can start all the same, but this is not as it should be:\n");
    }
    for because in &why.degraded {
        let _ = writeln!(text, "\n-  {}", said(because));
    }
    text
}

fn requested_for(status: &Status, condition: &Condition) -> Option<String> {
    let mut vnics = status.pass.iter().flat_map(|pass| &pass.vnics);
    let vnic = vnics.find(|vnic| condition.subject.as_deref() == Some(vnic.id.as_str()))?;
    super::table::requested_for(vnic)
}

fn because(condition: &Condition, vnic: Option<String>, now: SystemTime) -> Because {
    let then = condition.since_unix_millis.map(|since| UNIX_EPOCH + Duration::from_millis(since));
    Because {
        reason: condition.reason,
        subject: condition.subject.clone(),
        vnic,
        message: condition.message.clone(),
        for_seconds: then.map(|then| now.duration_since(then).unwrap_or_default().as_secs()),
        to_do: condition.reason.to_do(),
    }
}

fn said(because: &Because) -> String {
    let Because { reason, subject, vnic, message, for_seconds, to_do } = because;
    let vnic = vnic.as_ref().map(|vnic| format!(", {}", printable(vnic))).unwrap_or_default();
    let subject = subject.as_ref().map(|subject| format!(" ({}{vnic})", printable(subject))).unwrap_or_default();
    let since = for_seconds.map(|seconds| format!(", for {}", age(seconds))).unwrap_or_default();
    format!("{reason}{subject}{since}\n   {}\n   Do: {to_do}", printable(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::status::AgentState;

    #[test]
    fn a_full_node_is_ready_and_new_pods_cannot_start() {
        let status = Status {
            agent: AgentState { running: true, version: "1".into(), uptime_seconds: Some(1) },
            ready: true,
            conditions: vec![Condition::blocking(Reason::AddressesExhausted, "31 of 31 held")],
            instance: None,
            sources: Vec::new(),
            pass: None,
        };
        let why = Why::of(&status, UNIX_EPOCH);
        assert_eq!((why.ready, why.agent_ready), (false, true));
        let first = "Full: the agent is ready, but new pods cannot start here. 1 reason(s):\n\n1. AddressesExhausted\n";
        assert!(text(&why).starts_with(first), "{}", text(&why));
    }

    #[test]
    fn condition_of_a_requested_vnic_names_it() {
        let id = "ocid1.vnic.oc1.iad.storage";
        let vnic = serde_json::json!({ "id": id, "mac": "02:00:17:00:00:0c", "primary": false, "addresses": [],
            "name": "storage", "purpose": "attach" });
        let pass = serde_json::json!({ "cause": "timer", "unixMillis": 0, "micros": 0, "changes": [], "conditions": [],
            "vnics": [vnic], "usable": true });
        let status = Status {
            agent: AgentState { running: true, version: "1".into(), uptime_seconds: Some(1) },
            ready: true,
            conditions: vec![Condition::degraded(Reason::LinkMissing, "no link").about(id)],
            instance: None,
            sources: Vec::new(),
            pass: serde_json::from_value(pass).unwrap(),
        };
        let text = text(&Why::of(&status, UNIX_EPOCH));
        assert!(text.contains("LinkMissing (ocid1.vnic.oc1.iad.storage, attach storage)"), "{text}");
    }

    #[test]
    fn what_blocks_comes_first_and_of_it_what_came_first() {
        let at =
            |condition: Condition, seconds: u64| Condition { since_unix_millis: Some(seconds * 1000), ..condition };
        let status = Status {
            agent: AgentState { running: true, version: "1".into(), uptime_seconds: Some(1) },
            ready: false,
            conditions: vec![
                at(Condition::blocking(Reason::NoUsableAddress, "none").about("pods"), 900),
                at(Condition::blocking(Reason::HostNetworkFailed, "refused"), 400),
                at(Condition::degraded(Reason::NftFailed, "busy"), 100),
            ],
            instance: None,
            sources: Vec::new(),
            pass: None,
        };
        let text = text(&Why::of(&status, UNIX_EPOCH + Duration::from_secs(1000)));
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("Do: ")).collect();
        assert_eq!(
            lines,
            [
                "Not ready: new pods cannot start here. 2 reason(s), the first first:",
                "",
                "1. HostNetworkFailed, for 10 min",
                "   refused",
                "",
                "2. NoUsableAddress (pods), for 100 s",
                "   none",
                "",
                "Pods can start all the same, but this is not as it should be:",
                "",
                "-  NftFailed, for 15 min",
                "   busy",
            ]
        );
        assert_eq!(text.matches("Do: ").count(), 3);
    }
}
