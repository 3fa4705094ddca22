//! The next step of a reboot. Pure: the task's status, facts and times in, one action out.

use std::time::Duration;

use api::TaskReason;
use api::node_task::PROBLEMS_MAX;

use super::drain::Drain;
use super::facts::{
    AgentBoot, Cordon, Effect, End, FleetReadiness, LeaderPlace, Next, NodeFacts, RebootFacts, RebootRun, RebootStep,
    Refusal, ResetState, UNKNOWN_PROBLEMS,
};

const STOPPED: &str = "the stop switch is on";
const DISPUTED: &str = "another Node or its agent contradicts the instance in its providerID";

/// How long a node may take to prove itself after the reset. OCI waits 15 minutes for the system before it cuts the power; bare metal
/// tests its memory.
const PROOF_LIMIT: Duration = Duration::from_mins(30);
const PROOF_LIMIT_BARE_METAL: Duration = Duration::from_mins(45);
/// For how long the proof must hold.
const PROOF_HOLD: Duration = Duration::from_mins(2);
/// For how long the reset is requested. Far less than the 24 hours in which OCI knows the retry token.
const RESET_LIMIT: Duration = Duration::from_mins(10);
/// How long an accepted reset may have no visible effect: OCI waits 15 minutes for the shutdown.
const SHOW_LIMIT: Duration = Duration::from_mins(20);

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
        (RebootStep::Started | RebootStep::Cordoning | RebootStep::Draining, _) if run.is_canceled => {
            Next::End(End::Canceled)
        }
        (RebootStep::Started | RebootStep::Cordoning | RebootStep::Draining, None) => {
            fail(TaskReason::NodeGone, "it was not reset".to_owned())
        }
        (RebootStep::Cordoning | RebootStep::Draining, Some(_)) if !facts.is_enabled => {
            fail(TaskReason::NotEnabled, "it was not reset".to_owned())
        }
        (RebootStep::Started, Some(node)) => start(run, facts, node),
        (RebootStep::Cordoning, Some(node)) => cordon(facts, node),
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
    let record = &run.record;
    let Some(node) = node else { return Err("the Node is gone".to_owned()) };
    if node.boot_id == record.boot_id {
        return Err("its kubelet still reports the boot id from before".to_owned());
    }
    if !node.is_ready {
        return Err("the Node is not Ready".to_owned());
    }
    if node.instance.is_none_or(|instance| instance.as_str() != record.instance) {
        return Err("its providerID does not name the instance yet".to_owned());
    }
    let AgentBoot::Answered { boot_id, problems } = &node.agent else {
        return Err("its agent does not answer".to_owned());
    };
    if *boot_id == record.boot_id {
        return Err("its agent has not answered since the reboot".to_owned());
    }
    // A full record does not have all of them.
    let is_known = record.problems.len() < PROBLEMS_MAX && !record.problems.iter().any(|it| it == UNKNOWN_PROBLEMS);
    match problems.iter().find(|problem| is_known && !record.problems.contains(problem)) {
        Some(problem) => Err(format!("new critical problem: {problem}")),
        None => Ok(()),
    }
}

fn is_replaced(run: &RebootRun<'_>, node: &NodeFacts<'_>) -> bool {
    let recorded = run.record.instance;
    !recorded.is_empty() && node.instance.is_some_and(|instance| instance.as_str() != recorded)
}

/// Whether the Node names the instance that the status has. A status alone restarts nothing.
fn is_named(run: &RebootRun<'_>, node: &NodeFacts<'_>) -> bool {
    node.instance.is_some_and(|instance| instance.as_str() == run.record.instance)
}

fn start(run: &RebootRun<'_>, facts: &RebootFacts<'_>, node: &NodeFacts<'_>) -> Next {
    if node.cordon == Cordon::Foreign {
        return skip(TaskReason::Cordoned, "cordoned by another program or person".to_owned());
    }
    if let Some(mark) = &node.mark {
        return skip(mark.reason, mark.message.clone());
    }
    if node.instance.is_none() {
        return skip(TaskReason::NoInstance, "its providerID does not name an OCI instance".to_owned());
    }
    if node.is_disputed {
        return skip(TaskReason::NoInstance, DISPUTED.to_owned());
    }
    if run.record.instance.is_empty() {
        return Next::Enter { step: RebootStep::Started, is_recorded: true };
    }
    if node.boot_id.is_empty() {
        return skip(TaskReason::NotReady, "its kubelet reported no boot id".to_owned());
    }
    match node.agent {
        AgentBoot::Missing => {
            return fail(TaskReason::AgentSilent, "the node has no agent, so the reboot cannot be verified".to_owned());
        }
        AgentBoot::Pending => return Next::Wait("this leader has no report of the node's agent yet".to_owned()),
        AgentBoot::Silent | AgentBoot::Answered { .. } => {}
    }
    if facts.is_stopped {
        return Next::Wait(STOPPED.to_owned());
    }
    match obstacle(facts).or_else(|| leave_node(facts)) {
        Some(next) => next,
        None => Next::Enter { step: RebootStep::Cordoning, is_recorded: true },
    }
}

/// What delays the reboot: an operation on the node, a repair of OKE that cannot be excluded, another reboot, or too many nodes
/// that are not ready.
fn obstacle(facts: &RebootFacts<'_>) -> Option<Next> {
    let FleetReadiness { others, not_ready } = facts.fleet;
    if let Some(unit) = facts.node.as_ref().and_then(|node| node.operation) {
        return Some(Next::Wait(format!("{unit} runs on the node: a reboot would interrupt it")));
    }
    if let Some(why) = &facts.unknown_repair {
        return Some(Next::Wait(format!("OKE may repair the node: {why}")));
    }
    match &facts.other {
        Some(other) => Some(Next::Wait(format!("one reboot at a time: {other} comes first"))),
        None if facts.fleet.is_bad() => Some(Next::Wait(format!(
            "{not_ready} of {others} other nodes are not ready or cordoned by tasks, more than 10 %"
        ))),
        None => None,
    }
}

/// The Lease moves before the node of the leader is drained.
fn leave_node(facts: &RebootFacts<'_>) -> Option<Next> {
    match facts.leader {
        LeaderPlace::Elsewhere => None,
        LeaderPlace::Unknown => Some(Next::Wait("the node of the leader's Pod is not known yet".to_owned())),
        LeaderPlace::OnNode { has_successor: true } => Some(Next::Do(Effect::HandOver)),
        LeaderPlace::OnNode { has_successor: false } => Some(Next::Wait(
            "the leader runs on this node, and no replica of the controller is ready on another node".to_owned(),
        )),
    }
}

fn cordon(facts: &RebootFacts<'_>, node: &NodeFacts<'_>) -> Next {
    match node.cordon {
        Cordon::Own => Next::Enter { step: RebootStep::Draining, is_recorded: false },
        Cordon::Foreign => skip(TaskReason::Cordoned, "another program or person cordoned it first".to_owned()),
        Cordon::Absent | Cordon::Lifted => match (&node.mark, obstacle(facts)) {
            (Some(mark), _) => skip(mark.reason, mark.message.clone()),
            // Nothing was done yet, and another reboot may go first.
            (None, Some(_)) => Next::Enter { step: RebootStep::Started, is_recorded: false },
            (None, None) => Next::Do(Effect::Cordon),
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
    if let Ok(drain) = &facts.drain
        && let Some((pod, why)) = drain.kept.first()
    {
        return fail(TaskReason::DrainBlocked, format!("{pod}: {why}"));
    }
    let next = next_of_drain(facts, node);
    // Whatever it waits for.
    match &next {
        Next::Enter { .. } => next,
        _ if !run.is_over(run.drain_limit) => next,
        Next::Wait(why) => fail(TaskReason::DrainBlocked, why.clone()),
        _ => fail(TaskReason::DrainBlocked, facts.drain.as_ref().map(Drain::obstacle).unwrap_or_default()),
    }
}

fn next_of_drain(facts: &RebootFacts<'_>, node: &NodeFacts<'_>) -> Next {
    if facts.is_stopped {
        return Next::Wait(STOPPED.to_owned());
    }
    // Before its own Pod is evicted. A replica on the node may have become the leader during the drain.
    if let Some(next) = leave_node(facts) {
        return next;
    }
    match &facts.drain {
        Err(error) => Next::Wait(error.clone()),
        Ok(drain) if !drain.evictable.is_empty() => Next::Do(Effect::Evict),
        Ok(drain) if !drain.leaving.is_empty() => Next::Wait(drain.obstacle()),
        // Half of the fleet may have failed since the drain began.
        Ok(_) => match obstacle(facts) {
            Some(wait) => wait,
            None if node.is_disputed => skip(TaskReason::NoInstance, DISPUTED.to_owned()),
            None => Next::Enter { step: RebootStep::Resetting, is_recorded: true },
        },
    }
}

fn reset(run: &RebootRun<'_>, facts: &RebootFacts<'_>, node: Option<&NodeFacts<'_>>) -> Next {
    let proving = Next::Enter { step: RebootStep::Proving, is_recorded: false };
    if node.is_some_and(|node| !node.boot_id.is_empty() && node.boot_id != run.record.boot_id) {
        return proving;
    }
    match &facts.reset {
        ResetState::Accepted => proving,
        ResetState::Unsent { refusal } => unsent(run, facts, node, refusal.as_ref()),
        ResetState::Uncertain { refusal } => uncertain(run, node, refusal.as_ref()),
    }
}

/// Nothing reached OCI: everything can still be undone.
fn unsent(
    run: &RebootRun<'_>,
    facts: &RebootFacts<'_>,
    node: Option<&NodeFacts<'_>>,
    refusal: Option<&Refusal>,
) -> Next {
    if run.is_canceled {
        return Next::End(End::Canceled);
    }
    let Some(node) = node else { return fail(TaskReason::NodeGone, "it was not reset".to_owned()) };
    if facts.is_stopped || !facts.is_enabled || node.cordon != Cordon::Own {
        return Next::Enter { step: RebootStep::Draining, is_recorded: false };
    }
    if !is_named(run, node) {
        return Next::Wait("the Node's providerID does not name the instance".to_owned());
    }
    let is_late = run.elapsed > RESET_LIMIT;
    match refusal {
        Some(refusal) if is_late || !refusal.is_transient => fail(TaskReason::ResetRefused, refusal.message.clone()),
        None if is_late => Next::Enter { step: RebootStep::Draining, is_recorded: false },
        _ => Next::Do(Effect::Reset),
    }
}

/// OCI may have the request. It is sent again with the same token while OCI surely knows that; then it shows, or not.
fn uncertain(run: &RebootRun<'_>, node: Option<&NodeFacts<'_>>, refusal: Option<&Refusal>) -> Next {
    let is_sound = node.is_some_and(|node| node.is_ready && node.boot_id == run.record.boot_id);
    if run.is_canceled {
        return match run.is_over(SHOW_LIMIT) {
            true => Next::End(End::Canceled),
            false => Next::Wait("whether OCI has the reset is not known; it is not sent again".to_owned()),
        };
    }
    match refusal {
        _ if run.elapsed <= RESET_LIMIT && node.is_some_and(|node| is_named(run, node)) => Next::Do(Effect::Reset),
        _ if run.elapsed <= RESET_LIMIT => {
            Next::Wait("OCI may have the reset; the Node does not name the instance".to_owned())
        }
        // What another leader sent would have shown by now.
        Some(refusal) if is_sound && run.is_over(SHOW_LIMIT) => fail(TaskReason::ResetRefused, refusal.message.clone()),
        Some(refusal) if is_sound => Next::Wait(format!("OCI may have an earlier request; {}", refusal.message)),
        _ => Next::Enter { step: RebootStep::Proving, is_recorded: false },
    }
}

fn prove(run: &RebootRun<'_>, facts: &RebootFacts<'_>, node: Option<&NodeFacts<'_>>) -> Next {
    let is_bare_metal = node.is_some_and(|node| node.is_bare_metal);
    let limit = if is_bare_metal { PROOF_LIMIT_BARE_METAL } else { PROOF_LIMIT };
    let has_report = node.is_none_or(|node| node.agent != AgentBoot::Pending);
    match (proof(run, node), facts.proven_for) {
        (Ok(()), Some(held)) if held >= PROOF_HOLD && run.is_canceled => Next::End(End::Canceled),
        (Ok(()), Some(held)) if held >= PROOF_HOLD => Next::End(End::Succeeded),
        (Ok(()), held) => Next::Wait(format!("rebooted, and healthy for {} s", held.unwrap_or_default().as_secs())),
        (Err(missing), _) if run.is_over(limit) && has_report => match node {
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
