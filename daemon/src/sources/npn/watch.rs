//! The NativePodNetwork as a watch of the API server reports it. A lost watch makes the last answer older and is an error only
//! when that is old; before the first answer the cached copy is used.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use api::NativePodNetwork;
use backoff::Backoff;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher::Config;
use resident::logging::chain;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{Notify, watch};
use vcn::Ocid;

use super::{KnownNpn, parse, read_copy};
use crate::sources::backoff::{chance, jittered};
use crate::sources::cached_copy::CachedCopy;
use crate::sources::object_watch::{LogEvents, ObjectWatch, Observer, WatchEnd};

/// How old the last answer may be before a lost watch is an error. API servers restart and are unreachable for minutes, which
/// harms no pod of the node.
const STALE: Duration = Duration::from_mins(5);

/// How long the first question waits for the first answer.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_millis(1500);

/// Between requests for a kind that does not exist, as on clusters without VCN-native pod networking. It may be added later.
const UNKNOWN_KIND: Duration = Duration::from_mins(4);

/// What the watch knows, for the source poller.
#[derive(Debug)]
pub struct NpnWatch {
    /// The instance to watch for, once the metadata service has named it.
    instance: watch::Sender<Option<Ocid>>,
    state: watch::Sender<WatchState>,
    copy: CachedCopy,
}

/// The task that watches.
#[derive(Debug)]
pub struct NpnWatcher {
    instance: watch::Receiver<Option<Ocid>>,
    state: watch::Sender<WatchState>,
    changed: Arc<Notify>,
}

/// What the watch has reported so far.
#[derive(Clone, Debug, Default)]
struct WatchState {
    npn: KnownNpn,
    /// The last good answer as the API server has it, for the cached copy; `None` before the first.
    answered: Option<Option<Arc<RawValue>>>,
    /// The object is there and cannot be used; the loss of the watch does not change that.
    is_unreadable: bool,
}

struct NpnObserver {
    instance: Ocid,
    state: watch::Sender<WatchState>,
    changed: Arc<Notify>,
}

impl NpnWatch {
    pub(super) fn new(copy: CachedCopy, changed: Arc<Notify>) -> (Self, NpnWatcher) {
        let ((instance, named), (state, _)) = (watch::channel(None), watch::channel(WatchState::default()));
        let watcher = NpnWatcher { instance: named, state: state.clone(), changed };
        (Self { instance, state, copy }, watcher)
    }

    /// What is known now; the first call waits a moment for an answer.
    pub(super) async fn current(&self, instance: &Ocid) -> KnownNpn {
        if self.instance.borrow().is_none() {
            self.recall(instance);
            self.instance.send_replace(Some(instance.clone()));
        }
        let mut state = self.state.subscribe();
        let _ = tokio::time::timeout(FIRST_ANSWER, state.wait_for(|state| !state.npn.is_unasked())).await;
        let state = state.borrow().clone();
        state.current(Instant::now())
    }

    /// Writes the last good answer to the cached copy.
    pub(super) fn store_copy(&mut self) -> Result<(), String> {
        let WatchState { npn, answered, .. } = self.state.borrow().clone();
        let Some(document) = answered else { return Ok(()) };
        let age = npn.age(Instant::now()).unwrap_or_default();
        self.copy.store(document.as_deref(), SystemTime::now() - age)
    }

    /// Starts with what an earlier agent saw.
    fn recall(&self, instance: &Ocid) {
        match read_copy(&self.copy, instance) {
            Ok(Some((npn, age))) => {
                self.state.send_modify(|state| state.npn.recall(Some(npn), age, None, Instant::now()));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(event = "npn.copy_unusable", error = %chain(error.as_ref()), "starting without it");
            }
        }
    }
}

impl WatchState {
    fn observe(&mut self, npn: Option<NativePodNetwork>, document: Option<Arc<RawValue>>) {
        (self.answered, self.is_unreadable) = (Some(document), false);
        self.npn.watched(npn);
    }

    /// The object cannot be used: the last good answer stays, and gets older.
    fn unreadable(&mut self, error: String, now: Instant) {
        self.is_unreadable = true;
        self.npn.fail(error, now);
    }

    fn lose(&mut self, error: String, now: Instant) {
        if self.is_unreadable {
            self.npn.unwatch(now);
        } else {
            self.npn.fail(error, now);
        }
    }

    /// The API server does not know the kind. Returns whether that is to be believed: an object that was seen does not go
    /// because of a 404, which a proxy answers as well, and an API server whose kind is being created again.
    fn lose_kind(&mut self, now: Instant) -> bool {
        let is_believed = self.npn.value.as_ref().is_none_or(Option::is_none);
        if is_believed {
            self.observe(None, None);
            self.npn.unwatch(now);
        }
        is_believed
    }

    fn current(self, now: Instant) -> KnownNpn {
        let mut npn = self.npn;
        if npn.is_unasked() {
            npn.error = Some("the API server has not answered yet".to_owned());
        } else if !self.is_unreadable && npn.age(now).is_some_and(|age| age <= STALE) {
            npn.error = None;
        }
        npn
    }
}

impl NpnWatcher {
    /// Watches as soon as the instance is known.
    pub async fn run(mut self) {
        let Ok(instance) = self.instance.wait_for(Option::is_some).await.map(|instance| instance.clone()) else {
            return;
        };
        let Some(instance) = instance else { return };
        let watch = ObjectWatch::<DynamicObject> {
            field: "metadata.name",
            name: instance.unique_id().to_owned(),
            kind: "NativePodNetwork",
            api: |client| Api::all_with(client, &api::npn::resource()),
            config: Config::default,
            deadline: Duration::from_secs(30),
            retry: Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(60) },
            events: LogEvents { lost: "npn.watch_lost", restored: "npn.watched_again" },
        };
        watch.run(NpnObserver { instance, state: self.state, changed: self.changed }).await;
    }
}

impl Observer<DynamicObject> for NpnObserver {
    fn observe(&mut self, objects: Vec<DynamicObject>) {
        let read = |mut object: DynamicObject| {
            // Half of it, and of no use here.
            object.metadata.managed_fields = None;
            let document = to_raw_value(&object)?;
            let place = format!("NativePodNetwork {}", self.instance.unique_id());
            anyhow::Ok((parse(document.get().as_bytes(), &self.instance, &place)?, Arc::from(document)))
        };
        let read = objects.into_iter().next().map(read).transpose();
        self.state.send_modify(|state| match read {
            Ok(object) => {
                let (npn, document) = object.unzip();
                state.observe(npn, document);
            }
            Err(error) => state.unreadable(chain(error.as_ref()), Instant::now()),
        });
        self.changed.notify_one();
    }

    fn lose(&mut self, end: &WatchEnd) -> Option<Duration> {
        let mut pause = None;
        self.state.send_modify(|state| {
            if matches!(end, WatchEnd::UnknownKind(_)) && state.lose_kind(Instant::now()) {
                pause = Some(jittered(UNKNOWN_KIND, chance()));
            } else {
                state.lose(end.to_string(), Instant::now());
            }
        });
        if pause.is_some() {
            self.changed.notify_one();
        }
        pause
    }
}
