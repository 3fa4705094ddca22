//! A watch of one object of the API server, by its name, for ever: no node lists or watches the objects of another. A lost
//! watch is logged once and retried with backoff.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use backoff::Backoff;
use futures::StreamExt;
use kube::core::Status;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use resident::api_server;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::sources::backoff::chance;

/// What to watch, and how.
#[derive(Debug)]
pub(super) struct ObjectWatch<K> {
    /// The object's name.
    pub(super) name: String,
    /// Its kind, in messages.
    pub(super) kind: &'static str,
    /// Opens its API.
    pub(super) api: fn(Client) -> Api<K>,
    /// How the server is asked; the name is added.
    pub(super) config: fn() -> watcher::Config,
    /// How long the first answer may take.
    pub(super) deadline: Duration,
    /// Between failures; the nodes of a cluster fail together when its API server does.
    pub(super) retry: Backoff,
    /// The names of the log events of a lost and of a restored watch.
    pub(super) events: LogEvents,
}

/// Names of log events.
#[derive(Debug)]
pub(super) struct LogEvents {
    pub(super) lost: &'static str,
    pub(super) restored: &'static str,
}

/// Why a watch ended.
#[derive(Debug, Error)]
pub(super) enum WatchEnd {
    #[error("setting up the client of the API server: {0}")]
    Client(String),
    #[error("the API server does not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("the API server closed the watch")]
    Closed,
    #[error("watching {kind} {name} at {server}: {cause}")]
    Failed { kind: &'static str, name: String, server: String, cause: String },
    #[error("the API server does not know the kind {0} (404)")]
    UnknownKind(&'static str),
}

/// Takes in what a watch reports.
pub(super) trait Observer<K> {
    /// The object as it is now; `None` if there is none.
    fn observe(&mut self, object: Option<K>);

    /// The watch ended. Returns the time until the next one if this is no failure; then nothing is logged.
    fn lose(&mut self, end: &WatchEnd) -> Option<Duration>;
}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> ObjectWatch<K> {
    /// Watches for ever.
    pub(super) async fn run(self, mut observer: impl Observer<K>) {
        let (mut failures, mut is_lost) = (0_u32, false);
        loop {
            let watch = self.watch_once(|object| {
                if is_lost {
                    tracing::info!(event = self.events.restored, name = self.name);
                }
                (failures, is_lost) = (0, false);
                observer.observe(object);
            });
            let end = watch.await;
            let pause = observer.lose(&end).unwrap_or_else(|| {
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
    async fn watch_once(&self, mut observe: impl FnMut(Option<K>)) -> WatchEnd {
        let (client, server) = match api_server::client() {
            Ok(client) => client,
            Err(cause) => return WatchEnd::Client(cause),
        };
        let config = (self.config)().fields(&format!("metadata.name={}", self.name));
        let mut events = pin!(watcher((self.api)(client), config));
        let mut listed = None;
        let first = async {
            while let Some(event) = events.next().await {
                if let Some(object) = change(&mut listed, event?) {
                    return Ok(Some(object));
                }
            }
            Ok(None)
        };
        match tokio::time::timeout(self.deadline, first).await {
            Ok(Ok(Some(object))) => observe(object),
            Ok(Ok(None)) => return WatchEnd::Closed,
            Ok(Err(error)) => return self.end(server, &error),
            Err(_) => return WatchEnd::Timeout(self.deadline),
        }
        // The server closes every watch after some minutes, and the watcher opens the next; a dead connection is noticed then.
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => change(&mut listed, event).into_iter().for_each(&mut observe),
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

/// The object after an event, if the event settles that: a list does at its end.
fn change<K>(listed: &mut Option<K>, event: Event<K>) -> Option<Option<K>> {
    match event {
        Event::Init => *listed = None,
        Event::InitApply(object) => *listed = Some(object),
        Event::InitDone => return Some(listed.take()),
        Event::Apply(object) => return Some(Some(object)),
        Event::Delete(_) => return Some(None),
    }
    None
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
        let mut listed = None;
        let mut changes = |events: Vec<Event<u8>>| -> Vec<Option<u8>> {
            events.into_iter().filter_map(|event| change(&mut listed, event)).collect()
        };
        assert_eq!(changes(vec![Event::Init, Event::InitDone]), [None]);
        assert_eq!(changes(vec![Event::Init, Event::InitApply(1), Event::InitDone]), [Some(1)]);
        assert_eq!(changes(vec![Event::Apply(2), Event::Delete(2)]), [Some(2), None]);
        // The server lost the watch's position (410), and the object went in the meantime.
        assert_eq!(changes(vec![Event::Apply(3), Event::Init, Event::InitDone]), [Some(3), None]);
    }
}
