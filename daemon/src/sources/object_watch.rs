//! A watch of the objects of the API server that concern this node, chosen by one field: no node lists or watches the
//! objects of another. A lost watch is logged once and retried with backoff.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use backoff::Backoff;
use futures::StreamExt;
use kube::core::Status;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use resident::api_server;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::sources::backoff::{chance, jittered};

/// How long a lasting watch lasts.
const WATCH: Duration = Duration::from_mins(30);

/// What to watch, and how.
#[derive(Debug)]
pub struct ObjectWatch<K> {
    /// The field that chooses them: `metadata.name`, or one that the kind makes selectable.
    pub field: &'static str,
    /// Its value; names the watch in messages.
    pub name: String,
    /// Its kind, in messages.
    pub kind: &'static str,
    /// Opens its API.
    pub api: fn(Client) -> Api<K>,
    /// How the server is asked; the field is added.
    pub config: watcher::Config,
    /// How long the first answer may take.
    pub deadline: Duration,
    /// Between failures; the nodes of a cluster fail together when its API server does.
    pub retry: Backoff,
    /// The names of the log events of a lost and of a restored watch.
    pub events: LogEvents,
}

/// Names of log events.
#[derive(Debug)]
pub struct LogEvents {
    /// Of a lost watch.
    pub lost: &'static str,
    /// Of a restored watch.
    pub restored: &'static str,
}

/// Why a watch ended.
#[derive(Debug, Error)]
pub enum WatchEnd {
    /// There is no client.
    #[error("setting up the client of the API server: {0}")]
    Client(String),
    /// No answer came in time.
    #[error("the API server does not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The API server ended it.
    #[error("the API server closed the watch")]
    Closed,
    /// The API server refused it, or the connection broke.
    #[error("watching {kind} {name} at {server}: {cause}")]
    Failed {
        /// The kind.
        kind: &'static str,
        /// The field's value.
        name: String,
        /// The API server's address.
        server: String,
        /// The cause.
        cause: String,
    },
    /// The kind does not exist.
    #[error("the API server does not know the kind {0} (404)")]
    UnknownKind(&'static str),
}

/// A list as the server has it in memory: thousands of nodes ask, and none needs the newest. The next watch continues with one
/// request. A dead connection is noticed then; bookmarks, one a minute, keep an idle one open.
pub fn lasting() -> watcher::Config {
    let lasts = u32::try_from(jittered(WATCH, chance()).as_secs()).unwrap_or(u32::MAX);
    watcher::Config::default().any_semantic().timeout(lasts)
}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> ObjectWatch<K> {
    /// Watches without end. `observe` gets the objects as they are, by name, or why the watch ended. It returns the time until the
    /// next watch if that is no failure; then nothing is logged.
    pub async fn run(self, mut observe: impl FnMut(Result<Vec<K>, &WatchEnd>) -> Option<Duration>) {
        let (mut failures, mut is_lost) = (0_u32, false);
        loop {
            let watch = self.watch_once(|objects| {
                if is_lost {
                    tracing::info!(event = self.events.restored, name = self.name);
                }
                (failures, is_lost) = (0, false);
                observe(Ok(objects));
            });
            let end = watch.await;
            let pause = observe(Err(&end)).unwrap_or_else(|| {
                if !is_lost {
                    tracing::warn!(event = self.events.lost, name = self.name, "{end}");
                }
                (failures, is_lost) = (failures.saturating_add(1), true);
                self.retry.delay(failures, chance())
            });
            tokio::time::sleep(pause).await;
        }
    }

    /// Watches until that fails.
    async fn watch_once(&self, mut observe: impl FnMut(Vec<K>)) -> WatchEnd {
        let (client, server) = match api_server::client() {
            Ok(client) => client,
            Err(cause) => return WatchEnd::Client(cause),
        };
        let config = self.config.clone().fields(&format!("{}={}", self.field, self.name));
        let mut events = pin!(watcher((self.api)(client), config));
        let mut known = KnownObjects::default();
        let first = async {
            while let Some(event) = events.next().await {
                if let Some(objects) = known.change(event?, ResourceExt::name_any) {
                    return Ok(Some(objects));
                }
            }
            Ok(None)
        };
        match tokio::time::timeout(self.deadline, first).await {
            Ok(Ok(Some(objects))) => observe(objects),
            Ok(Ok(None)) => return WatchEnd::Closed,
            Ok(Err(error)) => return self.end(server, &error),
            Err(_) => return WatchEnd::Timeout(self.deadline),
        }
        // The server closes every watch after some minutes, and the watcher opens the next; a dead connection is noticed then.
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => known.change(event, ResourceExt::name_any).into_iter().for_each(&mut observe),
                Err(error) => return self.end(server, &error),
            }
        }
        WatchEnd::Closed
    }

    fn end(&self, server: String, error: &watcher::Error) -> WatchEnd {
        match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => {
                WatchEnd::UnknownKind(self.kind)
            }
            error => WatchEnd::Failed { kind: self.kind, name: self.name.clone(), server, cause: cause(error) },
        }
    }
}

/// The objects, by name.
#[derive(Debug)]
struct KnownObjects<K> {
    /// Those of the last list and the events since.
    objects: BTreeMap<String, K>,
    /// Those of a list that has not ended.
    listed: BTreeMap<String, K>,
}

impl<K> Default for KnownObjects<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeMap::new() }
    }
}

impl<K: Clone> KnownObjects<K> {
    /// The objects after an event, if the event settles that: a list does at its end.
    fn change(&mut self, event: Event<K>, name: impl Fn(&K) -> String) -> Option<Vec<K>> {
        match event {
            Event::Init => {
                self.listed.clear();
                return None;
            }
            Event::InitApply(object) => {
                self.listed.insert(name(&object), object);
                return None;
            }
            Event::InitDone => self.objects = std::mem::take(&mut self.listed),
            Event::Apply(object) => drop(self.objects.insert(name(&object), object)),
            Event::Delete(object) => drop(self.objects.remove(&name(&object))),
        }
        Some(self.objects.values().cloned().collect())
    }
}

/// What the API server said, or why it said nothing. The errors of kube repeat their causes and print a refusal as a data
/// structure.
fn cause(error: &watcher::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    loop {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            return status.message.clone();
        }
        match (cause.downcast_ref::<Status>(), cause.source()) {
            (Some(status), _) => return status.message.clone(),
            (None, Some(source)) => cause = source,
            (None, None) => return cause.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_reports_object_at_its_end_and_event_at_once() {
        let mut known = KnownObjects::default();
        // The tens are the name.
        let mut changes = |events: Vec<Event<u8>>| -> Vec<Vec<u8>> {
            events.into_iter().filter_map(|event| known.change(event, |object| (object / 10).to_string())).collect()
        };
        assert_eq!(changes(vec![Event::Init, Event::InitDone]), [vec![0; 0]]);
        assert_eq!(changes(vec![Event::Init, Event::InitApply(11), Event::InitDone]), [[11]]);
        assert_eq!(
            changes(vec![Event::Apply(12), Event::Apply(21), Event::Delete(13)]),
            [vec![12], vec![12, 21], vec![21]]
        );
        // The server lost the watch's position (410), and the object went in the meantime.
        assert_eq!(changes(vec![Event::Init, Event::InitDone]), [vec![0; 0]]);
    }
}
