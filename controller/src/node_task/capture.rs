//! Captures of one node: its agent makes them, keeps them and sends them. The engine starts one, follows it, and removes it when the task
//! is deleted; the file goes to the user by the leader's view ([`crate::fleet::capture`]).
//!
//! ```text
//!   Started ─▶ Capturing ─▶ result
//!              the agent  └▶ Creating ─▶ Running ─▶ Collected ─▶ result
//!              captures      logs: the Pod of an operation       its Pod is gone
//! ```

use std::time::Duration;

use api::capture::{AGENT_CAPTURES_PATH, CAPTURE_TTL_MAX, CaptureProgress, CaptureRequest, CaptureStart};
use api::node_task::RunningNode;
use api::{Reason as _, TaskReason};
use channel::{Reply, Request};
use kube::ResourceExt as _;
use resident::logging::chain;

use super::action::{Next, STARTED, StepInput, TaskContext};
use super::operation::{self, CREATING, RUNNING};
use crate::fleet::roster::AgentView;

/// The step in which the agent captures.
const CAPTURING: &str = "Capturing";
/// The step in which the Pod that wrote the logs is removed.
const COLLECTED: &str = "Collected";
/// For one request to an agent.
const REQUEST: Duration = Duration::from_secs(20);

/// What the agent answered.
#[derive(Debug, PartialEq, Eq)]
enum Observed {
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

/// Queries the agent, and for logs the Pod, and decides the next step; `None` if the Pod cannot be read.
pub(super) async fn advance(context: &TaskContext, input: &StepInput) -> Option<Next> {
    let decided = step(input, query(context, input).await);
    match (input.running.step.as_str(), &decided) {
        (CREATING | RUNNING, Next::Succeeded(_)) => {
            let next = operation::advance(context, input).await?;
            Some(collected(input, next))
        }
        (COLLECTED, Next::Succeeded(_)) if !operation::is_gone(context, input).await? => {
            Some(Next::Wait("its Pod is being removed".to_owned()))
        }
        _ => Some(decided),
    }
}

async fn query(context: &TaskContext, input: &StepInput) -> Observed {
    match send(context, input, request(input)).await {
        Err(error) => Observed::Unreachable(error),
        Ok(reply) if reply.status != 200 => Observed::Refused(refusal(&reply)),
        Ok(_) if input.running.step == STARTED => Observed::Possible,
        Ok(reply) => match serde_json::from_slice(&reply.body) {
            Ok(progress) => Observed::Progress(progress),
            Err(error) => Observed::Unreachable(format!("read its answer: {error}")),
        },
    }
}

fn request(input: &StepInput) -> Request {
    match (input.running.step.as_str(), start(input)) {
        (STARTED, Some(start)) => post(&CaptureRequest::Check(start)),
        // The former leader may have died before it started the capture, and a refused start says why. One that runs goes on.
        (CAPTURING, Some(start)) if !input.is_applied => post(&CaptureRequest::Start(start)),
        _ => Request::get(format!("{AGENT_CAPTURES_PATH}/{}", uid(input))),
    }
}

/// Starts the capture, or the Pod for its logs. One that runs goes on.
pub(super) async fn apply(context: &TaskContext, input: &StepInput) -> Result<(), String> {
    match input.running.step.as_str() {
        CAPTURING => {}
        COLLECTED => return operation::undo(context, input).await.map(drop),
        _ => return operation::apply(context, input).await,
    }
    let start = start(input).ok_or("the task is not a capture")?;
    let reply = send(context, input, post(&CaptureRequest::Start(start))).await?;
    if reply.status == 200 { Ok(()) } else { Err(refusal(&reply).text) }
}

/// Removes the capture. An agent that does not answer or refuses removes it when its time is over, or at its next start: no task waits for that.
pub(super) async fn undo(context: &TaskContext, input: &StepInput) -> Result<bool, String> {
    if has_logs(input) && !operation::undo(context, input).await? {
        return Ok(false);
    }
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
        Observed::Possible => Next::Go(at(input, CAPTURING)),
        Observed::Progress(CaptureProgress { error: Some(error), .. }) => Next::Failed(TaskReason::CaptureLost, error),
        Observed::Progress(progress) if progress.is_complete => match input.running.step.as_str() {
            CAPTURING if has_logs(input) => Next::Go(at(input, CREATING)),
            _ => Next::Succeeded(summary(input, &progress)),
        },
        Observed::Progress(_) => Next::Wait("the capture runs".to_owned()),
        Observed::Refused(Refusal { status, text }) => match status {
            404 if is_started || input.running.step == CAPTURING && !input.is_applied => {
                Next::Failed(TaskReason::Unsupported, "its agent does not support captures".to_owned())
            }
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

/// What follows for the logs. Without them, the other parts are a capture, too.
fn collected(input: &StepInput, next: Next) -> Next {
    let capture = input.task.spec.action.capture.as_ref();
    let has_others = capture.is_some_and(|capture| capture.state || capture.packets.is_some());
    match next {
        Next::Succeeded(message) => {
            tracing::info!(event = "capture.logs", node = input.running.node, message);
            Next::Go(RunningNode { before: String::new(), ..at(input, COLLECTED) })
        }
        Next::Failed(reason, error) if has_others => {
            tracing::warn!(event = "capture.no_logs", node = input.running.node, reason = reason.as_str(), error);
            Next::Go(RunningNode { before: reason.as_str().to_owned(), ..at(input, COLLECTED) })
        }
        next => next,
    }
}

fn has_logs(input: &StepInput) -> bool {
    input.task.spec.action.capture.as_ref().is_some_and(|capture| capture.logs.is_some())
}

fn at(input: &StepInput, step: &str) -> RunningNode {
    RunningNode { step: step.to_owned(), ..input.running.clone() }
}

fn summary(input: &StepInput, progress: &CaptureProgress) -> String {
    let CaptureProgress { packets, lost_packets, bytes, .. } = progress;
    let has_packets = input.task.spec.action.capture.as_ref().is_some_and(|capture| capture.packets.is_some());
    let packets = if has_packets { format!("{packets} packets, {lost_packets} lost; ") } else { String::new() };
    let logs = match input.running.before.as_str() {
        _ if !has_logs(input) => String::new(),
        "" => "; logs".to_owned(),
        reason => format!("; no logs: {reason}"),
    };
    format!("{packets}{} kB{logs}", bytes.div_ceil(1000))
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

    use api::NodeTask;
    use api::node_task::LogCapture;
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
    fn start_is_repeated_until_the_agent_accepts_it() {
        let body = |step: &str, is_applied| {
            let request = request(&StepInput { is_applied, ..input(step, AgentView::Pending) });
            request.body.map(|body| String::from_utf8_lossy(&body)[..8].to_owned())
        };
        assert_eq!(body(STARTED, false).as_deref(), Some("{\"check\""));
        // By a new leader, and after a refusal.
        assert_eq!(body(CAPTURING, false).as_deref(), Some("{\"start\""));
        assert_eq!(body(CAPTURING, true), None);
        let refused = Observed::Refused(Refusal { status: 429, text: "two captures".to_owned() });
        let new_leader = StepInput { is_applied: false, ..input(CAPTURING, AgentView::Pending) };
        assert_eq!(step(&new_leader, refused), Next::Failed(TaskReason::DiskFull, "two captures".to_owned()));
    }

    #[test]
    fn logs_follow_the_other_parts_and_do_not_hide_them() {
        let input = |step: &str, before: &str, others: bool| {
            let input = input(step, AgentView::Pending);
            let mut task = NodeTask::clone(&input.task);
            let capture = task.spec.action.capture.as_mut().unwrap();
            capture.logs = Some(LogCapture { units: vec!["kubelet.service".to_owned()], hours: None });
            capture.packets = capture.packets.take().filter(|_| others);
            let running = RunningNode { before: before.to_owned(), ..input.running };
            StepInput { task: Arc::new(task), running, ..input }
        };
        let complete =
            || Observed::Progress(CaptureProgress { is_complete: true, packets: 7, bytes: 1500, ..Default::default() });
        let go = |next: Next| match next {
            Next::Go(running) => (running.step, running.before),
            other => panic!("{other:?}"),
        };
        assert_eq!(go(step(&input(CAPTURING, "", true), complete())).0, CREATING);
        let succeeded = Next::Succeeded("logs: 1 of 1 units".to_owned());
        assert_eq!(go(collected(&input(RUNNING, "1024", false), succeeded)), (COLLECTED.to_owned(), String::new()));
        let failed = || Next::Failed(TaskReason::NotStarted, "its Pod".to_owned());
        let left = go(collected(&input(CREATING, "", true), failed()));
        assert_eq!(left, (COLLECTED.to_owned(), "NotStarted".to_owned()));
        assert_eq!(collected(&input(CREATING, "", false), failed()), failed());
        for (before, expected) in
            [("", "7 packets, 0 lost; 2 kB; logs"), ("NotStarted", "7 packets, 0 lost; 2 kB; no logs: NotStarted")]
        {
            assert_eq!(step(&input(COLLECTED, before, true), complete()), Next::Succeeded(expected.to_owned()));
        }
        // A capture that is gone on the node ends the Pod, too.
        for at in [CREATING, RUNNING, COLLECTED] {
            let gone = step(&input(at, "", true), Observed::Refused(Refusal { status: 404, text: String::new() }));
            assert!(matches!(gone, Next::Failed(TaskReason::CaptureLost, _)), "{gone:?}");
        }
    }

    #[test]
    fn file_on_the_node_outlives_its_task() {
        let start = start(&input(CAPTURING, AgentView::Pending)).unwrap();
        assert_eq!((start.uid.as_str(), start.ttl_seconds, start.logs), ("u", 3600 + 1800, false));
    }
}
