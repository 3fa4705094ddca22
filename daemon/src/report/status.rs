//! The node as `status` tells it: the last pass, and how old what is known is.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use vcn::Instance;

use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::Pass;
use crate::sources::node_facts::NodeFacts;
use crate::sources::source::Source;

/// The node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Whether an agent runs; where none does, this was found out without it.
    pub agent: AgentState,
    /// Whether the agent is ready.
    pub ready: bool,
    /// What is not as it should be, the worst first.
    pub conditions: Vec<Condition>,
    /// The instance, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceState>,
    /// The sources.
    pub sources: Vec<SourceState>,
    /// The last pass or, without an agent, what a pass would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<Pass>,
}

/// The agent itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    /// Whether it runs.
    pub running: bool,
    /// The version that answers.
    pub version: String,
    /// Since when, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_seconds: Option<u64>,
}

/// The instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceState {
    /// Its OCID.
    pub id: String,
    /// Its shape.
    pub shape: String,
    /// Its region.
    pub region: String,
}

/// A source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceState {
    /// Which.
    pub name: String,
    /// What it says, in a word or two.
    pub says: String,
    /// Age of the last good answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Why the last question was not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Status {
    /// The node as an agent that started then sees it.
    #[must_use]
    pub fn of(agent: AgentState, world: &NodeFacts, pass: Option<&Pass>) -> Self {
        let now = Instant::now();
        let starting = || vec![Condition::blocking(Reason::Starting, "no pass has ended yet")];
        Self {
            agent,
            ready: pass.is_some_and(Pass::is_ready),
            conditions: pass.map_or_else(starting, |pass| pass.conditions.clone()),
            instance: world.instance.value.as_ref().map(|Instance { id, shape, region, .. }| InstanceState {
                id: id.to_string(),
                shape: shape.clone(),
                region: region.clone(),
            }),
            sources: vec![
                source("instance", &world.instance, now, |instance| instance.shape.clone()),
                source("vnics", &world.vnics, now, |vnics| format!("{} VNIC(s)", vnics.len())),
                source("native-pod-network", &world.npn, now, |npn| match npn {
                    None => "none".into(),
                    Some(npn) => npn.state.to_string(),
                }),
            ]
            .into_iter()
            // Most nodes have no VNIC that needs them.
            .chain(
                (world.attachments.value.is_some() || world.attachments.error.is_some()).then(|| {
                    source("vnic-attachments", &world.attachments, now, |all| format!("{} VNIC(s)", all.len()))
                }),
            )
            .collect(),
            pass: pass.cloned(),
        }
    }
}

fn source<T>(name: &str, known: &Source<T>, now: Instant, says: impl FnOnce(&T) -> String) -> SourceState {
    SourceState {
        name: name.to_owned(),
        says: known.value.as_ref().map_or_else(|| "unknown".to_owned(), says),
        age_seconds: known.age(now).map(|age| age.as_secs()),
        error: known.error.clone(),
    }
}
