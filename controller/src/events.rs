//! Events about the controller's objects, told once.
//!
//! ```text
//!   tell(News) ─▶ told already? ─▶ queue (bounded) ─▶ one task: at most a few per second, each with a deadline
//! ```
//!
//! Nobody waits for an event and nothing depends on one: what does not fit the queue or is refused is counted and dropped.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use resident::events::{Reporter, Told, write};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep};

pub use resident::events::{Level, News};

use crate::metrics::Metrics;

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

    /// Writes news, as those of this pod, until nobody can tell any more.
    pub async fn run(mut self, client: Client, instance: String) {
        let reporter = Reporter { controller: CONTROLLER, instance };
        while let Some(news) = self.queue.recv().await {
            let written = write(client.clone(), &reporter, &news).await;
            self.metrics.wrote("event", written.is_ok());
            if let Err(error) = written {
                self.metrics.lost_event();
                let problem = error.to_string();
                tracing::warn!(reason = news.reason, note = news.note, problem, "an event was not written");
            }
            sleep(PACE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn news(uid: &str, reason: &'static str, note: &str) -> News {
        let regarding = ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() };
        News { regarding, level: Level::Warning, reason, action: "Stamp", note: note.to_owned() }
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
}
