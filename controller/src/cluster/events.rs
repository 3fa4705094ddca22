//! Events about the controller's objects, each once.
//!
//! ```text
//!   report(EventContent) ─▶ reported just now? ─▶ queue (bounded) ─▶ one task: at most ten per second, each with a deadline
//! ```
//!
//! Nothing waits for an Event. One that does not fit the queue is counted and dropped, and so is one that the API server refuses
//! or does not answer: conditions, log and metrics say the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use resident::events::{Reporter, event, unique_name, write};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep};

pub use resident::events::{EventContent, Level};

use crate::report::metrics::Metrics;

/// The queue of Events; clones share it.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Sender<EventContent>,
    /// When Events were queued, since [`QUIET`].
    recent: Arc<Mutex<HashMap<Key, Instant>>>,
    metrics: Arc<Metrics>,
}

/// The other end of the queue.
#[derive(Debug)]
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

    /// Queues an Event unless the same was queued a short while ago. Never waits: without room it is dropped.
    pub fn report(&self, content: EventContent) {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let key = (content.regarding.uid.clone().unwrap_or_default(), content.reason, content.note.clone());
        if recent.get(&key).is_some_and(|at| now.saturating_duration_since(*at) < QUIET) {
            return;
        }
        if recent.len() >= REMEMBERED {
            recent.retain(|_, at| now.saturating_duration_since(*at) < QUIET);
        }
        if recent.len() >= REMEMBERED {
            recent.clear();
        }
        if self.queue.try_send(content).is_ok() {
            recent.insert(key, now);
        } else {
            self.metrics.events_lost.inc();
        }
    }
}

impl Writer {
    /// The next queued Event, unwritten.
    #[cfg(test)]
    pub(crate) fn next(&mut self) -> Option<EventContent> {
        self.queue.try_recv().ok()
    }

    /// Writes queued Events until all senders are gone. `client` retries what the API server has no time for.
    pub async fn run(mut self, client: Client, instance: String) {
        let reporter = Reporter { controller: CONTROLLER, instance };
        while let Some(content) = self.queue.recv().await {
            let now = Timestamp::now();
            let name = unique_name(&content, now);
            let written = match write(&client, event(&content, &reporter, now), [name]).await {
                // Only our own attempt can have that name: its answer was lost.
                Err(error) if error.is_conflict() => Ok(()),
                written => written,
            };
            self.metrics.wrote("event", written.is_ok());
            if let Err(error) = written {
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
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;
    use crate::cluster::client::offline::{client_with, json};
    use crate::cluster::client::{READING, patient};

    fn content(uid: &str, reason: &'static str, note: &str) -> EventContent {
        let regarding = ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() };
        EventContent { regarding, level: Level::Warning, reason, action: "TemplateObject", note: note.to_owned() }
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
        let mut is_new = |content: EventContent| {
            events.report(content);
            writer.next().is_some()
        };
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

    #[tokio::test(start_paused = true)]
    async fn busy_api_server_is_retried_and_unwritten_event_counted() {
        // The answers to the first attempts, none for `None`; to all others 201.
        for (answers, requests, lost) in [
            (&[Some(429), Some(503)][..], 4, 0),
            // The first attempt was carried out, and its answer lost.
            (&[Some(504), Some(409)], 3, 0),
            (&[Some(403)], 2, 1),
            (&[None], 2, 1),
        ] {
            let (asked, count) = (Arc::new(AtomicUsize::new(0)), answers.to_vec());
            let number = asked.clone();
            let client = client_with(move |_, body| match count.get(number.fetch_add(1, SeqCst)).copied() {
                Some(status) => status.map(|status| {
                    let refused = serde_json::json!({ "apiVersion": "v1", "kind": "Status", "code": status });
                    json(status, refused.to_string())
                }),
                None => Some(json(201, body.to_string())),
            });
            let metrics = Arc::new(Metrics::default());
            let (events, writer) = Events::new(metrics.clone());
            events.report(content("a", "Attached", "one"));
            events.report(content("a", "Attached", "two"));
            drop(events);
            writer.run(patient(&client, metrics.clone(), READING), "c".to_owned()).await;
            assert_eq!((asked.load(SeqCst), metrics.events_lost.get()), (requests, lost), "{answers:?}");
        }
    }
}
