//! Carries a reboot out: observes, plans, applies the plan. An effect happens only in a step that the status has already.

use std::time::Duration;

use api::node_task::RunningNode;
use api::{Reason as _, TaskReason};
use kube::ResourceExt as _;
use resident::logging::chain;
use tokio::time::Instant;

use super::cordon::{cordon, uncordon};
use super::evict::evict;
use super::facts::{Cordon, Effect, End, Next, NodeFacts, RebootFacts, RebootRun, RebootStep, ResetState};
use super::observe::{entry, observe, run_of, step_of};
use super::plan::step;
use super::reset::{InstanceCheck, check, reset};
use crate::cluster::store::NodeView;
use crate::node_task::action::{ENDING, Next as TaskNext, STARTED, StepInput, TaskContext};

/// Between two rounds of evictions, as `kubectl drain` has it.
const EVICT_EVERY: Duration = Duration::from_secs(5);
/// The most evictions of one round.
const EVICTIONS_MAX: usize = 64;

/// Observes the node, and does what follows.
pub(in crate::node_task) async fn advance(context: &TaskContext, input: &StepInput) -> TaskNext {
    let Some(at) = step_of(&input.running).filter(|_| input.task.spec.node.as_ref() == Some(&input.running.node))
    else {
        let RunningNode { step, node, .. } = &input.running;
        return TaskNext::Failed(TaskReason::Unreadable, format!("the task has no step {step} on {node}"));
    };
    let (uid, owner) = identity(input);
    let memory = context.reboots.recall(&uid, &input.running, Instant::now());
    let run = run_of(context, input, at, &memory);
    let facts = observe(context, input, &run, &memory, &owner).await;
    match step(&run, &facts) {
        Next::Wait(why) => TaskNext::Wait(why),
        Next::Do(effect) => match carry_out(context, input, effect, &facts).await {
            Ok(why) => TaskNext::Wait(why),
            Err(end) => finish(end, &input.running.node, facts.is_enabled),
        },
        Next::Enter { step, is_recorded } => {
            enter(context, input, &run, step, facts.node.filter(|_| is_recorded)).await
        }
        Next::End(end) => finish(end, &input.running.node, facts.is_enabled),
    }
}

/// Removes our cordon. A reset that OCI may have is watched first: pods that come back would be killed by it.
pub(in crate::node_task) async fn undo(context: &TaskContext, input: &StepInput) -> Result<bool, String> {
    let (uid, owner) = identity(input);
    let is_kept = input.running.result == TaskReason::NotProven.as_str();
    if input.running.step == STARTED || is_kept {
        context.reboots.forget(&uid);
        return Ok(true);
    }
    if let Some(at @ (RebootStep::Resetting | RebootStep::Proving)) = step_of(&input.running) {
        match watch(context, input, at).await {
            None => return Ok(false),
            Some(End::FailedCordoned(..)) => return Ok(true),
            Some(_) => {}
        }
    }
    let is_cordoned = |view: &NodeView| matches!(Cordon::of(view, &owner), Cordon::Own | Cordon::Lifted);
    let is_cordoned = input.view.as_deref().is_some_and(is_cordoned);
    match uncordon(&context.client, &input.running.node, &owner).await {
        // Without the right there is no cordon either.
        Err(error) if error.code() == Some(403) && !is_cordoned => {}
        // The rights went with the setting: nothing can be removed any more.
        Err(error) if error.code() == Some(403) && !context.enabled.is_reboot => {
            tracing::warn!(
                event = "reboot.still_cordoned",
                node = input.running.node,
                "reboots are off: kubectl uncordon NODE"
            );
        }
        Err(error) => return Err(format!("kubectl uncordon {}: {}", input.running.node, chain(&error))),
        Ok(()) => {}
    }
    context.reboots.forget(&uid);
    Ok(true)
}

/// The task's uid, and the value of the annotation of its cordon.
fn identity(input: &StepInput) -> (String, String) {
    let uid = input.task.uid().unwrap_or_default();
    let owner = format!("{}/{uid}", input.task.name_any());
    (uid, owner)
}

/// How the reset of a deleted task ended, once it did.
async fn watch(context: &TaskContext, input: &StepInput, at: RebootStep) -> Option<End> {
    let (uid, owner) = identity(input);
    let memory = context.reboots.recall(&uid, &input.running, Instant::now());
    let mut run = run_of(context, input, at, &memory);
    // The status of a deleted task is not written any more.
    for step_now in [at, RebootStep::Proving] {
        run.step = step_now;
        let facts = observe(context, input, &run, &memory, &owner).await;
        match step(&run, &facts) {
            Next::End(end) => return Some(end),
            Next::Do(Effect::Unmark) => drop(carry_out(context, input, Effect::Unmark, &facts).await),
            Next::Enter { step: RebootStep::Proving, .. } => continue,
            Next::Enter { .. } | Next::Do(_) | Next::Wait(_) => {}
        }
        return None;
    }
    None
}

/// Writes the next step. Before the cordon and before the reset, OCI's view of the instance must agree.
async fn enter(
    context: &TaskContext,
    input: &StepInput,
    run: &RebootRun<'_>,
    next: RebootStep,
    recorded: Option<NodeFacts<'_>>,
) -> TaskNext {
    if let (RebootStep::Cordoning | RebootStep::Resetting, Some(view)) = (next, &input.view)
        && let Some(instance) = &view.instance
    {
        match check(&context.cloud, instance, view).await {
            InstanceCheck::Sound => {}
            InstanceCheck::Wrong(why) => return TaskNext::Skipped(TaskReason::NoInstance, why),
            InstanceCheck::Unknown(why) if run.step == RebootStep::Draining && run.is_over(run.drain_limit) => {
                return TaskNext::Failed(TaskReason::ResetRefused, why);
            }
            InstanceCheck::Unknown(why) => return TaskNext::Wait(why),
        }
    }
    if next == RebootStep::Resetting {
        let (uid, _) = identity(input);
        context.reboots.note(&uid, &input.running, |memory| memory.is_entering_reset = true);
    }
    TaskNext::Go(entry(input, next, recorded.as_ref()))
}

/// Returns what the node waits for then; the end where the rights are gone before anything was done.
async fn carry_out(
    context: &TaskContext,
    input: &StepInput,
    effect: Effect,
    facts: &RebootFacts<'_>,
) -> Result<String, End> {
    let (uid, owner) = identity(input);
    let (node, reboots) = (&input.running.node, &context.reboots);
    Ok(match effect {
        Effect::HandOver => {
            reboots.hand_over.notify_one();
            "the Lease moves to another replica".to_owned()
        }
        Effect::Cordon => match &input.view {
            Some(view) => match cordon(&context.client, view, &owner).await {
                Ok(()) => "cordoned".to_owned(),
                Err(error) if error.code() == Some(403) => {
                    return Err(End::Failed(TaskReason::NotEnabled, format!("cordon: {}", error.brief())));
                }
                Err(error) => format!("cordon: {}", chain(&error)),
            },
            None => "the Node is gone".to_owned(),
        },
        Effect::Unmark => match uncordon(&context.client, node, &owner).await {
            Ok(()) => "another program or person uncordoned the node".to_owned(),
            Err(error) => format!("remove the annotation: {}", chain(&error)),
        },
        Effect::Evict => {
            let Ok(drain) = &facts.drain else { return Ok("the pods are not known".to_owned()) };
            let last = reboots.recall(&uid, &input.running, Instant::now()).evicted;
            if last.is_none_or(|last| last.elapsed() >= EVICT_EVERY) {
                let pods = drain.evictable.iter().take(EVICTIONS_MAX).cloned().collect();
                let refusal = evict(&reboots.client, pods).await;
                let evicted = Some(Instant::now());
                reboots.note(&uid, &input.running, |memory| (memory.refusal, memory.evicted) = (refusal, evicted));
            }
            drain.obstacle()
        }
        Effect::Reset => {
            let Ok(instance) = input.running.instance.parse() else { return Ok("no instance is recorded".to_owned()) };
            // This call may be dropped while OCI has the request.
            reboots.note(&uid, &input.running, |memory| memory.reset = ResetState::Uncertain { refusal: None });
            let known = reset(&context.cloud, &instance, &uid, &facts.reset).await;
            tracing::info!(event = "reboot.reset", node, instance = %instance, state = ?known);
            reboots.note(&uid, &input.running, |memory| memory.reset = known);
            "the reset is requested".to_owned()
        }
    })
}

/// Without the rights of reboots, the cordon may stay.
pub(super) fn finish(end: End, node: &str, is_enabled: bool) -> TaskNext {
    let advice = if is_enabled { String::new() } else { format!("reboots are off: kubectl uncordon {node}; ") };
    match end {
        End::Succeeded => TaskNext::Succeeded(format!("{advice}rebooted, and healthy for 2 minutes")),
        End::Failed(reason, message) => TaskNext::Failed(reason, format!("{advice}{message}")),
        End::FailedCordoned(reason, message) => TaskNext::Failed(reason, format!("still cordoned: {message}")),
        End::Skipped(reason, message) => TaskNext::Skipped(reason, message),
        // Only a deleted task is canceled, and that is undone.
        End::Canceled => TaskNext::Wait(ENDING.to_owned()),
    }
}
