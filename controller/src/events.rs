//! Events of Kubernetes (events.k8s.io/v1): what happened to an object, told once, for people who read `kubectl describe`.
//!
//! ```text
//!   tell(News) ─▶ told already? ─▶ queue (bounded) ─▶ one task: at most a few per second, each with a deadline
//! ```
//!
//! Nobody waits for an event and nothing depends on one: what does not fit the queue or is refused is counted and dropped.
//! kube's own recorder is not used: it folds news of one reason into the first one's words.

mod told;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, timeout};

use crate::metrics::Metrics;
use told::Told;

/// What happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub struct News {
    /// The object, with its uid.
    pub regarding: ObjectReference,
    /// Whether somebody should look at it.
    pub level: Level,
    /// A stable word, in CamelCase.
    pub reason: &'static str,
    /// What the controller was doing, in CamelCase.
    pub action: &'static str,
    /// In words, with what to do next; cut after a thousand bytes.
    pub note: String,
}

/// Whether somebody should look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// For the record.
    Normal,
    /// Somebody should.
    Warning,
}

/// Where news go; clones share it.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Sender<News>,
    told: Arc<Mutex<Told>>,
    metrics: Arc<Metrics>,
}

/// The other end: writes what is told.
#[derive(Debug)]
pub struct Writer {
    queue: Receiver<News>,
    metrics: Arc<Metrics>,
}

/// Who tells, as events say it.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// This pod's name.
    pub instance: String,
}

/// As events call us.
const CONTROLLER: &str = "oke.oraclecloud.com/oke-node-controller";
/// News that wait to be written; ten thousand nodes that come at once are told of in part.
const QUEUE: usize = 1000;
/// Between two writes: at most ten per second, a tenth of what the API server gives a controller by default.
const PACE: Duration = Duration::from_millis(100);
/// For one write.
const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes; the API server takes 1024.
const LONGEST_NOTE: usize = 1000;
/// Where events of objects without a namespace are.
const NAMESPACE: &str = "default";

impl Events {
    /// Both ends; what is written and what is lost is counted there.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> (Self, Writer) {
        let (sender, receiver) = channel(QUEUE);
        let events = Self { queue: sender, told: Arc::default(), metrics: metrics.clone() };
        (events, Writer { queue: receiver, metrics })
    }

    /// Tells, unless the same was told a short while ago. Never waits: where there is no room, nothing is told, and the answer
    /// is false.
    pub fn tell(&self, news: News) -> bool {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let Some(key) = told.if_new(&news, now) else { return true };
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

    /// Writes news until nobody can tell any more.
    pub async fn run(mut self, client: Client, reporter: Reporter) {
        let api: Api<Event> = Api::namespaced(client, NAMESPACE);
        while let Some(news) = self.queue.recv().await {
            let event = event(&news, &reporter, Timestamp::now());
            let params = PostParams::default();
            let written = timeout(DEADLINE, api.create(&params, &event)).await;
            let problem = match written {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no answer within {DEADLINE:?}")),
            };
            self.metrics.wrote("event", problem.is_none());
            if let Some(problem) = problem {
                self.metrics.lost_event();
                tracing::warn!(reason = news.reason, note = news.note, problem, "an event was not written");
            }
            sleep(PACE).await;
        }
    }
}

fn event(news: &News, reporter: &Reporter, now: Timestamp) -> Event {
    let name = news.regarding.name.clone().unwrap_or_default();
    // As every recorder names them: unique by the nanosecond. Object names have room for it up to 236 bytes.
    let name = format!("{}.{:x}", cut(&name, 236), now.as_nanosecond());
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() },
        action: Some(news.action.to_owned()),
        reason: Some(news.reason.to_owned()),
        type_: Some(
            match news.level {
                Level::Normal => "Normal",
                Level::Warning => "Warning",
            }
            .to_owned(),
        ),
        note: Some(cut(&news.note, LONGEST_NOTE).to_owned()),
        regarding: Some(news.regarding.clone()),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(cut(&reporter.instance, 128).to_owned()),
        ..Event::default()
    }
}

/// The beginning, at most so many bytes, no character in pieces.
fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(note: &str) -> News {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some("node-a".to_owned()),
            uid: Some("4711".to_owned()),
            ..ObjectReference::default()
        };
        News { regarding, level: Level::Warning, reason: "UnknownVnicProfile", action: "Stamp", note: note.to_owned() }
    }

    #[test]
    fn it_is_written_as_the_api_server_takes_it() {
        let reporter = Reporter { instance: "oke-node-controller-0".to_owned() };
        let written = event(&news("no profile \"x\""), &reporter, Timestamp::from_second(1).unwrap());
        let expected = serde_json::json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "name": "node-a.3b9aca00", "namespace": "default" },
            "action": "Stamp",
            "eventTime": "1970-01-01T00:00:01.000000Z",
            "note": "no profile \"x\"",
            "reason": "UnknownVnicProfile",
            "regarding": { "apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "4711" },
            "reportingController": "oke.oraclecloud.com/oke-node-controller",
            "reportingInstance": "oke-node-controller-0",
            "type": "Warning"
        });
        assert_eq!(serde_json::to_value(written).unwrap(), expected);
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        assert_eq!(cut(&"é".repeat(600), LONGEST_NOTE).len(), LONGEST_NOTE);
        assert_eq!(cut("aé", 2), "a");
    }

    #[tokio::test]
    async fn nobody_waits_when_nothing_is_written() {
        let metrics = Arc::new(Metrics::default());
        let (events, writer) = Events::new(metrics.clone());
        for number in 0..QUEUE + 5 {
            events.tell(news(&number.to_string()));
        }
        assert_eq!(metrics.events_lost(), 5);
        drop(writer);
        events.tell(news("after the end"));
        assert_eq!(metrics.events_lost(), 6);
    }
}
