//! A watch of the objects of the API server that concern this node, chosen by one field: no node lists or watches the
//! objects of another. A lost watch is logged once and retried with backoff.

use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;
use std::time::Duration;

use backoff::Backoff;
use futures::StreamExt;
use kube::core::Status;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use resident::api_server;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::sources::backoff::{chance, jittered};

/// How long a lasting watch lasts.
const WATCH: Duration = Duration::from_mins(30);

#[derive(Debug)]
pub(crate) struct ObjectWatch<K: Resource> {
    /// The field that chooses them: `metadata.name`, or one that the kind makes selectable.
    pub field: &'static str,
    /// Its value; names the watch in messages.
    pub name: String,
    /// Its kind, in messages.
    pub kind: &'static str,
    /// Its kind, for the API.
    pub resource: K::DynamicType,
    pub api: fn(Client) -> Api<K>,
    /// How the server is asked; the field is added.
    pub config: watcher::Config,
    /// How long the first answer may take.
    pub deadline: Duration,
    /// Between failures; the nodes of a cluster fail together when its API server does.
    pub retry: Backoff,
    /// The log events are `PREFIX.watch_lost` and `PREFIX.watched_again`.
    pub prefix: &'static str,
}

/// Why a watch ended.
#[derive(Debug, Error)]
pub(crate) enum WatchEnd {
    #[error("the API server does not know the kind {0} (404)")]
    UnknownKind(&'static str),
    /// There is no client, the API server refused or closed it, it does not answer in time, or the connection broke.
    #[error("{0}")]
    Failed(String),
}

/// A list as the server has it in memory: thousands of nodes ask, and none needs the newest. The next watch continues with one
/// request. A dead connection is noticed then; bookmarks, one a minute, keep an idle one open.
pub(crate) fn lasting() -> watcher::Config {
    let lasts = u32::try_from(jittered(WATCH, chance()).as_secs()).unwrap_or(u32::MAX);
    watcher::Config::default().any_semantic().timeout(lasts)
}

impl<K> ObjectWatch<K>
where
    K: Resource<DynamicType: Clone + Eq + Hash> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Watches without end. `observe` gets the objects as they are, by name, or why the watch ended. It returns the time until the
    /// next watch if that is no failure; then nothing is logged.
    pub(crate) async fn run(self, mut observe: impl FnMut(Result<Vec<K>, &WatchEnd>) -> Option<Duration>) {
        let (mut failures, mut is_lost) = (0_u32, false);
        loop {
            let watch = self.watch_once(|objects| {
                if is_lost {
                    tracing::info!(event = format!("{}.watched_again", self.prefix), name = self.name);
                }
                (failures, is_lost) = (0, false);
                observe(Ok(objects));
            });
            let end = watch.await;
            let pause = observe(Err(&end)).unwrap_or_else(|| {
                if !is_lost {
                    tracing::warn!(event = format!("{}.watch_lost", self.prefix), name = self.name, "{end}");
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
            Err(cause) => return WatchEnd::Failed(format!("setting up the client of the API server: {cause}")),
        };
        let config = self.config.clone().fields(&format!("{}={}", self.field, self.name));
        let mut events = pin!(watcher((self.api)(client), config));
        let mut known = Writer::new(self.resource.clone());
        // A list counts at its end.
        let mut change = |event: Event<K>| {
            known.apply_watcher_event(&event);
            (!matches!(event, Event::Init | Event::InitApply(_))).then(|| {
                let mut objects: Vec<K> = known.as_reader().state().iter().map(|object| K::clone(object)).collect();
                objects.sort_by_key(ResourceExt::name_any);
                objects
            })
        };
        let first = async {
            while let Some(event) = events.next().await {
                if let Some(objects) = change(event?) {
                    return Ok(Some(objects));
                }
            }
            Ok(None)
        };
        match tokio::time::timeout(self.deadline, first).await {
            Ok(Ok(Some(objects))) => observe(objects),
            Ok(Ok(None)) => return closed(),
            Ok(Err(error)) => return self.end(&server, &error),
            Err(_) => {
                let seconds = self.deadline.as_secs();
                return WatchEnd::Failed(format!("the API server does not answer within {seconds} s"));
            }
        }
        // The server closes every watch after some minutes, and the watcher opens the next; a dead connection is noticed then.
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => change(event).into_iter().for_each(&mut observe),
                Err(error) => return self.end(&server, &error),
            }
        }
        closed()
    }

    fn end(&self, server: &str, error: &watcher::Error) -> WatchEnd {
        match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => {
                WatchEnd::UnknownKind(self.kind)
            }
            error => {
                let (kind, name, cause) = (self.kind, &self.name, cause(error));
                WatchEnd::Failed(format!("watching {kind} {name} at {server}: {cause}"))
            }
        }
    }
}

fn closed() -> WatchEnd {
    WatchEnd::Failed("the API server closed the watch".to_owned())
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
