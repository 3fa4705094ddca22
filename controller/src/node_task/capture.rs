//! Captures of one node: its agent makes them, keeps them and sends them. The engine starts one, follows it, and removes it when the task
//! is deleted; the file goes to the user by the leader's view ([`crate::fleet::capture`]).

use std::time::Duration;

use api::TaskReason;
use api::capture::{AGENT_CAPTURES_PATH, CAPTURE_TTL_MAX, CaptureProgress, CaptureRequest, CaptureStart};
use api::node_task::RunningNode;
use channel::{Reply, Request};
use kube::ResourceExt as _;
use resident::logging::chain;

use super::action::{Next, STARTED, StepInput, TaskContext};
use crate::fleet::roster::AgentView;

/// The step in which the agent captures.
const CAPTURING: &str = "Capturing";
/// For one request to an agent.
const REQUEST: Duration = Duration::from_secs(20);

/// What the agent answered.
#[derive(Debug, PartialEq, Eq)]
enum Observed {
    /// It could start.
    Possible,
    Progress(CaptureProgress),
    Refused(Refusal),
    Unreachable(String),
}

/// An answer that is not a success.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    status: u16,
    text: String,
}

/// Queries the agent, and decides the next step.
pub(super) async fn advance(context: &TaskContext, input: &StepInput) -> Next {
    if input.task.spec.action.capture.as_ref().is_some_and(|capture| capture.logs.is_some()) {
        // Logs need a Pod that reads the journal, which does not exist yet.
        return Next::Failed(TaskReason::Unsupported, "this version of the controller captures no logs".to_owned());
    }
    let request = match (input.running.step.as_str(), start(input)) {
        (STARTED, Some(start)) => post(&CaptureRequest::Check(start)),
        _ => Request::get(format!("{AGENT_CAPTURES_PATH}/{}", uid(input))),
    };
    let observed = match send(context, input, request).await {
        Err(error) => Observed::Unreachable(error),
        Ok(reply) if reply.status != 200 => Observed::Refused(refusal(&reply)),
        Ok(_) if input.running.step == STARTED => Observed::Possible,
        Ok(reply) => match serde_json::from_slice(&reply.body) {
            Ok(progress) => Observed::Progress(progress),
            Err(error) => Observed::Unreachable(format!("read its answer: {error}")),
        },
    };
    step(input, observed)
}

/// Starts the capture. One that runs goes on.
pub(super) async fn apply(context: &TaskContext, input: &StepInput) -> Result<(), String> {
    let start = start(input).ok_or("the task is not a capture")?;
    let reply = send(context, input, post(&CaptureRequest::Start(start))).await?;
    if reply.status >= 500 {
        return Err(refusal(&reply).text);
    }
    if reply.status != 200 {
        // The agent's check passed a moment ago. The next step notices if the capture is missing.
        tracing::warn!(event = "capture.refused", node = input.running.node, error = refusal(&reply).text);
    }
    Ok(())
}

/// Removes the capture. An agent that does not answer or refuses removes it after its time, or at its next start: no task waits for it.
pub(super) async fn undo(context: &TaskContext, input: &StepInput) -> Result<bool, String> {
    match &input.agent {
        _ if input.view.is_none() => return Ok(true),
        AgentView::Silent => return Ok(true),
        AgentView::Pending | AgentView::Answered(_) => {}
    }
    let reply = send(context, input, post(&CaptureRequest::Remove { uid: uid(input) })).await?;
    match reply.status {
        200 | 404 => Ok(true),
        status => {
            let (node, text) = (&input.running.node, refusal(&reply).text);
            tracing::warn!(
                event = "node_task.capture_left",
                node,
                status,
                error = text,
                "the agent removes it after its time"
            );
            Ok(true)
        }
    }
}

fn step(input: &StepInput, observed: Observed) -> Next {
    let is_started = input.running.step == STARTED;
    match observed {
        Observed::Possible => Next::Go(RunningNode { step: CAPTURING.to_owned(), ..input.running.clone() }),
        Observed::Progress(CaptureProgress { error: Some(error), .. }) => Next::Failed(TaskReason::CaptureLost, error),
        Observed::Progress(progress) if progress.is_complete => Next::Succeeded(summary(input, &progress)),
        Observed::Progress(_) => Next::Wait("the capture runs".to_owned()),
        Observed::Refused(Refusal { status, text }) => match status {
            404 if is_started => {
                Next::Failed(TaskReason::Unsupported, "its agent does not support captures".to_owned())
            }
            // The former leader may have died before it started the capture.
            404 if !input.is_applied => Next::Go(input.running.clone()),
            404 => Next::Failed(TaskReason::CaptureLost, "the agent restarted".to_owned()),
            403 => Next::Failed(TaskReason::NotEnabled, text),
            429 | 507 => Next::Failed(TaskReason::DiskFull, text),
            _ => Next::Failed(TaskReason::CaptureFailed, text),
        },
        Observed::Unreachable(error) => match input.agent {
            AgentView::Silent if is_started => Next::Failed(TaskReason::AgentSilent, error),
            _ => Next::Wait(error),
        },
    }
}

fn summary(input: &StepInput, progress: &CaptureProgress) -> String {
    let CaptureProgress { packets, lost_packets, bytes, .. } = progress;
    let has_packets = input.task.spec.action.capture.as_ref().is_some_and(|capture| capture.packets.is_some());
    let packets = if has_packets { format!("{packets} packets, {lost_packets} lost; ") } else { String::new() };
    format!("{packets}{} kB", bytes.div_ceil(1000))
}

/// What the agent is to capture; the same from each leader.
fn start(input: &StepInput) -> Option<CaptureStart> {
    let spec = &input.task.spec;
    let capture = spec.action.capture.as_ref()?;
    // The task is deleted before, and the capture with it.
    let time = spec.ttl().unwrap_or_default() + spec.deadline().unwrap_or_default();
    Some(CaptureStart {
        uid: uid(input),
        state: capture.state,
        packets: capture.packets.clone(),
        logs: capture.logs.is_some(),
        ttl_seconds: u32::try_from(time.as_secs()).unwrap_or(CAPTURE_TTL_MAX).min(CAPTURE_TTL_MAX),
    })
}

fn uid(input: &StepInput) -> String {
    input.task.uid().unwrap_or_default()
}

fn post(request: &CaptureRequest) -> Request {
    Request::post(AGENT_CAPTURES_PATH, serde_json::to_vec(request).unwrap_or_default())
}

async fn send(context: &TaskContext, input: &StepInput, request: Request) -> Result<Reply, String> {
    let peer = context.roster.lock().peer(&input.running.node).map_err(|error| error.to_string())?;
    context.channel.send(peer, request, REQUEST).await.map_err(|error| chain(&error))
}

fn refusal(reply: &Reply) -> Refusal {
    Refusal { status: reply.status, text: String::from_utf8_lossy(&reply.body).trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn input(step: &str, agent: AgentView) -> StepInput {
        let task = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask", "metadata": { "name": "one", "uid": "u" },
            "spec": { "node": "a", "action": { "capture": { "tokenHash": "0", "packets": { "seconds": 5 } } } } });
        StepInput {
            task: Arc::new(serde_json::from_value(task).unwrap()),
            running: RunningNode { node: "a".to_owned(), step: step.to_owned(), ..RunningNode::default() },
            view: None,
            agent,
            now: k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
            is_stopped: false,
            is_applied: true,
            reboots: Vec::new(),
        }
    }

    #[test]
    fn answers_of_the_agent_decide_what_follows() {
        let refused = |status| Observed::Refused(Refusal { status, text: "why".to_owned() });
        let progress = |is_complete, error: Option<&str>| {
            let error = error.map(str::to_owned);
            Observed::Progress(CaptureProgress { is_complete, error, packets: 7, lost_packets: 1, bytes: 1500 })
        };
        let unreachable = || Observed::Unreachable("no route".to_owned());
        let failed = |reason, why: &str| Next::Failed(reason, why.to_owned());
        let (pending, silent) = (AgentView::Pending, AgentView::Silent);
        for (from, agent, observed, expected) in [
            (STARTED, &pending, refused(403), failed(TaskReason::NotEnabled, "why")),
            (STARTED, &pending, refused(404), failed(TaskReason::Unsupported, "its agent does not support captures")),
            (STARTED, &pending, refused(400), failed(TaskReason::CaptureFailed, "why")),
            (STARTED, &pending, refused(429), failed(TaskReason::DiskFull, "why")),
            (STARTED, &pending, refused(507), failed(TaskReason::DiskFull, "why")),
            (STARTED, &pending, unreachable(), Next::Wait("no route".to_owned())),
            (STARTED, &silent, unreachable(), failed(TaskReason::AgentSilent, "no route")),
            (CAPTURING, &silent, unreachable(), Next::Wait("no route".to_owned())),
            (CAPTURING, &pending, progress(false, None), Next::Wait("the capture runs".to_owned())),
            (CAPTURING, &pending, progress(true, None), Next::Succeeded("7 packets, 1 lost; 2 kB".to_owned())),
            (CAPTURING, &pending, progress(false, Some("disk")), failed(TaskReason::CaptureLost, "disk")),
            (CAPTURING, &pending, refused(404), failed(TaskReason::CaptureLost, "the agent restarted")),
        ] {
            let text = format!("{from} {observed:?}");
            assert_eq!(step(&input(from, agent.clone()), observed), expected, "{text}");
        }
        let Next::Go(next) = step(&input(STARTED, pending), Observed::Possible) else { panic!("it starts") };
        assert_eq!((next.node.as_str(), next.step.as_str()), ("a", CAPTURING));
    }

    #[test]
    fn capture_that_the_former_leader_did_not_start_is_started() {
        let missing = || Observed::Refused(Refusal { status: 404, text: String::new() });
        let new_leader = StepInput { is_applied: false, ..input(CAPTURING, AgentView::Pending) };
        assert_eq!(step(&new_leader, missing()), Next::Go(new_leader.running.clone()));
        let lost = step(&input(CAPTURING, AgentView::Pending), missing());
        assert!(matches!(lost, Next::Failed(TaskReason::CaptureLost, _)), "{lost:?}");
    }

    #[test]
    fn file_on_the_node_outlives_its_task() {
        let start = start(&input(CAPTURING, AgentView::Pending)).unwrap();
        assert_eq!((start.uid.as_str(), start.ttl_seconds, start.logs), ("u", 3600 + 1800, false));
    }
}
