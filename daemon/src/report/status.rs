//! The node as `status` shows it: readiness, the last reconcile report, and the age of the sources.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use vcn::Instance;

use crate::facts::condition::{Condition, Reason};
use crate::facts::node_facts::NodeFacts;
use crate::facts::reconcile_report::ReconcileReport;
use crate::facts::source::Source;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    pub agent: AgentState,
    /// Whether the agent is ready, and why not.
    #[serde(flatten)]
    pub readiness: Readiness,
    /// The instance, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Instance>,
    pub sources: Vec<SourceState>,
    /// The last reconcile, once there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReconcileReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentState {
    /// Always true: only a running agent answers.
    pub running: bool,
    /// The version of the program that answers.
    pub version: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
}

/// Whether the agent is ready, as `/readyz` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Readiness {
    pub ready: bool,
    /// The raised conditions, the worst first.
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceState {
    /// Its name, as in metrics.
    pub name: String,
    /// Its last good answer, in a word or two.
    pub summary: String,
    /// Age of that answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Why the last request failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Readiness {
    /// After a reconcile, or before the first one.
    pub(crate) fn of(report: Option<&ReconcileReport>) -> Self {
        report.map_or_else(
            || {
                let starting = Condition::blocking(Reason::Starting, "the first reconcile has not finished");
                Self { ready: false, conditions: vec![starting] }
            },
            |report| Self { ready: report.is_ready(), conditions: report.conditions.clone() },
        )
    }

    /// The same, but not ready before the settings of an earlier agent hold.
    pub(crate) fn after_policies(mut self, are_compared: bool) -> Self {
        if !are_compared {
            self.ready = false;
            let message = "the settings of node policies are not compared yet";
            self.conditions.push(Condition::blocking(Reason::Starting, message));
        }
        self
    }
}

impl Status {
    /// The node with these facts, after that reconcile.
    pub(crate) fn of(agent: AgentState, facts: &NodeFacts, report: Option<&ReconcileReport>) -> Self {
        let now = Instant::now();
        Self {
            agent,
            readiness: Readiness::of(report),
            instance: facts.instance.value.clone(),
            sources: vec![
                source("instance", &facts.instance, now, |instance| instance.shape.clone()),
                source("vnics", &facts.vnics, now, |vnics| format!("{} VNIC(s)", vnics.len())),
                source("native-pod-network", &facts.npn, now, |npn| match npn {
                    None => "none".into(),
                    Some(npn) => npn.state.to_string(),
                }),
            ]
            .into_iter()
            // Most nodes have no VNIC that needs them.
            .chain(
                (facts.attachments.value.is_some() || facts.attachments.error.is_some()).then(|| {
                    source("vnic-attachments", &facts.attachments, now, |all| format!("{} VNIC(s)", all.len()))
                }),
            )
            .collect(),
            report: report.cloned(),
        }
    }
}

fn source<T>(name: &str, source: &Source<T>, now: Instant, summary: impl FnOnce(&T) -> String) -> SourceState {
    SourceState {
        name: name.to_owned(),
        summary: source.value.as_ref().map_or_else(|| "unknown".to_owned(), summary),
        age_seconds: source.age(now).map(|age| age.as_secs()),
        error: source.error.clone(),
    }
}
