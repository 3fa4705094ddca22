//! What an agent reports of its node, as far as it is shown. The agent may be of another version: words stay texts, and a
//! missing field has a default.

use command::page::{Page, age};
use health::Report;
use serde::Deserialize;
use serde_json::Value;

use crate::answer::Style;
use crate::table::{ocid, or_dash};

/// The details that the leader got from an agent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Details {
    pub(super) status: Option<AgentStatus>,
    pub(super) signals: Option<Report>,
    pub(super) error: Option<String>,
}

/// The agent's status as `oke-node-agent status` prints it, in the parts that are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AgentStatus {
    pub(super) agent: AgentState,
    pub(super) ready: Option<bool>,
    pub(super) conditions: Vec<AgentCondition>,
    sources: Vec<SourceState>,
    report: ReconcileReport,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AgentState {
    pub(super) uptime_seconds: Option<u64>,
}

/// A condition of the agent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AgentCondition {
    pub(super) reason: String,
    pub(super) severity: String,
    pub(super) subject: Option<String>,
    pub(super) message: String,
    pub(super) since_unix_millis: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SourceState {
    name: String,
    summary: String,
    age_seconds: Option<u64>,
    error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReconcileReport {
    vnics: Vec<VnicState>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VnicState {
    id: String,
    mac: String,
    primary: bool,
    link: Option<String>,
    addresses: Vec<String>,
    unmanaged: Option<Value>,
    name: Option<String>,
    purpose: Option<String>,
    trouble: Option<String>,
}

impl Details {
    /// Those of an answer. A part that cannot be read is missing, with the reason.
    pub(super) fn of(value: Option<&Value>) -> Self {
        let Some(value) = value else { return Self::default() };
        Self::deserialize(value).unwrap_or_else(|error| Self {
            error: Some(format!("its report cannot be read: {error}")),
            ..Self::default()
        })
    }
}

pub(super) fn show(page: &mut Page, status: &AgentStatus, style: Style) {
    if !status.report.vnics.is_empty() {
        page.line("");
        let head = ["VNIC", "FOR", "MAC", "LINK", "ADDRESSES", "STATE"];
        page.columns(&head, status.report.vnics.iter().map(|vnic| row(vnic, style)));
    }
    if !status.sources.is_empty() {
        page.line("");
        let row = |source: &SourceState| {
            let age = source.age_seconds.map(age).unwrap_or_default();
            let error = source.error.clone().unwrap_or_default();
            vec![source.name.clone(), or_dash(&source.summary), or_dash(age), or_dash(error)]
        };
        page.columns(&["SOURCE", "ANSWER", "AGE", "ERROR"], status.sources.iter().map(row));
    }
}

fn row(vnic: &VnicState, style: Style) -> Vec<String> {
    let requested = [&vnic.purpose, &vnic.name].into_iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    let unmanaged = vnic.unmanaged.as_ref().map(|word| word.as_str().unwrap_or("not configured").to_owned());
    let state = match (&vnic.trouble, unmanaged) {
        (Some(trouble), _) => trouble.clone(),
        (None, _) if vnic.primary => "primary".to_owned(),
        (None, Some(why)) => why,
        (None, None) => "in sync".to_owned(),
    };
    vec![
        ocid(&vnic.id, style),
        or_dash(requested),
        vnic.mac.clone(),
        or_dash(vnic.link.clone().unwrap_or_default()),
        or_dash(vnic.addresses.join(",")),
        state,
    ]
}
