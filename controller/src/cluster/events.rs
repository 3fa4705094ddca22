//! Events about the controller's objects, each once.
//!
//! ```text
//!   report(EventContent) ─▶ reported just now? ─▶ queue (bounded) ─▶ one task: at most ten per second, each with a deadline
//! ```
//!
//! Nothing waits for an Event. One that does not fit the queue is counted and dropped. So is one that the API server refuses, or
//! has no time for in some attempts; the Events behind it wait meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backoff::Backoff;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use resident::events::{Reporter, WriteError, event, unique_name, write};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

pub(crate) use resident::events::{EventContent, Level};

use crate::report::metrics::Metrics;

/// The queue of Events; clones share it.
#[derive(Clone)]
pub struct Events {
    queue: Sender<EventContent>,
    /// When Events were queued, since [`QUIET`].
    recent: Arc<Mutex<HashMap<Key, Instant>>>,
    metrics: Arc<Metrics>,
}

/// The other end of the queue.
pub struct Writer {
    queue: Receiver<EventContent>,
    metrics: Arc<Metrics>,
}

/// Object (its uid), reason and note: every reconcile of an object reports the same again.
type Key = (String, &'static str, String);

/// The controller's name in Events.
const CONTROLLER: &str = "oke.oraclecloud.com/oke-node-controller";
/// Queued Events; of ten thousand nodes that appear at once, some have none.
const QUEUE: usize = 1000;
/// Between two writes: at most ten per second, a tenth of what the API server gives a controller by default.
const PACE: Duration = Duration::from_millis(100);
/// Attempts at one Event, the backoff between them, and the time for all: the Events behind it wait meanwhile.
const ATTEMPTS: u32 = 6;
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(8) };
const TOGETHER: Duration = Duration::from_secs(30);
/// The same is reported again only after this time.
const QUIET: Duration = Duration::from_mins(10);
/// How many Events are remembered for that; beyond, some are reported once more.
const REMEMBERED: usize = 10_000;

impl Events {
    /// Both ends; written and lost Events are counted in `metrics`.
    pub fn new(metrics: Arc<Metrics>) -> (Self, Writer) {
        let (sender, receiver) = channel(QUEUE);
        let events = Self { queue: sender, recent: Arc::default(), metrics: metrics.clone() };
        (events, Writer { queue: receiver, metrics })
    }

    /// Queues an Event unless the same was queued a short while ago. Never waits: without room it is dropped, and the result is
    /// false.
    pub fn report(&self, content: EventContent) -> bool {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let key = (content.regarding.uid.clone().unwrap_or_default(), content.reason, content.note.clone());
        if recent.get(&key).is_some_and(|at| now.saturating_duration_since(*at) < QUIET) {
            return true;
        }
        if recent.len() >= REMEMBERED {
            recent.retain(|_, at| now.saturating_duration_since(*at) < QUIET);
        }
        if recent.len() >= REMEMBERED {
            recent.clear();
        }
        let has_room = self.queue.try_send(content).is_ok();
        if has_room {
            recent.insert(key, now);
        } else {
            self.metrics.events_lost.inc();
        }
        has_room
    }
}

impl Writer {
    /// The next queued Event, unwritten.
    #[cfg(test)]
    pub(crate) fn next(&mut self) -> Option<EventContent> {
        self.queue.try_recv().ok()
    }

    /// Writes queued Events until all senders are gone. `client` must not retry; `chance` is in 0.0–1.0, for the jitter.
    pub async fn run(mut self, client: Client, instance: String, chance: fn() -> f64) {
        let reporter = Reporter { controller: CONTROLLER, instance };
        while let Some(content) = self.queue.recv().await {
            if let Err(error) = self.write(&client, &reporter, &content, chance).await {
                self.metrics.events_lost.inc();
                let problem = error.to_string();
                tracing::warn!(
                    event = "kubernetes_events.lost",
                    reason = content.reason,
                    note = content.note,
                    problem,
                    "an Event was not written"
                );
            }
            sleep(PACE).await;
        }
    }

    /// Each attempt is counted. Returns the result of the last one that ended in time.
    async fn write(
        &self,
        client: &Client,
        reporter: &Reporter,
        content: &EventContent,
        chance: fn() -> f64,
    ) -> Result<(), WriteError> {
        let now = Timestamp::now();
        let (event, name) = (event(content, reporter, now), unique_name(content, now));
        let (end, mut problem) = (Instant::now() + TOGETHER, WriteError::NoAnswer);
        for attempt in 1..=ATTEMPTS {
            let written = timeout_at(end, write(client, event.clone(), [name.clone()])).await;
            // Only our own attempt can have that name: its answer was lost.
            let written = written.map(|written| match written {
                Err(error) if error.is_conflict() => Ok(()),
                written => written,
            });
            self.metrics.wrote("event", matches!(written, Ok(Ok(()))));
            match written {
                Ok(Err(error)) if error.is_retryable() => problem = error,
                Ok(written) => return written,
                Err(_) => break,
            }
            let next = Instant::now() + RETRY.delay(attempt, chance());
            if attempt == ATTEMPTS || next >= end {
                break;
            }
            sleep_until(next).await;
        }
        Err(problem)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;
    use crate::cluster::client::offline::{client_with, json};

    fn content(uid: &str, reason: &'static str, note: &str) -> EventContent {
        let regarding = ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() };
        EventContent { regarding, level: Level::Warning, reason, action: "Stamp", note: note.to_owned() }
    }

    #[tokio::test]
    async fn full_queue_drops_events_and_counts_them() {
        let metrics = Arc::new(Metrics::default());
        let (events, writer) = Events::new(metrics.clone());
        for number in 0..QUEUE + 5 {
            events.report(content("4711", "UnknownVnicProfile", &number.to_string()));
        }
        assert_eq!(metrics.events_lost.get(), 5);
        drop(writer);
        events.report(content("4711", "UnknownVnicProfile", "after the end"));
        assert_eq!(metrics.events_lost.get(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn same_event_is_reported_once_in_ten_minutes() {
        let (events, mut writer) = Events::new(Arc::default());
        let mut is_new = |content: EventContent| events.report(content) && writer.next().is_some();
        assert!(is_new(content("a", "Attached", "one")));
        sleep(Duration::from_mins(9)).await;
        assert!(!is_new(content("a", "Attached", "one")));
        for other in [content("b", "Attached", "one"), content("a", "Detached", "one"), content("a", "Attached", "two")]
        {
            assert!(is_new(other.clone()), "{other:?}");
        }
        sleep(Duration::from_mins(1)).await;
        assert!(is_new(content("a", "Attached", "one")));
    }

    /// What becomes of two events if the first attempts get these answers, and all others 201. `None` means that no answer came. Returns the
    /// requested names with their times in seconds, and how many events were lost.
    async fn answered(answers: &[Option<u16>]) -> (Vec<(String, u64)>, u64) {
        let (began, requests) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let (answers, log) = (answers.to_vec(), requests.clone());
        let client = client_with(move |_, body| {
            let name = body["metadata"]["name"].as_str().unwrap().to_owned();
            let mut log = log.lock().unwrap();
            log.push((name, began.elapsed().as_secs()));
            match answers.get(log.len() - 1) {
                Some(None) => None,
                Some(Some(status)) => {
                    let refused = serde_json::json!({ "apiVersion": "v1", "kind": "Status", "code": status });
                    Some(json(*status, refused.to_string()))
                }
                None => Some(json(201, body.to_string())),
            }
        });
        let metrics = Arc::new(Metrics::default());
        let (events, writer) = Events::new(metrics.clone());
        assert!(events.report(content("a", "Attached", "one")) && events.report(content("a", "Attached", "two")));
        drop(events);
        writer.run(client, "c".to_owned(), || 1.0).await;
        let requests = requests.lock().unwrap().clone();
        (requests, metrics.events_lost.get())
    }

    /// The times of the attempts at each event.
    fn attempts(requests: &[(String, u64)]) -> Vec<Vec<u64>> {
        let by_name = requests.chunk_by(|(one, _), (other, _)| one == other);
        by_name.map(|attempts| attempts.iter().map(|(_, second)| *second).collect()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn busy_api_server_is_retried_and_refused_event_dropped() {
        for (answers, expected, lost) in [
            (&[Some(429), Some(503), None][..], vec![vec![0, 1, 3, 17], vec![17]], 0),
            (&[Some(403)], vec![vec![0], vec![0]], 1),
            // The first attempt was carried out, and its answer lost.
            (&[Some(504), Some(409)], vec![vec![0, 1], vec![1]], 0),
            (&[Some(500); 6], vec![vec![0, 1, 3, 7, 15, 23], vec![23]], 1),
            (&[None; 3], vec![vec![0, 11, 23], vec![30]], 1),
        ] {
            let (requests, were_lost) = answered(answers).await;
            assert_eq!((attempts(&requests), were_lost), (expected, lost), "{answers:?}");
        }
    }
}
