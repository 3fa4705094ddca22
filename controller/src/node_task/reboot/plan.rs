//! The next step of a reboot. Pure: the task's status, facts and times in, one action out.

use std::time::Duration;

use api::TaskReason;
use api::node_task::PROBLEMS_MAX;

use super::facts::{
    AgentBoot, Cordon, Effect, End, LeaderPlace, Next, NodeFacts, RebootFacts, RebootRun, RebootStep, ResetState,
};

/// How long a node may take to prove itself after the reset. OCI waits 15 minutes for the system before it cuts the power; bare metal
/// tests its memory.
const PROOF_LIMIT: Duration = Duration::from_mins(30);
const PROOF_LIMIT_BARE_METAL: Duration = Duration::from_mins(45);
/// For how long the proof must hold.
const PROOF_HOLD: Duration = Duration::from_mins(2);
/// For how long the reset is requested. Far less than the 24 hours in which OCI knows the retry token.
const RESET_LIMIT: Duration = Duration::from_mins(10);
/// How long a reset that may have been requested takes to show, if the task is deleted meanwhile: OCI's 15 minutes, and some to boot.
const CANCELED_LIMIT: Duration = Duration::from_mins(20);

/// The next step.
pub(crate) fn step(run: &RebootRun<'_>, facts: &RebootFacts<'_>) -> Next {
    if let Some(node) = &facts.node
        && is_replaced(run, node)
    {
        let message = format!("the Node has the instance {}", node.instance.map_or("", |id| id.as_str()));
        return fail(TaskReason::Replaced, message);
    }
    if matches!(run.step, RebootStep::Resetting | RebootStep::Proving)
        && facts.node.as_ref().is_some_and(|node| node.cordon == Cordon::Lifted)
    {
        return Next::Do(Effect::Unmark);
    }
    match (run.step, &facts.node) {
        (RebootStep::Waiting | RebootStep::Cordoning | RebootStep::Draining, _) if run.is_canceled => {
            Next::End(End::Canceled)
        }
        (RebootStep::Waiting | RebootStep::Cordoning | RebootStep::Draining, None) => {
            fail(TaskReason::NodeGone, "it was not reset".to_owned())
        }
        (RebootStep::Waiting, Some(node)) => start(run, facts, node),
        (RebootStep::Cordoning, Some(node)) => cordon(node),
        (RebootStep::Draining, Some(node)) => drain(run, facts, node),
        (RebootStep::Resetting, node) => reset(run, facts, node.as_ref()),
        (RebootStep::Proving, node) => prove(run, facts, node.as_ref()),
    }
}

/// Why the node is not proven yet.
///
/// # Errors
/// With the first thing that is missing.
pub(crate) fn proof(run: &RebootRun<'_>, node: Option<&NodeFacts<'_>>) -> Result<(), String> {
    let Some(node) = node else { return Err("the Node is gone".to_owned()) };
    if node.boot_id == run.record.boot_id {
        return Err("its kubelet reports the boot id from before".to_owned());
    }
    if !node.is_ready {
        return Err("the Node is not Ready".to_owned());
    }
    let AgentBoot::Answered { boot_id, problems } = &node.agent else {
        return Err("its agent does not answer".to_owned());
    };
    if *boot_id == run.record.boot_id {
        return Err("its agent has not answered since the reboot".to_owned());
    }
    // A full record does not have all of them.
    let is_whole = run.record.problems.len() < PROBLEMS_MAX;
    match problems.iter().find(|problem| is_whole && !run.record.problems.contains(problem)) {
        Some(problem) => Err(format!("new critical problem: {problem}")),
        None => Ok(()),
    }
}

fn is_replaced(run: &RebootRun<'_>, node: &NodeFacts<'_>) -> bool {
    let is_recorded = run.step != RebootStep::Waiting && !run.record.instance.is_empty();
    is_recorded && node.instance.is_some_and(|instance| instance.as_str() != run.record.instance)
}

fn start(run: &RebootRun<'_>, facts: &RebootFacts<'_>, node: &NodeFacts<'_>) -> Next {
    if node.cordon == Cordon::Foreign {
        return skip(TaskReason::Cordoned, "cordoned by another program or person".to_owned());
    }
    if let Some(mark) = &node.mark {
        return skip(mark.reason, mark.message.clone());
    }
    if node.instance.is_none() {
        return skip(TaskReason::NoInstance, "its providerID names no OCI instance".to_owned());
    }
    if node.boot_id.is_empty() {
        return skip(TaskReason::NotReady, "its kubelet reported no boot id".to_owned());
    }
    match node.agent {
        AgentBoot::Missing => {
            return fail(TaskReason::AgentSilent, "without an agent, the reboot has no proof".to_owned());
        }
        AgentBoot::Pending => return Next::Wait("this leader has not heard of the node's agent yet".to_owned()),
        AgentBoot::Silent | AgentBoot::Answered { .. } => {}
    }
    if facts.is_stopped {
        return Next::Wait("the stop switch is on".to_owned());
    }
    if facts.fleet.is_bad() {
        let (not_ready, others) = (facts.fleet.not_ready, facts.fleet.others);
        return Next::Wait(format!("{not_ready} of {others} other nodes are not ready, more than 10 %"));
    }
    leave_node(run, facts).unwrap_or(Next::Enter { step: RebootStep::Cordoning, is_recorded: true })
}

/// The Lease moves before the node of the leader is drained.
fn leave_node(run: &RebootRun<'_>, facts: &RebootFacts<'_>) -> Option<Next> {
    match facts.leader {
        LeaderPlace::Elsewhere => None,
        LeaderPlace::Unknown => Some(Next::Wait("where the leader's Pod runs is not known yet".to_owned())),
        LeaderPlace::OnNode { has_successor: true } => Some(Next::Do(Effect::HandOver)),
        LeaderPlace::OnNode { has_successor: false } => {
            let message = "the leader runs on it, and no other replica of the controller is ready".to_owned();
            Some(if run.elapsed > run.drain_limit {
                fail(TaskReason::DrainBlocked, message)
            } else {
                Next::Wait(message)
            })
        }
    }
}

fn cordon(node: &NodeFacts<'_>) -> Next {
    match node.cordon {
        Cordon::Own => Next::Enter { step: RebootStep::Draining, is_recorded: false },
        Cordon::Foreign => skip(TaskReason::Cordoned, "another program or person cordoned it first".to_owned()),
        Cordon::Absent | Cordon::Lifted => match &node.mark {
            Some(mark) => skip(mark.reason, mark.message.clone()),
            None => Next::Do(Effect::Cordon),
        },
    }
}

fn drain(run: &RebootRun<'_>, facts: &RebootFacts<'_>, node: &NodeFacts<'_>) -> Next {
    if let Some(mark) = node.mark.as_ref().filter(|mark| !mark.may_follow_drain) {
        return skip(mark.reason, mark.message.clone());
    }
    if node.cordon != Cordon::Own {
        return skip(TaskReason::Cordoned, "another program or person changed the cordon during the drain".to_owned());
    }
    let drain = match &facts.drain {
        Ok(drain) => drain,
        Err(error) if run.elapsed > run.drain_limit => return fail(TaskReason::DrainBlocked, error.clone()),
        Err(error) => return Next::Wait(error.clone()),
    };
    if let Some(pod) = drain.unmanaged.first() {
        let more = drain.unmanaged.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
        return fail(
            TaskReason::DrainBlocked,
            format!("no controller would recreate the pod {pod}{more}: delete it first"),
        );
    }
    let is_empty = drain.evictable.is_empty() && drain.leaving.is_empty();
    if run.elapsed > run.drain_limit && !is_empty {
        return fail(TaskReason::DrainBlocked, drain.obstacle());
    }
    if facts.is_stopped {
        return Next::Wait("the stop switch is on".to_owned());
    }
    // Before its own Pod is evicted. A replica on the node may have become the leader during the drain.
    if let Some(next) = leave_node(run, facts) {
        return next;
    }
    if !drain.evictable.is_empty() {
        return Next::Do(Effect::Evict);
    }
    match is_empty {
        true => Next::Enter { step: RebootStep::Resetting, is_recorded: true },
        false => Next::Wait(drain.obstacle()),
    }
}

fn reset(run: &RebootRun<'_>, facts: &RebootFacts<'_>, node: Option<&NodeFacts<'_>>) -> Next {
    let proving = Next::Enter { step: RebootStep::Proving, is_recorded: false };
    if node.is_some_and(|node| !node.boot_id.is_empty() && node.boot_id != run.record.boot_id) {
        return proving;
    }
    let is_over = run.elapsed > RESET_LIMIT;
    match &facts.reset {
        ResetState::Accepted => proving,
        ResetState::Unsent { .. } if run.is_canceled => Next::End(End::Canceled),
        ResetState::Unsent { .. } if node.is_none() => fail(TaskReason::NodeGone, "it was not reset".to_owned()),
        ResetState::Unsent { .. } if facts.is_stopped || node.is_some_and(|node| node.cordon != Cordon::Own) => {
            Next::Enter { step: RebootStep::Draining, is_recorded: false }
        }
        ResetState::Unsent { refusal: Some(refusal) } if is_over || !refusal.is_transient => {
            fail(TaskReason::ResetRefused, refusal.message.clone())
        }
        ResetState::Unsent { .. } => Next::Do(Effect::Reset),
        ResetState::Uncertain if run.is_canceled && run.elapsed > CANCELED_LIMIT => Next::End(End::Canceled),
        ResetState::Uncertain if run.is_canceled => {
            Next::Wait("whether OCI has the reset is not known; it is not sent again".to_owned())
        }
        ResetState::Uncertain if is_over => proving,
        ResetState::Uncertain => Next::Do(Effect::Reset),
    }
}

fn prove(run: &RebootRun<'_>, facts: &RebootFacts<'_>, node: Option<&NodeFacts<'_>>) -> Next {
    let is_bare_metal = node.is_some_and(|node| node.is_bare_metal);
    let limit = if is_bare_metal { PROOF_LIMIT_BARE_METAL } else { PROOF_LIMIT };
    match (proof(run, node), facts.proven_for) {
        (Ok(()), Some(held)) if held >= PROOF_HOLD && run.is_canceled => Next::End(End::Canceled),
        (Ok(()), Some(held)) if held >= PROOF_HOLD => Next::End(End::Succeeded),
        (Ok(()), held) => Next::Wait(format!("rebooted, and healthy for {} s", held.unwrap_or_default().as_secs())),
        (Err(missing), _) if run.elapsed > limit => match node {
            Some(_) => Next::End(End::FailedCordoned(TaskReason::NotProven, missing)),
            None => fail(TaskReason::NodeGone, "it was reset, and did not come back".to_owned()),
        },
        (Err(missing), _) => Next::Wait(format!("reset; {missing}")),
    }
}

fn fail(reason: TaskReason, message: String) -> Next {
    Next::End(End::Failed(reason, message))
}

fn skip(reason: TaskReason, message: String) -> Next {
    Next::End(End::Skipped(reason, message))
}
