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
use resident::watch_activity::WatchActivity;
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
    /// How objects are requested; the field is added.
    pub config: watcher::Config,
    /// How long the first answer may take.
    pub deadline: Duration,
    /// Between failures; the nodes of a cluster fail together when its API server does.
    pub retry: Backoff,
    /// The log events are `PREFIX.watch_lost` and `PREFIX.watched_again`.
    pub prefix: &'static str,
}

/// The objects as they are, by name, from a watch that is open.
#[derive(Debug)]
pub(crate) struct WatchedObjects<K> {
    pub objects: Vec<K>,
    /// When the watch last brought a byte.
    pub activity: WatchActivity,
}

/// Why a watch ended.
#[derive(Debug, Error)]
pub(crate) enum WatchEnd {
    #[error("the API server does not know the kind {0} (404)")]
    UnknownKind(&'static str),
    /// The API server does not accept the token, or does not allow the watch: 401 or 403.
    #[error("{0}")]
    Refused(String),
    /// There is no client, the API server closed it, it does not answer in time, or the connection broke.
    #[error("{0}")]
    Failed(String),
}

/// A list as the server has it in memory: thousands of nodes list, and none needs the newest. The next watch continues with one
/// request. Bookmarks, one a minute, keep an idle one open; a silent one ends after five minutes.
pub(crate) fn lasting() -> watcher::Config {
    let lasts = u32::try_from(jittered(WATCH, chance()).as_secs()).unwrap_or(u32::MAX);
    watcher::Config::default().any_semantic().timeout(lasts)
}

impl<K> ObjectWatch<K>
where
    K: Resource<DynamicType: Clone + Eq + Hash> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Watches without end. `observe` gets the objects, or why the watch ended. If the end is not a failure, it returns the time until
    /// the next watch, and nothing is logged.
    pub(crate) async fn run(self, mut observe: impl FnMut(Result<WatchedObjects<K>, &WatchEnd>) -> Option<Duration>) {
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
    async fn watch_once(&self, mut observe: impl FnMut(WatchedObjects<K>)) -> WatchEnd {
        let (client, server) = match api_server::client() {
            Ok(client) => client,
            Err(cause) => return WatchEnd::Failed(format!("setting up the client of the API server: {cause}")),
        };
        let activity = WatchActivity::begin();
        let client = activity.client(&client);
        let config = self.config.clone().fields(&format!("{}={}", self.field, self.name));
        let mut events = pin!(watcher((self.api)(client), config));
        let mut known = Writer::new(self.resource.clone());
        // A list counts at its end.
        let mut change = |event: Event<K>| {
            known.apply_watcher_event(&event);
            (!matches!(event, Event::Init | Event::InitApply(_))).then(|| {
                let mut objects: Vec<K> = known.as_reader().state().iter().map(|object| K::clone(object)).collect();
                objects.sort_by_key(ResourceExt::name_any);
                WatchedObjects { objects, activity: activity.clone() }
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
        // The server closes every watch after some minutes, and the watcher opens the next.
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
                let Cause { message, code } = Cause::of(error);
                let (kind, name) = (self.kind, &self.name);
                let message = format!("watching {kind} {name} at {server}: {message}");
                if matches!(code, Some(401 | 403)) { WatchEnd::Refused(message) } else { WatchEnd::Failed(message) }
            }
        }
    }
}

fn closed() -> WatchEnd {
    WatchEnd::Failed("the API server closed the watch".to_owned())
}

/// What the API server said, or why it said nothing.
struct Cause {
    message: String,
    code: Option<u16>,
}

impl Cause {
    /// The errors of kube repeat their causes and print a refusal as a data structure.
    fn of(error: &watcher::Error) -> Self {
        let mut cause: &dyn std::error::Error = error;
        loop {
            let status = match cause.downcast_ref() {
                Some(kube::Error::Api(status)) => Some(&**status),
                _ => cause.downcast_ref::<Status>(),
            };
            match (status, cause.source()) {
                (Some(status), _) => return Self { message: status.message.clone(), code: Some(status.code) },
                (None, Some(source)) => cause = source,
                (None, None) => return Self { message: cause.to_string(), code: None },
            }
        }
    }
}
