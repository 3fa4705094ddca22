//! `node`: everything about one node: why it is not ready, what else is wrong with the next step, its VNICs and sources.

mod agent;
mod devices;
pub(crate) mod finding;
mod policies;

use anyhow::{Context as _, bail};
use command::page::{Page, age};
use health::fleet::{FleetNode, NodeDetails, NodeState};
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use serde_json::Value;

use crate::answer::{Answer, Exit, Style};
use crate::cluster::Cluster;
use crate::commands::vnics::{self, Vnics};
use crate::failure::words;
use crate::leader::{self, Source};
use crate::nodes::{self, Condition, Versions};
use crate::table::{or_dash, since};
use agent::{AgentStatus, Details};
use devices::NodeDevice;
use finding::Finding;
use policies::{NodeSetting, PolicyDetails};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeAnswer {
    pub source: Source,
    /// Why the leader did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// The node in short.
    pub node: FleetNode,
    /// What is wrong, the worst first, and what to do.
    pub findings: Vec<Finding>,
    /// Its GPUs and ports of the RDMA network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<NodeDevice>,
    /// Signals that wait for their first or second sample.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<String>,
    /// What NodePolicies set on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<NodeSetting>,
    /// From its Node object.
    #[serde(flatten)]
    pub object: NodeObject,
    pub vnics: Vnics,
    /// The agent's own report, as it sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details_error: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct NodeObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// Its conditions: the kubelet's, and those of our controller.
    pub conditions: Vec<Condition>,
}

/// Reads the leader's view and the API server.
pub(crate) async fn run(cluster: &Cluster, name: &str) -> anyhow::Result<NodeAnswer> {
    let view: anyhow::Result<NodeDetails> = leader::get(cluster, &format!("/fleet/{name}")).await;
    let object = cluster.node(name).await;
    let (has, entry) = match &object {
        Ok(Some(object)) => (NodeObject::of(object), Some(nodes::entry(object))),
        _ => (NodeObject::default(), None),
    };
    let instance = entry.as_ref().and_then(|entry| entry.instance.as_deref()?.parse().ok());
    let vnics = match &instance {
        Some(instance) => vnics::of_instance(cluster, instance).await,
        None => Ok(Vnics::default()),
    };
    let vnics = vnics.unwrap_or_else(|error| Vnics::unread(words(&error)));
    match (view, entry) {
        (Ok(view), _) => Ok(NodeAnswer::of_view(view, has, vnics)),
        (Err(error), Some(node)) => Ok(NodeAnswer::of_api(node, words(&error), has, vnics)),
        (Err(error), None) => {
            let why = words(&error);
            if cluster.target.view_url.is_none() {
                cluster.client().await?;
            }
            object.with_context(|| format!("the controller is not reachable ({why}), nor the API server"))?;
            bail!("there is no Node {name}; the controller: {why}")
        }
    }
}

impl NodeObject {
    pub(crate) fn of(node: &Node) -> Self {
        Self { versions: nodes::versions(node), conditions: nodes::conditions(node) }
    }
}

impl NodeAnswer {
    /// With the leader's answer.
    pub(crate) fn of_view(view: NodeDetails, object: NodeObject, vnics: Vnics) -> Self {
        let Details { status, signals, error } = Details::of(view.details.as_ref());
        let policies = PolicyDetails::of(view.details.as_ref()).map(|it| it.settings()).unwrap_or_default();
        let NodeDetails { mut node, details, error: unanswered } = view;
        let details_error = error.or(unanswered);
        let summary = node.summary.as_ref();
        let waiting = finding::waiting(signals.as_ref(), summary);
        let devices = signals.as_ref().map(devices::of_report).unwrap_or_default();
        let mut findings = match (status, signals) {
            (None, None) => {
                let is_too_old = node.state == NodeState::Unknown;
                let known = summary.map(|summary| finding::of_summary(summary, is_too_old)).unwrap_or_default();
                let silence = finding::of_silence(&node.name, details_error.as_deref().unwrap_or("it sent nothing"));
                known.into_iter().chain([silence]).collect()
            }
            (status, signals) => {
                let found = finding::of_details(status.unwrap_or_default(), signals.unwrap_or_default(), summary);
                // It is newer than what the leader heard.
                (node.age_seconds, node.error) = (Some(0), None);
                found
            }
        };
        findings.extend(node.findings.iter().flat_map(finding::of_check));
        let findings = finding::distinct(findings);
        node.state = finding::state(&findings);
        Self {
            source: Source::Leader,
            unreachable: None,
            node,
            findings,
            devices,
            waiting,
            policies,
            object,
            vnics,
            details,
            details_error,
        }
    }

    /// Without a leader: `why`.
    pub(crate) fn of_api(mut node: FleetNode, why: String, object: NodeObject, vnics: Vnics) -> Self {
        let known = node.summary.iter().flat_map(|summary| finding::of_summary(summary, false));
        let findings = finding::distinct(known.collect());
        let vnics_state = if vnics.exit() == Exit::Fine { NodeState::Healthy } else { NodeState::Warning };
        node.state = node.state.min(vnics_state);
        Self {
            source: Source::ApiServer,
            unreachable: Some(why),
            findings,
            devices: Vec::new(),
            waiting: Vec::new(),
            policies: Vec::new(),
            node,
            object,
            vnics,
            details: None,
            details_error: None,
        }
    }
}

impl Answer for NodeAnswer {
    fn exit(&self) -> Exit {
        let is_fine = self.source == Source::Leader && self.node.state == NodeState::Healthy;
        // VnicAttachments that cannot be read are not a finding. The others are, unless they are only in progress.
        if is_fine && self.vnics.is_read() { Exit::Fine } else { Exit::Problem }
    }

    fn show(&self, page: &mut Page, style: Style) {
        if let Some(why) = &self.unreachable {
            page.line(format_args!("The controller is not reachable: {why}."));
            page.line(
                "This is what the API server has: conditions of the Node and its VnicAttachments, as last written.",
            );
            page.line("");
        }
        let status = Details::of(self.details.as_ref()).status;
        self.head(page, status.as_ref());
        finding::show(page, &self.findings, style);
        devices::show(page, &self.devices, style);
        if !self.waiting.is_empty() {
            page.line("");
            page.line(format_args!("Not measured yet (waiting for another sample): {}", self.waiting.join(", ")));
        }
        if !self.object.conditions.is_empty() {
            page.line("");
            let row = |one: &Condition| {
                let words = [&one.kind, &one.status].map(Clone::clone);
                let rest = [since(one.since_unix_millis, style), or_dash(&one.reason), one.message.clone()];
                words.into_iter().chain(rest).collect()
            };
            page.columns(
                &["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"],
                self.object.conditions.iter().map(row),
            );
        }
        policies::show(page, &self.policies, style);
        if let Some(status) = &status {
            agent::show(page, status, style);
        }
        if !self.vnics.items.is_empty() || self.vnics.exit() == Exit::Problem {
            page.line("");
            self.vnics.show_table(page, style);
        }
    }
}

impl NodeAnswer {
    fn head(&self, page: &mut Page, status: Option<&AgentStatus>) {
        let FleetNode { name, instance, state, age_seconds, summary, .. } = &self.node;
        page.field("node", name);
        page.field("state", state);
        match age_seconds {
            Some(0) => page.field("answered", "now"),
            Some(seconds) => page.field("answered", format_args!("{} ago", age(seconds))),
            None => {}
        }
        if let Some(instance) = instance {
            page.field("instance", instance);
        }
        if let Some(Versions { kubelet, container_runtime, kernel, os }) = &self.object.versions {
            page.field("kubelet", format_args!("{kubelet}, {container_runtime}"));
            page.field("system", format_args!("{os}, kernel {kernel}"));
        }
        let Some(summary) = summary else { return };
        if let Some(shape) = &summary.shape {
            page.field("shape", shape);
        }
        if !summary.agent.is_empty() {
            let uptime = status.and_then(|status| status.agent.uptime_seconds);
            let uptime = uptime.map(|seconds| format!(", up {}", age(seconds))).unwrap_or_default();
            page.field("agent", format_args!("version {}{uptime}", summary.agent));
        }
        if self.source == Source::Leader && summary.accelerators.is_some_and(|sources| !sources.kernel_messages) {
            page.field("kernel messages", "not read: set agent.kernelLog");
        }
        let what = if self.source == Source::Leader { "new pods can start" } else { "kubelet ready" };
        // An answer of now, or one that is not too old.
        let is_ready = match status {
            Some(status) => status.ready,
            None => Some(summary.ready).filter(|_| *state != NodeState::Unknown),
        };
        let is_blocked = self.findings.iter().any(|finding| finding.blocks_pods);
        page.field(
            what,
            match is_ready {
                _ if is_blocked => "no",
                Some(true) => "yes",
                _ => "not known",
            },
        );
    }
}
