//! Golden cases: folders of controller/golden/rollout. `policy.yaml` and `nodes.yaml` have what differs from an unproven target
//! `new`, after `old`, on nodes that answered; `plan.txt` has what changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use api::node_policy::{FailingNode, PolicyRemoval, Rollout, StableRevision};
use api::{NodePolicyStatus, PolicyReason, Reason as _};
use serde::Deserialize;
use tunables::{DocumentMode, PolicyState};

use super::*;
use crate::node_policy::facts::{AgentState, HeldRevision, NodeFault, SentRevision};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct PolicyCase {
    report: bool,
    paused: bool,
    leaving: bool,
    keep: bool,
    rollout: Rollout,
    /// The stable revision; empty without any.
    stable: String,
    rejected: bool,
    canaries: Vec<String>,
    failing: Vec<FailingNode>,
    /// Canaries that this leader sent nothing.
    unsent: BTreeSet<String>,
    stopped: bool,
    cut_off: bool,
    unknown: bool,
}

impl Default for PolicyCase {
    fn default() -> Self {
        Self {
            report: false,
            paused: false,
            leaving: false,
            keep: false,
            rollout: Rollout::default(),
            stable: "old".to_owned(),
            rejected: false,
            canaries: Vec::new(),
            failing: Vec::new(),
            unsent: BTreeSet::new(),
            stopped: false,
            cut_off: false,
            unknown: false,
        }
    }
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct NodeCase {
    /// Names with a space between them, or `a1..a9`.
    nodes: String,
    has: String,
    report: bool,
    kept: bool,
    state: String,
    sent: Option<String>,
    applied_for: Option<u64>,
    soaked: bool,
    agent: String,
    not_ready: bool,
    fault: Option<String>,
    busy: bool,
    deselected: bool,
    /// Sent by this leader.
    joined: bool,
    incomplete: bool,
}

impl Default for NodeCase {
    fn default() -> Self {
        Self {
            nodes: String::new(),
            has: "old".to_owned(),
            report: false,
            kept: false,
            state: "Applied".to_owned(),
            sent: None,
            applied_for: None,
            soaked: false,
            agent: "Answered".to_owned(),
            not_ready: false,
            fault: None,
            busy: false,
            deselected: false,
            joined: false,
            incomplete: false,
        }
    }
}

fn names_of(text: &str) -> Vec<String> {
    match text.split_once("..") {
        Some((first, last)) => {
            let letters = first.trim_end_matches(|char: char| char.is_ascii_digit());
            let number = |name: &str| name[letters.len()..].parse::<u32>().unwrap();
            (number(first)..=number(last)).map(|number| format!("{letters}{number}")).collect()
        }
        None => text.split_whitespace().map(str::to_owned).collect(),
    }
}

impl NodeCase {
    fn mode(&self) -> DocumentMode {
        match (self.kept, self.report) {
            (true, _) => DocumentMode::Keep,
            (false, true) => DocumentMode::Report,
            (false, false) => DocumentMode::Apply,
        }
    }

    fn facts<'a>(&'a self, name: &'a str) -> NodeFacts<'a> {
        let agent = match self.agent.as_str() {
            "Answered" => AgentState::Answered,
            "Silent" | "Lost" => AgentState::Silent,
            "Pending" => AgentState::Pending,
            "Unsupported" => AgentState::Unsupported,
            other => panic!("{other}"),
        };
        let state = PolicyState::from_word(&self.state).unwrap();
        let held = HeldRevision { revision: &self.has, mode: self.mode(), state };
        let fault = self.fault.as_deref().map(|fault| {
            let (reason, item) = fault.split_once(' ').unwrap_or((fault, ""));
            NodeFault { reason: PolicyReason::from_word(reason).unwrap(), item: item.to_owned() }
        });
        NodeFacts {
            name,
            is_selected: !self.deselected,
            agent,
            is_answer_known: self.agent != "Lost",
            held: (!self.has.is_empty() || self.kept).then_some(held),
            sent: self.sent.as_deref().map(|revision| SentRevision { revision, mode: DocumentMode::Apply }),
            applied_for: self.applied_for.map(Duration::from_secs),
            is_soaked: self.soaked,
            is_new: self.joined,
            is_incomplete: self.incomplete,
            lacks_files: false,
            is_ready: !self.not_ready,
            fault,
            is_busy: self.busy,
        }
    }
}

fn status(case: &PolicyCase) -> NodePolicyStatus {
    let stable = StableRevision { revision: case.stable.clone(), ..StableRevision::default() };
    NodePolicyStatus {
        target: "new".to_owned(),
        rejected: if case.rejected { "new".to_owned() } else { String::new() },
        canaries: case.canaries.clone(),
        stable: (!case.stable.is_empty()).then_some(stable),
        failing: case.failing.clone(),
        ..NodePolicyStatus::default()
    }
}

fn run(case: &PolicyCase, nodes: &[NodeCase]) -> String {
    let written = status(case);
    let named: Vec<(String, &NodeCase)> =
        nodes.iter().flat_map(|case| names_of(&case.nodes).into_iter().map(move |name| (name, case))).collect();
    let facts: Vec<NodeFacts<'_>> = named.iter().map(|(name, case)| case.facts(name)).collect();
    let policy = PolicyFacts {
        target: "new",
        is_report: case.report,
        rules: case.rollout,
        written: &written,
        is_paused: case.paused,
        is_leaving: case.leaving,
        replaceable: &case.unsent,
        on_delete: if case.keep { PolicyRemoval::Keep } else { PolicyRemoval::Restore },
    };
    let fleet = FleetFacts { is_stopped: case.stopped, is_cut_off: case.cut_off, is_known: !case.unknown };
    let plan = plan(policy, &facts, fleet);
    let before: BTreeMap<&str, &str> = facts.iter().map(|node| (node.name, node.revision())).collect();
    show(&plan, &before, &case.stable)
}

fn show(plan: &RolloutPlan, before: &BTreeMap<&str, &str>, stable: &str) -> String {
    let mut text = format!("{}: {}\n", plan.progress.as_str(), plan.about.join(" "));
    for (node, due) in &plan.due {
        let revision = match due {
            DueRevision::Target => "new",
            DueRevision::Stable => stable,
            DueRevision::Absent => "",
            DueRevision::Keep => "keep",
            DueRevision::Unknown => continue,
        };
        if before[node.as_str()] != revision {
            let shown = if revision.is_empty() { "nothing" } else { revision };
            writeln!(text, "send {node}: {shown}").unwrap();
        }
    }
    for NodeFailure { node, item, reason } in &plan.failed {
        writeln!(text, "failed {node}: {} {item}", reason.as_str()).unwrap();
    }
    for (what, list) in [("canaries", plan.canaries.clone()), ("in flight", plan.in_flight.iter().cloned().collect())] {
        if !list.is_empty() {
            writeln!(text, "{what}: {}", list.join(" ")).unwrap();
        }
    }
    let flags = [("rejected", !plan.rejected.is_empty()), ("complete", plan.is_complete), ("gone", plan.is_gone)];
    for (what, _) in flags.iter().filter(|(_, is_set)| *is_set) {
        writeln!(text, "{what}").unwrap();
    }
    text.replace(" \n", "\n")
}

#[test]
fn plan_of_each_golden_case_is_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/rollout");
    let mut cases: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 30, "{}", cases.len());
    let mut differing = Vec::new();
    for case in cases {
        let read = |file: &str| fs::read_to_string(case.join(file)).unwrap_or_default();
        let policy: PolicyCase = serde_yaml_ng::from_str(&read("policy.yaml")).unwrap_or_default();
        let nodes: Vec<NodeCase> = serde_yaml_ng::from_str(&read("nodes.yaml")).unwrap();
        let found = run(&policy, &nodes);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(case.join("plan.txt"), &found).unwrap();
        }
        if read("plan.txt") != found {
            differing.push(format!("{}\n{found}", case.display()));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
