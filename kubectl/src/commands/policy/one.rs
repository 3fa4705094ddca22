//! One policy with its nodes.

use std::cmp::Reverse;

use api::node_policy::FailingNode;
use command::page::Page;
use serde::Serialize;
use tunables::ItemReport;
use tunables::view::{NodeProgress, PolicyNodeView, PolicyView};

use super::summary::{PolicySummary, show_steps};
use crate::answer::{Answer, Exit, Style};
use crate::commands::stop::StopState;
use crate::table::{cut, or_dash};

/// The most nodes in the text: of ten thousand, those that are done say nothing. JSON has all.
const NODES: usize = 50;
/// The most characters of a value, and of a message.
const VALUE: usize = 40;
const MESSAGE: usize = 100;

/// A policy and its nodes.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OnePolicy {
    #[serde(flatten)]
    pub stop: StopState,
    pub policy: PolicySummary,
    /// Why the leader did not answer: the nodes are then not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// Its nodes: those that do not have it first.
    pub nodes: Vec<PolicyNodeView>,
}

impl OnePolicy {
    pub(crate) fn new(stop: StopState, policy: PolicySummary, view: Result<PolicyView, String>) -> Self {
        let (mut nodes, unreachable) = match view {
            Ok(view) => (view.nodes, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        nodes.sort_by(|a, b| (rank(a), Reverse(a.is_canary), &a.node).cmp(&(rank(b), Reverse(b.is_canary), &b.node)));
        Self { stop, policy, unreachable, nodes }
    }

    fn head(&self, page: &mut Page) {
        let policy = &self.policy;
        page.field("policy", &policy.name);
        if !policy.mode.is_empty() {
            page.field("mode", format_args!("{}, priority {}", policy.mode, policy.priority));
        }
        if !policy.created_by.is_empty() {
            page.field("created by", &policy.created_by);
        }
        page.field("progress", with_message(&policy.progress, &policy.progress_message));
        page.field("applied", with_message(&policy.applied, &policy.applied_message));
        let rejected =
            if policy.rejected.is_empty() { String::new() } else { format!(", rejected {}", policy.rejected) };
        let (target, stable) = (or_dash(&policy.target), or_dash(&policy.stable));
        page.field("revisions", format_args!("target {target}, last that worked {stable}{rejected}"));
        let counts = policy.nodes;
        if counts != Default::default() {
            let numbers = [
                ("with the target", counts.target),
                ("with the last revision that worked", counts.stable),
                ("failed", counts.failed),
                ("drifted", counts.drifted),
                ("in conflict", counts.conflicted),
                ("with an older agent", counts.unsupported),
                ("unavailable", counts.unavailable),
            ];
            let numbers = numbers.iter().filter(|(_, number)| *number > 0);
            let numbers: String = numbers.map(|(what, number)| format!(", {number} {what}")).collect();
            page.field("nodes", format_args!("{} selected{numbers}", counts.matched));
        }
    }

    fn show_nodes(&self, page: &mut Page, style: Style) {
        let shown = if style.wide { self.nodes.len() } else { self.nodes.len().min(NODES) };
        let nodes = self.nodes.get(..shown).unwrap_or_default();
        if nodes.is_empty() {
            return;
        }
        page.line("");
        page.columns(
            &["NODE", "PROGRESS", "REVISION", "TARGET", "MESSAGE"],
            nodes.iter().map(|node| node_row(node, style)),
        );
        if shown < self.nodes.len() {
            page.line(format_args!("and {} more: -o wide", self.nodes.len() - shown));
        }
        let items: Vec<(&str, &ItemReport)> =
            nodes.iter().flat_map(|node| node.items.iter().map(|item| (node.node.as_str(), item))).collect();
        if !items.is_empty() {
            page.line("");
            let head = ["NODE", "SETTING", "STATE", "CURRENT", "DESIRED", "MESSAGE"];
            page.columns(&head, items.iter().map(|(node, item)| item_row(node, item, style)));
        }
    }

    /// What the object has, without the leader.
    fn show_failing(&self, page: &mut Page) {
        let failing = &self.policy.failing;
        if failing.is_empty() {
            return;
        }
        page.line("");
        let row = |one: &FailingNode| vec![one.node.clone(), or_dash(&one.item), one.reason.clone()];
        page.columns(&["NODE", "SETTING", "REASON"], failing.iter().map(row));
    }
}

impl Answer for OnePolicy {
    fn exit(&self) -> Exit {
        let is_fine = self.stop.reason.is_none() && self.unreachable.is_none() && self.policy.is_fine();
        if is_fine { Exit::Fine } else { Exit::Problem }
    }

    fn show(&self, page: &mut Page, style: Style) {
        self.stop.show(page);
        if let Some(why) = &self.unreachable {
            page.line(format_args!("The controller is not reachable: {why}."));
            page.line("This is what the API server has: the policy's status, as last written.");
            page.line("");
        }
        self.head(page);
        match self.unreachable {
            Some(_) => self.show_failing(page),
            None => self.show_nodes(page, style),
        }
        let items = self.nodes.iter().flat_map(|node| &node.items).map(|item| item.state.as_str());
        show_steps(page, self.policy.reasons().chain(items));
        self.stop.show_error(page);
    }
}

/// The order of the table: what has failed first, what is done last.
fn rank(node: &PolicyNodeView) -> u8 {
    let progress = NodeProgress::ALL.iter().find(|progress| progress.as_str() == node.progress);
    match progress {
        Some(NodeProgress::Failed) => 0,
        Some(NodeProgress::Unavailable) => 1,
        Some(NodeProgress::Sent | NodeProgress::Soaking | NodeProgress::Undoing) => 2,
        Some(NodeProgress::Unsupported) => 4,
        Some(NodeProgress::Done) if node.items.is_empty() => 6,
        Some(NodeProgress::Done) => 3,
        Some(NodeProgress::Queued) | None => 5,
    }
}

fn node_row(node: &PolicyNodeView, style: Style) -> Vec<String> {
    let canary = if node.is_canary { " (canary)" } else { "" };
    let due = if node.due == node.revision { "the same".to_owned() } else { or_none(&node.due) };
    vec![
        format!("{}{canary}", node.node),
        node.progress.clone(),
        or_none(&node.revision),
        due,
        cut(&node.message, MESSAGE, style),
    ]
}

fn item_row(node: &str, item: &ItemReport, style: Style) -> Vec<String> {
    vec![
        node.to_owned(),
        item.item.clone(),
        item.state.as_str().to_owned(),
        or_dash(cut(&item.current, VALUE, style)),
        or_dash(cut(&item.desired, VALUE, style)),
        cut(&item.message, MESSAGE, style),
    ]
}

fn or_none(revision: &str) -> String {
    if revision.is_empty() { "none".to_owned() } else { revision.to_owned() }
}

fn with_message(reason: &str, message: &str) -> String {
    let reason = if reason.is_empty() { "not known yet" } else { reason };
    if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") }
}
