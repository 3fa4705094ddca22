//! `status`: all nodes, the worst first.

use std::cmp::Reverse;

use anyhow::Context as _;
use command::page::{Page, age};
use health::Fleet;
use health::Verdict;
use health::fleet::{FleetNode, NodeState};
use serde::Serialize;

use crate::answer::{Answer, Exit, Style};
use crate::args::{NodeSelection, StatusArgs};
use crate::causes::{self, Cause};
use crate::cluster::Cluster;
use crate::commands::node::finding::blocks_pods;
use crate::commands::stop::StopState;
use crate::commands::vnics::{self, Vnics};
use crate::failure::words;
use crate::leader::{self, Source};
use crate::nodes;
use crate::selection::{SelectedNodes, selected};
use crate::table::{count, cut, ocid, or_dash, since};

/// The problems of a node that a line names.
const NAMED: usize = 3;
/// The most characters of an error in a line.
const ERROR: usize = 60;

/// All nodes, or those that are not healthy.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// Whether all rollouts are stopped.
    #[serde(flatten)]
    pub stop: StopState,
    pub source: Source,
    /// Why the leader did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    pub counts: Counts,
    /// The nodes, the worst first.
    #[serde(flatten)]
    pub fleet: Fleet,
    /// VnicAttachments, if the leader did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnics: Option<Vnics>,
}

/// How many nodes have which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Nodes whose state is [`NodeState::Critical`].
    pub critical: usize,
    /// Nodes whose state is [`NodeState::Warning`].
    pub warning: usize,
    /// Nodes whose state is [`NodeState::Unknown`].
    pub unknown: usize,
    /// Nodes whose state is [`NodeState::Healthy`].
    pub healthy: usize,
}

impl Counts {
    /// Of nodes with these states.
    pub(crate) fn of(states: impl Iterator<Item = NodeState> + Clone) -> Self {
        let number = |state| states.clone().filter(|one| *one == state).count();
        Self {
            critical: number(NodeState::Critical),
            warning: number(NodeState::Warning),
            unknown: number(NodeState::Unknown),
            healthy: number(NodeState::Healthy),
        }
    }
}

/// Reads the leader's view and, if it is not reachable, the API server.
pub(crate) async fn run(cluster: &Cluster, args: &StatusArgs) -> anyhow::Result<Status> {
    let mut status = of_selected(cluster, &args.selection).await?;
    status.stop = StopState::read(cluster).await;
    if args.problems {
        status.fleet.nodes.retain(|node| node.state != NodeState::Healthy);
    }
    Ok(status)
}

/// A part of the nodes.
pub(crate) async fn of_selected(cluster: &Cluster, selection: &NodeSelection) -> anyhow::Result<Status> {
    let selected = selected(cluster, selection).await?;
    Ok(match leader::get(cluster, "/fleet").await {
        Ok(fleet) => Status::of_selected(fleet, selected.as_ref(), None),
        Err(error) => {
            let why = words(&error);
            // A bad kubeconfig is not an outage; --view-url needs none.
            if cluster.target.view_url.is_none() {
                cluster.client().await?;
            }
            from_api(cluster, &why, selected.as_ref()).await.with_context(|| {
                format!("the controller is not reachable ({why}), and the API server does not answer instead")
            })?
        }
    })
}

async fn from_api(cluster: &Cluster, why: &str, selected: Option<&SelectedNodes>) -> anyhow::Result<Status> {
    let nodes = cluster.nodes().await?.iter().map(nodes::entry).collect();
    let mut status = Status::of_selected(Fleet { nodes, ..Fleet::default() }, selected, Some(why.to_owned()));
    // Without that right, or without that kind, the nodes are worth showing.
    status.vnics =
        Some(vnics::of_selected(cluster, selected).await.unwrap_or_else(|error| Vnics::unread(words(&error))));
    Ok(status)
}

impl Status {
    /// Of a part of the nodes, whose counts are shown.
    fn of_selected(mut fleet: Fleet, selected: Option<&SelectedNodes>, unreachable: Option<String>) -> Self {
        fleet.nodes.retain(|node| selected.is_none_or(|selected| selected.has(&node.name)));
        Self::new(fleet, unreachable)
    }

    /// The nodes in the order of the table.
    pub(crate) fn new(mut fleet: Fleet, unreachable: Option<String>) -> Self {
        fleet.nodes.sort_by(|a, b| rank(a).cmp(&rank(b)));
        let counts = Counts::of(fleet.nodes.iter().map(|node| node.state));
        let source = if unreachable.is_some() { Source::ApiServer } else { Source::Leader };
        Self { stop: StopState::default(), source, unreachable, counts, fleet, vnics: None }
    }
}

impl Answer for Status {
    fn exit(&self) -> Exit {
        let Counts { critical, warning, unknown, .. } = self.counts;
        if self.source == Source::Leader && critical + warning + unknown == 0 { Exit::Fine } else { Exit::Problem }
    }

    fn show(&self, page: &mut Page, style: Style) {
        self.stop.show(page);
        if let Some(why) = &self.unreachable {
            page.line(format_args!("The controller is not reachable: {why}."));
            page.line("This is what the API server has: conditions of Nodes and VnicAttachments, as last written.");
            page.line("");
        }
        let head = ["NODE", "STATE", "SINCE", "ANSWERED", "PROBLEMS", "SHAPE", "INSTANCE", "AGENT", "ERROR"];
        let shown = if style.wide { head.len() } else { head.len() - 2 };
        if !self.fleet.nodes.is_empty() {
            let head = head.get(..shown).unwrap_or(&head);
            page.columns(head, self.fleet.nodes.iter().map(|node| row(node, style, shown)));
            page.line("");
        }
        let Counts { critical, warning, unknown, healthy } = self.counts;
        let all = count(critical + warning + unknown + healthy, "node");
        page.line(format_args!("{all}: {critical} critical, {warning} warning, {unknown} unknown, {healthy} healthy"));
        if self.source == Source::Leader {
            let Fleet { leader, controller, leader_seconds, .. } = &self.fleet;
            page.line(format_args!("leader {leader}, version {controller}, for {}", age(leader_seconds)));
        }
        if let Some(vnics) = &self.vnics {
            page.line("");
            vnics.show(page, style);
        }
        self.stop.show_error(page);
    }
}

/// The order of the table.
fn rank(node: &FleetNode) -> impl Ord + '_ {
    (node.state, began(node).unwrap_or(u64::MAX), Reverse(node.age_seconds), &node.name)
}

/// Since when the node has a problem.
fn began(node: &FleetNode) -> Option<u64> {
    node.checks()
        .into_iter()
        .filter(|check| check.verdict == Verdict::Problem)
        .map(|check| check.since_unix_millis)
        .min()
}

fn row(node: &FleetNode, style: Style, shown: usize) -> Vec<String> {
    let summary = node.summary.as_ref();
    let error = node.error.as_deref().unwrap_or_default();
    let mut problems = problems(node, style);
    if problems.is_empty() && !style.wide && !error.is_empty() {
        problems = format!("({})", cut(error, ERROR, style));
    }
    let mut row = vec![
        node.name.clone(),
        node.state.to_string(),
        began(node).map_or_else(|| "-".to_owned(), |began| since(began, style)),
        node.age_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{} ago", age(seconds))),
        or_dash(problems),
        or_dash(summary.and_then(|summary| summary.shape.clone()).unwrap_or_default()),
        ocid(node.instance.as_deref().unwrap_or_default(), style),
        or_dash(summary.map(|summary| summary.agent.clone()).unwrap_or_default()),
        or_dash(error),
    ];
    row.truncate(shown);
    row
}

/// Their names; the checks of a summary are sorted, the worst first.
fn problems(node: &FleetNode, style: Style) -> String {
    let checks = node.checks();
    let problems = || checks.iter().filter(|check| check.verdict == Verdict::Problem);
    let causes = || problems().map(|check| Cause { name: &check.name, blocks_pods: blocks_pods(check) });
    let distinct = problems().filter(|check| !causes::repeats(&check.name, &check.message, causes()));
    let names: Vec<&str> = distinct.map(|check| check.name.as_str()).collect();
    let named = if style.wide { names.len() } else { names.len().min(NAMED) };
    let rest = names.len() - named + node.summary.as_ref().map_or(0, |summary| summary.left_out);
    let more = if rest > 0 { format!(" +{rest}") } else { String::new() };
    format!("{}{more}", names.get(..named).unwrap_or(&names).join(","))
}
