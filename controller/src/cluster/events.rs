//! Events about the controller's objects, told once.
//!
//! ```text
//!   tell(News) ─▶ told already? ─▶ queue (bounded) ─▶ one task: at most a few per second, each with a deadline
//! ```
//!
//! Nobody waits for an event and nothing depends on one: what does not fit the queue is counted and dropped, and so is what is
//! refused, at once or, where the API server only has no time, after some attempts. Those behind it wait meanwhile: there is no more
//! time for them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backoff::Backoff;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use resident::events::{Reporter, Told, Unwritten, event, post};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

pub use resident::events::{Level, News};

use crate::report::metrics::Metrics;

/// Where news go; clones share it.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Sender<News>,
    told: Arc<Mutex<Told<Key>>>,
    metrics: Arc<Metrics>,
}

/// The other end: writes what is told.
#[derive(Debug)]
pub struct Writer {
    queue: Receiver<News>,
    metrics: Arc<Metrics>,
}

/// What makes news the same: object (its uid), reason and note. They come again with every look at an object.
type Key = (String, &'static str, String);

/// As events call us.
const CONTROLLER: &str = "oke.oraclecloud.com/oke-node-controller";
/// News that wait to be written; ten thousand nodes that come at once are told of in part.
const QUEUE: usize = 1000;
/// Between two writes: at most ten per second, a tenth of what the API server gives a controller by default.
const PACE: Duration = Duration::from_millis(100);
/// Attempts at one, the pauses between them, and for all of it so long: those behind it wait meanwhile.
const ATTEMPTS: u32 = 6;
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(8) };
const TOGETHER: Duration = Duration::from_secs(30);
/// For so long the same is not told again.
const QUIET: Duration = Duration::from_mins(10);
/// So much is remembered of what was told.
const MOST: usize = 10_000;

impl Events {
    /// Both ends; what is written and what is lost is counted there.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> (Self, Writer) {
        let (sender, receiver) = channel(QUEUE);
        let told = Arc::new(Mutex::new(Told::new(QUIET, MOST)));
        let events = Self { queue: sender, told, metrics: metrics.clone() };
        (events, Writer { queue: receiver, metrics })
    }

    /// Tells, unless the same was told a short while ago. Never waits: where there is no room, nothing is told, and the answer
    /// is false.
    pub fn tell(&self, news: News) -> bool {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let key = (news.regarding.uid.clone().unwrap_or_default(), news.reason, news.note.clone());
        if !told.is_new(&key, now) {
            return true;
        }
        let has_room = self.queue.try_send(news).is_ok();
        if has_room {
            told.note(key, now);
        } else {
            self.metrics.lost_event();
        }
        has_room
    }
}

impl Writer {
    /// The next one that waits, unwritten.
    #[cfg(test)]
    pub(crate) fn next(&mut self) -> Option<News> {
        self.queue.try_recv().ok()
    }

    /// Writes news, as those of this pod, until nobody can tell any more, by a client that tells at once what is refused.
    /// `chance` is in 0.0–1.0, for the jitter.
    pub async fn run(mut self, client: Client, instance: String, chance: fn() -> f64) {
        let reporter = Reporter { controller: CONTROLLER, instance };
        while let Some(news) = self.queue.recv().await {
            if let Err(error) = self.write(&client, &reporter, &news, chance).await {
                self.metrics.lost_event();
                let problem = error.to_string();
                tracing::warn!(reason = news.reason, note = news.note, problem, "an event was not written");
            }
            sleep(PACE).await;
        }
    }

    /// Each attempt is counted. What the last one that was answered, or had its whole time, came to.
    async fn write(
        &self,
        client: &Client,
        reporter: &Reporter,
        news: &News,
        chance: fn() -> f64,
    ) -> Result<(), Unwritten> {
        let event = event(news, reporter, Timestamp::now());
        let (end, mut problem) = (Instant::now() + TOGETHER, Unwritten::Silent);
        for attempt in 1..=ATTEMPTS {
            let written = timeout_at(end, post(client.clone(), &event)).await;
            self.metrics.wrote("event", matches!(written, Ok(Ok(()))));
            match written {
                Ok(Err(error)) if error.is_passing() => problem = error,
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

    fn news(uid: &str, reason: &'static str, note: &str) -> News {
        let regarding = ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() };
        News { regarding, level: Level::Warning, reason, action: "TemplateObject", note: note.to_owned() }
    }

    #[tokio::test]
    async fn nobody_waits_when_nothing_is_written() {
        let metrics = Arc::new(Metrics::default());
        let (events, writer) = Events::new(metrics.clone());
        for number in 0..QUEUE + 5 {
            events.tell(news("4711", "UnknownVnicProfile", &number.to_string()));
        }
        assert_eq!(metrics.events_lost(), 5);
        drop(writer);
        events.tell(news("4711", "UnknownVnicProfile", "after the end"));
        assert_eq!(metrics.events_lost(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_of_one_object_is_told_once_in_ten_minutes_and_anything_else_at_once() {
        let (events, mut writer) = Events::new(Arc::default());
        let mut tell = |news: News| events.tell(news) && writer.next().is_some();
        assert!(tell(news("a", "Attached", "one")));
        sleep(Duration::from_mins(9)).await;
        assert!(!tell(news("a", "Attached", "one")));
        for other in [news("b", "Attached", "one"), news("a", "Detached", "one"), news("a", "Attached", "two")] {
            assert!(tell(other.clone()), "{other:?}");
        }
        sleep(Duration::from_mins(1)).await;
        assert!(tell(news("a", "Attached", "one")));
    }

    /// What becomes of two events where the first attempts are answered so, `None` being no answer, and all others 201: the names
    /// that were asked for, when, in seconds, and how many events were lost.
    async fn answered(answers: &[Option<u16>]) -> (Vec<(String, u64)>, u64) {
        let (began, asked) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let (answers, log) = (answers.to_vec(), asked.clone());
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
        assert!(events.tell(news("a", "Attached", "one")) && events.tell(news("a", "Attached", "two")));
        drop(events);
        writer.run(client, "c".to_owned(), || 1.0).await;
        let asked = asked.lock().unwrap().clone();
        (asked, metrics.events_lost())
    }

    /// The times of the attempts at each event.
    fn attempts(asked: &[(String, u64)]) -> Vec<Vec<u64>> {
        let by_name = asked.chunk_by(|(one, _), (other, _)| one == other);
        by_name.map(|attempts| attempts.iter().map(|(_, second)| *second).collect()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_has_no_time_for_is_written_later_and_what_it_refuses_is_dropped() {
        for (answers, expected, lost) in [
            (&[Some(429), Some(503), None][..], vec![vec![0, 1, 3, 17], vec![17]], 0),
            (&[Some(403)], vec![vec![0], vec![0]], 1),
            // The first attempt was carried out, and its answer lost.
            (&[Some(504), Some(409)], vec![vec![0, 1], vec![1]], 0),
            (&[Some(500); 6], vec![vec![0, 1, 3, 7, 15, 23], vec![23]], 1),
            (&[None; 3], vec![vec![0, 11, 23], vec![30]], 1),
        ] {
            let (asked, were_lost) = answered(answers).await;
            assert_eq!((attempts(&asked), were_lost), (expected, lost), "{answers:?}");
        }
    }
}
