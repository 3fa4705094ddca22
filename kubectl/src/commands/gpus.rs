//! `gpus`: the nodes with a GPU or an RDMA network, the worst first, with each device that is wrong and what it needs.

use std::cmp::Reverse;

use command::page::{Page, age};
use health::fleet::{FleetNode, NodeState};
use health::summary::Check;
use health::{Area, Verdict};
use serde::Serialize;

use crate::answer::{Answer, Exit, Style};
use crate::args::GpusArgs;
use crate::catalog::{self, AGENT_SILENT};
use crate::cluster::Cluster;
use crate::commands::status::{self, Counts, Status};
use crate::leader::Source;
use crate::table::{count, cut, or_dash, since};

/// The most characters of a text in a line.
const TEXT: usize = 48;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Gpus {
    pub source: Source,
    /// Why the leader did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// Of the nodes with accelerators.
    pub counts: Counts,
    /// How many of them do not read kernel messages.
    pub without_kernel_messages: usize,
    /// The nodes with accelerators, the worst first.
    pub nodes: Vec<GpuNode>,
}

/// A node with accelerators.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GpuNode {
    pub name: String,
    /// Of its accelerators alone.
    pub state: NodeState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// How many GPUs the bus shows.
    pub gpus: u16,
    /// How many ports of the RDMA network there are.
    pub ports: u16,
    pub kernel_messages: bool,
    /// What is wrong, the worst first.
    pub problems: Vec<DeviceProblem>,
}

/// A device that is wrong, or a problem of all of them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeviceProblem {
    /// The PCI address; none for a problem of all devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The reason, or the signal.
    pub name: String,
    pub severity: health::rules::Severity,
    /// What was seen, such as the Xid.
    pub detail: String,
    pub needs: String,
    pub since_unix_millis: u64,
    /// Whether it is only known from before.
    pub is_measured: bool,
}

/// Reads from the leader or, if it is not reachable, from the API server.
pub(crate) async fn run(cluster: &Cluster, args: &GpusArgs) -> anyhow::Result<Gpus> {
    Ok(Gpus::of(status::of_selected(cluster, &args.selection).await?))
}

impl Gpus {
    pub(crate) fn of(status: Status) -> Self {
        let Status { source, unreachable, fleet, .. } = status;
        let mut nodes: Vec<GpuNode> = fleet.nodes.into_iter().filter_map(GpuNode::of).collect();
        let began = |node: &GpuNode| node.problems.iter().map(|problem| problem.since_unix_millis).min();
        nodes.sort_by_key(|node| (node.state, began(node).unwrap_or(u64::MAX), node.name.clone()));
        let blind = nodes.iter().filter(|node| !node.kernel_messages && node.state != NodeState::Unknown).count();
        let without_kernel_messages = if source == Source::Leader { blind } else { 0 };
        Self {
            source,
            unreachable,
            counts: Counts::of(nodes.iter().map(|node| node.state)),
            without_kernel_messages,
            nodes,
        }
    }
}

impl GpuNode {
    /// None of a node without accelerators.
    fn of(node: FleetNode) -> Option<Self> {
        let summary = node.summary?;
        let sources = summary.accelerators?;
        let checks: Vec<&Check> = summary.checks.iter().filter(|check| check.area == Area::Accelerators).collect();
        let is_silent = node.state == NodeState::Unknown || checks.iter().any(|check| check.name == AGENT_SILENT);
        let open = checks.iter().filter(|check| check.verdict == Verdict::Problem);
        let mut problems: Vec<DeviceProblem> = open.flat_map(|check| DeviceProblem::of(check)).collect();
        problems.sort_by_key(|problem| (Reverse(problem.severity), problem.since_unix_millis));
        let worst = NodeState::of_checks(checks);
        Some(Self {
            name: node.name,
            state: if is_silent { NodeState::Unknown } else { worst },
            age_seconds: node.age_seconds,
            shape: summary.shape,
            gpus: sources.gpus,
            ports: sources.ports,
            kernel_messages: sources.kernel_messages,
            problems,
        })
    }
}

impl DeviceProblem {
    /// One for each device of a check.
    fn of(check: &Check) -> Vec<Self> {
        let problem = |one: Check| {
            let device = one.devices.first();
            Self {
                detail: device.map_or_else(|| one.message.clone(), |device| device.state.clone()),
                needs: catalog::need(&check.name, device),
                device: one.subject,
                name: one.name,
                severity: one.severity,
                since_unix_millis: one.since_unix_millis,
                is_measured: one.not_measured.is_none(),
            }
        };
        check.per_device().into_iter().map(problem).collect()
    }
}

impl Answer for Gpus {
    fn exit(&self) -> Exit {
        let Counts { critical, warning, unknown, .. } = self.counts;
        if self.source == Source::Leader && critical + warning + unknown == 0 { Exit::Fine } else { Exit::Problem }
    }

    fn show(&self, page: &mut Page, style: Style) {
        if let Some(why) = &self.unreachable {
            page.line(format_args!("The controller is not reachable: {why}."));
            page.line("This is what the API server has: conditions of Nodes, as last written.");
            page.line("");
        }
        if !self.nodes.is_empty() {
            let head = [
                "NODE", "STATE", "ANSWERED", "GPUS", "PORTS", "DEVICE", "PROBLEM", "DETAIL", "SINCE", "NEEDS", "SHAPE",
            ];
            let shown = if style.wide { head.len() } else { head.len() - 1 };
            let rows = self.nodes.iter().flat_map(|node| rows(node, style, shown));
            page.columns(head.get(..shown).unwrap_or(&head), rows);
            page.line("");
        }
        let Counts { critical, warning, unknown, healthy } = self.counts;
        let all = count(self.nodes.len(), "node");
        page.line(format_args!(
            "{all} with GPUs or RDMA: {critical} critical, {warning} warning, {unknown} unknown, {healthy} healthy"
        ));
        if self.without_kernel_messages > 0 {
            let nodes = count(self.without_kernel_messages, "node");
            page.line(format_args!(
                "On {nodes} kernel messages are not read: set agent.kernelLog (docs/accelerators.md)."
            ));
        }
    }
}

/// A line for each problem of a node, or one.
fn rows(node: &GpuNode, style: Style, shown: usize) -> Vec<Vec<String>> {
    let row = |problem: Option<&DeviceProblem>| {
        let text = |text: Option<&String>| or_dash(text.map(|text| cut(text, TEXT, style)).unwrap_or_default());
        let mut row = vec![
            node.name.clone(),
            node.state.to_string(),
            node.age_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{} ago", age(seconds))),
            node.gpus.to_string(),
            node.ports.to_string(),
            text(problem.and_then(|problem| problem.device.as_ref())),
            text(problem.map(|problem| &problem.name)),
            text(problem.map(|problem| &problem.detail)),
            problem.map_or_else(|| "-".to_owned(), |problem| since(problem.since_unix_millis, style)),
            text(problem.map(|problem| &problem.needs)),
            or_dash(node.shape.clone().unwrap_or_default()),
        ];
        row.truncate(shown);
        row
    };
    if node.problems.is_empty() { vec![row(None)] } else { node.problems.iter().map(Some).map(row).collect() }
}
