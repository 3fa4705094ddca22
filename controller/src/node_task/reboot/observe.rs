//! Reads what the plan of a reboot needs.

use std::time::Duration;

use api::Received;
use api::node_task::{PROBLEM_MAX, PROBLEMS_MAX, RunningNode};
use health::Summary;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::ApiResource;
use kube::{Api, Client};
use tokio::time::Instant;

use super::drain::{Drain, DrainRules, DrainedPod};
use super::facts::{
    AgentBoot, Cordon, FleetReadiness, LeaderPlace, Mark, NodeFacts, RebootFacts, RebootRecord, RebootRun, RebootStep,
    UNKNOWN_PROBLEMS,
};
use super::plan::proof;
use crate::cluster::replicas::replicas;
use crate::cluster::request::send;
use crate::cluster::store::NodeView;
use crate::fleet::judge::AgentFacts;
use crate::fleet::roster::AgentView;
use crate::node_task::action::{ENDING, STARTED, StepInput, TaskContext};
use crate::node_task::reboot_state::RebootMemory;

/// Namespaces of our own short-lived Pods: those of network tests and of operations.
const OWN_NAMESPACES: [&str; 2] = ["oke-node-manager-probes", "oke-node-tasks"];
/// The most pods of a node that are read. Kubelets run 250 at most, unless they are configured otherwise.
const PODS_MAX: u32 = 2000;
/// Where a summary has no shape.
const SHAPE_LABEL: &str = "node.kubernetes.io/instance-type";

/// The reboot as its status has it.
pub(crate) fn run_of<'a>(
    context: &TaskContext,
    input: &'a StepInput,
    step: RebootStep,
    memory: &RebootMemory,
) -> RebootRun<'a> {
    let now = Instant::now();
    let uid = input.task.metadata.uid.as_deref().unwrap_or_default();
    let elapsed = |since| context.ages.of(uid, since, input.now, now);
    let RunningNode { before, instance, problems, since, .. } = &input.running;
    RebootRun {
        step,
        elapsed: since.as_ref().map_or(Duration::MAX, elapsed),
        watched: now.saturating_duration_since(memory.watched_since),
        drain_limit: input.task.spec.action.reboot.unwrap_or_default().drain_limit(),
        record: RebootRecord { boot_id: before, instance, problems: problems.clone() },
        is_canceled: input.task.metadata.deletion_timestamp.is_some(),
    }
}

/// What is known at the moment.
pub(crate) async fn observe<'a>(
    context: &TaskContext,
    input: &'a StepInput,
    run: &RebootRun<'_>,
    memory: &RebootMemory,
    owner: &str,
) -> RebootFacts<'a> {
    let node = input.view.as_deref().map(|view| node_facts(context, input, view, owner));
    let other = other(input, run.step);
    let needs_leader = run.step == RebootStep::Draining || run.step == RebootStep::Started && other.is_none();
    let leader = if needs_leader { leader_place(context, &input.running.node).await } else { LeaderPlace::Unknown };
    let drain = match (run.step, &node) {
        (RebootStep::Draining, Some(node)) => pods(&context.client, input, node.is_ready).await,
        _ => Ok(Drain::default()),
    };
    let mut facts = RebootFacts {
        node,
        fleet: readiness(context, &input.running.node),
        leader,
        other,
        unknown_repair: context.reboots.repair.unknown(),
        drain: drain.map(|drain| drain.refused(memory.refusal.as_ref())),
        reset: memory.reset.clone(),
        proven_for: None,
        is_stopped: input.is_stopped,
        is_enabled: context.enabled.is_reboot,
    };
    if run.step == RebootStep::Proving {
        facts.proven_for = proven_for(context, input, run, &facts, memory);
    }
    facts
}

/// For how long the proof has held, counted between answers of the agent; it is polled more often meanwhile.
fn proven_for(
    context: &TaskContext,
    input: &StepInput,
    run: &RebootRun<'_>,
    facts: &RebootFacts<'_>,
    memory: &RebootMemory,
) -> Option<Duration> {
    const POLL: Duration = Duration::from_secs(15);
    let node = &input.running.node;
    let (answered, is_moved) = {
        let mut roster = context.roster.lock();
        (roster.last_answer(node), roster.poll_within(node, POLL, Instant::now()))
    };
    if is_moved {
        context.roster.changed().notify_one();
    }
    let answered = answered.filter(|_| proof(run, facts.node.as_ref()).is_ok());
    let since = answered.map(|answered| memory.proven_since.unwrap_or(answered));
    let uid = input.task.metadata.uid.as_deref().unwrap_or_default();
    context.reboots.note(uid, &input.running, |memory| memory.proven_since = since);
    Some(answered?.saturating_duration_since(since?))
}

fn node_facts<'a>(context: &TaskContext, input: &'a StepInput, view: &'a NodeView, owner: &str) -> NodeFacts<'a> {
    let (summary, agent) = match &input.agent {
        AgentView::Pending => (None, AgentBoot::Pending),
        AgentView::Silent => (None, silent(context, &view.name)),
        AgentView::Answered(summary) => (Some(&**summary), boot_of(summary)),
    };
    let label = || view.labels.map().get(SHAPE_LABEL).cloned();
    let shape = summary.and_then(|summary| summary.shape.clone()).or_else(label).unwrap_or_default();
    let is_claimed = view
        .instance
        .as_ref()
        .is_some_and(|instance| context.store.nodes().of(instance).is_some_and(|senior| senior.name != view.name));
    let reported = summary.and_then(|summary| summary.instance.as_deref());
    let is_contradicted =
        reported.zip(view.instance.as_ref()).is_some_and(|(reported, named)| reported != named.as_str());
    NodeFacts {
        instance: view.instance.as_ref(),
        is_bare_metal: shape.starts_with("BM."),
        boot_id: &view.boot_id,
        is_ready: view.kubelet.is_none(),
        cordon: Cordon::of(view, owner),
        is_disputed: is_claimed || is_contradicted,
        mark: Mark::of(view, context.reboots.repair.of(view).as_deref()),
        agent,
        operation: summary.and_then(|summary| summary.operation_units.first()).map(String::as_str),
    }
}

fn silent(context: &TaskContext, node: &str) -> AgentBoot {
    match context.roster.lock().facts(node, Instant::now()) {
        AgentFacts::Silent { has_agent: false } => AgentBoot::Missing,
        _ => AgentBoot::Silent,
    }
}

fn boot_of(summary: &Summary) -> AgentBoot {
    let problems = summary.critical_problems().map(|problem| problem.chars().take(PROBLEM_MAX).collect());
    AgentBoot::Answered { boot_id: summary.boot_id.clone().unwrap_or_default(), problems: problems.collect() }
}

/// The next entry of the status: the step, and the node as it is now.
pub(crate) fn entry(input: &StepInput, step: RebootStep, node: Option<&NodeFacts<'_>>) -> RunningNode {
    let mut entry = RunningNode { step: step.as_str().to_owned(), ..input.running.clone() };
    let Some(node) = node else { return entry };
    if entry.instance.is_empty() {
        entry.instance = node.instance.map(ToString::to_string).unwrap_or_default();
    }
    node.boot_id.clone_into(&mut entry.before);
    match &node.agent {
        AgentBoot::Answered { problems, .. } => entry.problems = problems.iter().take(PROBLEMS_MAX).cloned().collect(),
        // What was recorded at the start stays.
        _ if entry.problems.is_empty() => entry.problems = vec![UNKNOWN_PROBLEMS.to_owned()],
        _ => {}
    }
    entry
}

/// The node whose reboot comes first, among those that began: the one that is further, then by the uid of its task.
fn other(input: &StepInput, step: RebootStep) -> Option<String> {
    let rank = |step: &str| match RebootStep::from_word(step) {
        Some(step) => RebootStep::ALL.iter().position(|it| *it == step).unwrap_or_default(),
        None => RebootStep::ALL.len(),
    };
    let own = (std::cmp::Reverse(rank(step.as_str())), input.task.metadata.uid.clone().unwrap_or_default());
    let first = input.reboots.iter().filter(|other| other.step != ENDING && other.step != STARTED);
    first
        .map(|other| ((std::cmp::Reverse(rank(&other.step)), other.uid.clone()), other))
        .filter(|(order, _)| *order < own)
        .map(|(_, other)| other.node.clone())
        .next()
}

fn readiness(context: &TaskContext, node: &str) -> FleetReadiness {
    let nodes = context.store.nodes();
    let mut readiness = FleetReadiness::default();
    for view in nodes.iter().filter(|view| view.name != node) {
        readiness.others += 1;
        readiness.not_ready += usize::from(view.kubelet.is_some() || view.unschedulable && view.cordoned_by.is_some());
    }
    readiness
}

/// Where this leader runs; another replica counts only on a node that stays.
async fn leader_place(context: &TaskContext, node: &str) -> LeaderPlace {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &context.namespace);
    let Ok(replicas) = replicas(&pods).await else { return LeaderPlace::Unknown };
    // One that runs outside the cluster has no Pod.
    if replicas.iter().all(|replica| replica.pod != context.identity || replica.node != node) {
        return LeaderPlace::Elsewhere;
    }
    let nodes = context.store.nodes();
    let is_sound = |name: &str| nodes.named(name).is_some_and(|view| view.kubelet.is_none() && !view.unschedulable);
    let has_successor = replicas
        .iter()
        .any(|other| other.pod != context.identity && other.node != node && other.is_ready && is_sound(&other.node));
    LeaderPlace::OnNode { has_successor }
}

async fn pods(client: &Client, input: &StepInput, is_node_ready: bool) -> Result<Drain, String> {
    let kind = ApiResource::erase::<Pod>(&());
    let api: Api<Received<DrainedPod>> = Api::all_with(client.clone(), &kind);
    let params = ListParams::default().fields(&format!("spec.nodeName={}", input.running.node)).limit(PODS_MAX);
    let listed = send(api.list(&params)).await.map_err(|error| format!("list the node's pods: {}", error.brief()))?;
    if listed.metadata.continue_.as_deref().is_some_and(|token| !token.is_empty()) {
        return Err(format!("the node has more than {PODS_MAX} pods"));
    }
    let reboot = input.task.spec.action.reboot.unwrap_or_default();
    let is_own = |namespace: &str| OWN_NAMESPACES.contains(&namespace);
    Ok(Drain::of(listed.items, DrainRules { reboot, is_node_ready, now: input.now, is_own }))
}

/// The step of a reboot that a status names.
pub(crate) fn step_of(running: &RunningNode) -> Option<RebootStep> {
    debug_assert_eq!(RebootStep::Started.as_str(), STARTED);
    RebootStep::from_word(&running.step)
}
