//! The capture of a NodeTask, from its node's agent to `kubectl oke-node capture`. Every process of the leader's host can reach the view,
//! so a capture needs the token whose SHA-256 the task has. Each request reads the task, so the capture of a deleted task cannot be read.

use std::sync::Arc;
use std::time::Duration;

use api::capture::{AGENT_CAPTURES_PATH, CAPTURE_BYTES_MAX, CAPTURE_FILE_SUFFIX};
use api::node_task::TaskState;
use api::{NodeTask, NodeTaskStatus};
use channel::{Client as ChannelClient, ReplyStream, Request};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use resident::logging::chain;
use resident::server::{Answer, StreamRequest};
use sha2::{Digest as _, Sha256};
use stream::{ChunkSender, Chunks, Disconnected, Relay, Relayed, end, pipe};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::cluster::request::send;
use crate::fleet::relay::relay;
use crate::fleet::shared::SharedRoster;

/// The folder of all entries.
const FOLDER: &str = "capture";
/// Captures that are sent at once.
const SENT_MAX: usize = 2;
/// The longest token, in bytes.
const TOKEN_MAX: usize = 256;
/// The longest name of a NodeTask, in bytes.
const NAME_MAX: usize = 63;
/// The longest check of a token, with its wait in the queue.
const CHECK: Duration = Duration::from_secs(20);
/// After a refusal: processes of this host must not use up the API server's time.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// The longest wait until the agent's reply begins.
const REPLY: Duration = Duration::from_secs(15);
/// For one capture, with a reader as slow as its connection.
const SENDING: Duration = Duration::from_mins(8);
/// A reader or an agent that passes on fewer bytes in this time would block other captures.
const PACE_BYTES: u64 = 128 << 10;
const PACE_TIME: Duration = Duration::from_mins(1);

/// Sends captures for those who have their tokens.
pub(crate) struct CaptureDownloads {
    client: Client,
    channel: ChannelClient,
    roster: Arc<SharedRoster>,
    /// One check at a time.
    one: Mutex<()>,
    free: Arc<Semaphore>,
}

struct Finished {
    uid: String,
    node: String,
}

impl CaptureDownloads {
    pub(crate) fn new(client: Client, channel: ChannelClient, roster: Arc<SharedRoster>) -> Self {
        Self { client, channel, roster, one: Mutex::default(), free: Arc::new(Semaphore::new(SENT_MAX)) }
    }

    /// Begins to send a capture.
    pub(crate) async fn open(&self, request: &StreamRequest<'_>) -> Result<Chunks, Answer> {
        let name = task_of(request.query).ok_or_else(|| Answer::text(400, "the query is task=NAME\n"))?;
        let token = request.token.filter(|token| !token.is_empty() && token.len() <= TOKEN_MAX);
        let token = token.ok_or_else(|| Answer::text(401, "no token: a capture needs the token of its NodeTask\n"))?;
        let finished = self.check(name, token).await?;
        let Ok(permit) = self.free.clone().try_acquire_owned() else {
            return Err(Answer::text(429, "other captures are being sent; retry\n"));
        };
        let reply = self.request(&finished).await?;
        let (sender, chunks) = pipe();
        tokio::spawn(relayed(reply, sender, finished, permit));
        Ok(chunks)
    }

    /// The finished capture of a task, if the token is the task's.
    async fn check(&self, name: &str, token: &str) -> Result<Finished, Answer> {
        let checking = async {
            let _one = self.one.lock().await;
            let tasks: Api<NodeTask> = Api::all(self.client.clone());
            // The controller may list tasks, which it watches.
            let named = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
            match send(tasks.list(&named)).await {
                Ok(found) => judge(found.items.into_iter().next(), name, token),
                Err(error) => Err(Answer::text(503, &format!("the NodeTask cannot be read: {}\n", chain(&error)))),
            }
        };
        let checked = timeout(CHECK, checking).await;
        let checked = checked.unwrap_or_else(|_| Err(Answer::text(429, "other tokens are being checked; retry\n")));
        if let Err(refusal) = &checked {
            tracing::warn!(event = "capture.refused", task = name, status = refusal.status, "nothing is sent");
            // Other requests run meanwhile.
            sleep(REFUSAL_PAUSE).await;
        }
        checked
    }

    async fn request(&self, Finished { uid, node }: &Finished) -> Result<ReplyStream, Answer> {
        let failed = |error: String| Answer::text(502, &format!("the agent of {node}: {error}\n"));
        let peer = self.roster.lock().peer(node).map_err(|error| failed(error.to_string()))?;
        let path = format!("{AGENT_CAPTURES_PATH}/{uid}{CAPTURE_FILE_SUFFIX}");
        let reply = self.channel.open(peer, Request::get(path), REPLY).await.map_err(|error| failed(chain(&error)))?;
        match reply.status() {
            200 => Ok(reply),
            404 => Err(Answer::text(
                410,
                "the capture is gone: its time is over, or the agent restarted; create another NodeTask\n",
            )),
            429 => Err(Answer::text(429, "the node sends another capture; retry\n")),
            status => Err(failed(format!("answered with status {status}"))),
        }
    }
}

/// The task's name of `task=NAME`.
fn task_of(query: &str) -> Option<&str> {
    let name = query.strip_prefix("task=")?;
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    ((1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_letter)).then_some(name)
}

fn judge(task: Option<NodeTask>, name: &str, token: &str) -> Result<Finished, Answer> {
    let task = task.filter(|task| task.metadata.deletion_timestamp.is_none());
    let task =
        task.ok_or_else(|| Answer::text(404, &format!("there is no NodeTask {name}, or it is being deleted\n")))?;
    let (Some(capture), Some(node)) = (&task.spec.action.capture, &task.spec.node) else {
        return Err(Answer::text(400, &format!("NodeTask {name} is not a capture\n")));
    };
    // Hashes are compared, so the time of the comparison reveals nothing about the token.
    let hash: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    if hash != capture.token_hash {
        return Err(Answer::text(403, &format!("this is not the token of NodeTask {name}\n")));
    }
    let NodeTaskStatus { state, message, .. } = task.status.clone().unwrap_or_default();
    if state != Some(TaskState::Succeeded) {
        let state = state.map_or("Pending", |state| state.as_str());
        return Err(Answer::text(
            409,
            &format!("the capture is not complete: NodeTask {name} is {state}: {message}\n"),
        ));
    }
    Ok(Finished { uid: task.uid().unwrap_or_default(), node: node.clone() })
}

/// Passes the tar on. An incomplete tar has no end marker, so its reader notices.
async fn relayed(reply: ReplyStream, out: ChunkSender, finished: Finished, permit: OwnedSemaphorePermit) {
    let Finished { uid, node } = finished;
    // Cancel-safe: after a reader or agent that is too slow, nothing more is sent.
    let passed = tokio::select! {
        passed = relay(Relay::into_folder(FOLDER, CAPTURE_BYTES_MAX), reply, SENDING, &out) => passed.map_err(|error| error.to_string()),
        () = slow(&out) => Err(format!("fewer than {} KiB passed in a minute", PACE_BYTES >> 10)),
    };
    let sent = match passed {
        Ok(Relayed { problem: None, .. }) => complete(out).await.map_err(|error| error.to_string()),
        Ok(Relayed { problem: Some(problem), .. }) | Err(problem) => Err(problem),
    };
    match sent {
        Ok(()) => tracing::info!(event = "capture.sent", uid, node),
        Err(error) => {
            tracing::warn!(event = "capture.not_sent", uid, node, error, "the reader got only a part of the capture")
        }
    }
    drop(permit);
}

/// Waits until fewer bytes pass in a window than the required minimum.
async fn slow(out: &ChunkSender) {
    let mut before = 0;
    loop {
        sleep(PACE_TIME).await;
        let sent = out.sent();
        if sent - before < PACE_BYTES {
            return;
        }
        before = sent;
    }
}

async fn complete(out: ChunkSender) -> Result<(), Disconnected> {
    out.send(end().to_vec().into()).await?;
    out.finish().await
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn task(state: &str, change: impl FnOnce(&mut Value)) -> Option<NodeTask> {
        let hash: String = Sha256::digest("right").iter().map(|byte| format!("{byte:02x}")).collect();
        let mut task = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask",
            "metadata": { "name": "one", "uid": "u" },
            "spec": { "node": "a", "action": { "capture": { "tokenHash": hash, "state": true } } },
            "status": { "state": state } });
        change(&mut task);
        Some(serde_json::from_value(task).unwrap())
    }

    #[test]
    fn only_the_token_of_a_finished_capture_opens_it() {
        let is_opened = |task: Option<NodeTask>, token: &str| {
            judge(task, "one", token).map(|found| (found.uid, found.node)).map_err(|answer| answer.status)
        };
        let whole = |_: &mut Value| ();
        assert_eq!(is_opened(task("Succeeded", whole), "right"), Ok(("u".to_owned(), "a".to_owned())));
        let hash = task("Succeeded", whole).unwrap().spec.action.capture.unwrap().token_hash;
        for (task, token, status) in [
            (None, "right", 404),
            (
                task("Succeeded", |task| task["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
                "right",
                404,
            ),
            (task("Succeeded", |task| task["spec"]["action"] = json!({ "growRootDisk": {} })), "right", 400),
            (task("Succeeded", whole), "wrong", 403),
            (task("Succeeded", whole), "Right", 403),
            (task("Succeeded", whole), hash.as_str(), 403),
            (task("Running", whole), "wrong", 403),
            (task("Running", whole), "right", 409),
            (task("Failed", whole), "right", 409),
        ] {
            assert_eq!(is_opened(task, token), Err(status), "{token}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_or_agent_ends_its_capture() {
        let (out, mut chunks) = pipe();
        let reading = async { while chunks.next().await.is_ok() {} };
        // Fast enough: two windows with the least bytes. Then a byte every 39 s.
        let sending = async {
            // Never at the end of a window.
            sleep(Duration::from_secs(10)).await;
            for pause in [30, 30, 30, 30] {
                out.send(vec![0; PACE_BYTES as usize / 2].into()).await.unwrap();
                sleep(Duration::from_secs(pause)).await;
            }
            loop {
                out.send(vec![0; 1].into()).await.unwrap();
                sleep(Duration::from_secs(39)).await;
            }
        };
        let began = tokio::time::Instant::now();
        tokio::select! {
            () = slow(&out) => {}
            () = sending => {}
            () = reading => {}
        }
        assert_eq!(began.elapsed(), 3 * PACE_TIME);
        // A reader that stalls.
        let (out, _chunks) = pipe();
        let stalled = async { while out.send(vec![0; 1 << 20].into()).await.is_ok() {} };
        let began = tokio::time::Instant::now();
        tokio::select! {
            () = slow(&out) => {}
            () = stalled => {}
        }
        assert!(began.elapsed() <= 2 * PACE_TIME);
    }

    #[test]
    fn name_of_a_task_leads_to_no_other_path() {
        assert_eq!(task_of("task=capture-x7k2p"), Some("capture-x7k2p"));
        let long = format!("task={}", "a".repeat(NAME_MAX + 1));
        for query in ["", "task=", "task=..", "task=a/status", "task=a%2fb", "task=a&task=b", "task=A", "name=a", &long]
        {
            assert_eq!(task_of(query), None, "{query}");
        }
    }
}
