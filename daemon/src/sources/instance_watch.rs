//! Objects of this instance as a watch of the API server reports them. An answer is as old as the last byte of the watch, and a
//! lost watch is an error only when that is old. Before the first answer the cached copy is used.

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kube::Resource;
use resident::logging::chain;
use resident::watch_activity::WatchActivity;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use vcn::Ocid;

use crate::facts::source::Source;
use crate::sources::backoff::{chance, jittered};
use crate::sources::cached_copy::CachedCopy;
use crate::sources::object_watch::{ObjectWatch, WatchEnd, WatchedObjects};

/// How old the last answer may be before a lost watch is an error. API servers restart and are unreachable for minutes, which
/// harms no pod of the node.
const STALE: Duration = Duration::from_mins(5);

/// The same where the API server answers and refuses: no outage, but a right or an account is missing. During an upgrade either may
/// be missing for seconds.
const REFUSED: Duration = Duration::from_secs(20);

/// Between requests for a kind that does not exist, as on clusters without VCN-native pod networking or without this project's
/// custom resources. It may be added later.
const UNKNOWN_KIND: Duration = Duration::from_mins(4);

/// A kind of objects, and what a list of them says.
pub(crate) trait InstanceKind: Debug + Send + 'static {
    /// An object as it is watched.
    type Object: Resource<DynamicType: Clone + Debug + Eq + Hash> + Clone + DeserializeOwned + Debug + Send + 'static;
    /// What is learnt; the default is that there is no object.
    type Value: Clone + Debug + Default + PartialEq + Send + Sync;
    /// Of names of log events.
    const PREFIX: &'static str;

    /// How the objects of an instance are watched.
    fn watch(instance: &Ocid) -> ObjectWatch<Self::Object>;

    /// Reads a list; `before` is what was known.
    fn read(instance: &Ocid, objects: Vec<Self::Object>, before: Option<Self::Value>) -> ListResult<Self::Value>;

    /// The cached copy and its age.
    fn read_copy(copy: &CachedCopy, instance: &Ocid) -> anyhow::Result<Option<(Self::Value, Duration)>>;
}

/// What a list says.
#[derive(Debug)]
pub(crate) struct ListResult<V> {
    /// `None`: it cannot be used, and the last good answer stays.
    pub value: Option<V>,
    /// The objects for the cached copy; `None` removes it.
    pub document: Option<Box<RawValue>>,
    /// Why some objects cannot be used.
    pub unreadable: Option<String>,
}

/// What the watch knows, for the source poller.
#[derive(Debug)]
pub(crate) struct InstanceWatch<W: InstanceKind> {
    /// The instance to watch for; none while nothing is to be watched.
    instance: watch::Sender<Option<Ocid>>,
    state: watch::Sender<WatchState<W::Value>>,
    copy: CachedCopy,
}

#[derive(Debug)]
pub(crate) struct InstanceWatcher<W: InstanceKind> {
    instance: watch::Receiver<Option<Ocid>>,
    state: watch::Sender<WatchState<W::Value>>,
    changed: Arc<Notify>,
}

/// What the watch has reported so far.
#[derive(Clone, Debug, Default)]
struct WatchState<V> {
    known: Source<V>,
    /// The last good answer as the API server has it, for the cached copy; `None` before the first.
    answered: Option<Option<Arc<RawValue>>>,
    /// Some objects cannot be used, which the loss of the watch does not change.
    unreadable: Option<String>,
    /// The last watch ended because the API server refused it.
    is_refused: bool,
}

struct InstanceObserver<W: InstanceKind> {
    instance: Ocid,
    state: watch::Sender<WatchState<W::Value>>,
    changed: Arc<Notify>,
}

impl<W: InstanceKind> InstanceWatch<W> {
    pub(super) fn new(copy: CachedCopy, changed: Arc<Notify>) -> (Self, InstanceWatcher<W>) {
        let ((instance, named), (state, _)) = (watch::channel(None), watch::channel(WatchState::default()));
        let watcher = InstanceWatcher { instance: named, state: state.clone(), changed };
        (Self { instance, state, copy }, watcher)
    }

    /// What is known now; without a cached copy the first answer is waited for.
    pub(super) async fn current(&self, instance: &Ocid, within: Duration) -> Source<W::Value> {
        if self.instance.borrow().as_ref() != Some(instance) {
            self.state.send_replace(WatchState { known: self.recalled(instance), ..WatchState::default() });
            self.instance.send_replace(Some(instance.clone()));
        }
        let mut state = self.state.subscribe();
        let _ = tokio::time::timeout(within, state.wait_for(|state| !state.known.is_pending())).await;
        let state = state.borrow().clone();
        state.current(Instant::now())
    }

    pub(super) fn stop(&self) {
        self.instance.send_if_modified(|instance| instance.take().is_some());
    }

    /// Writes the last good answer to the cached copy.
    pub(super) fn store_copy(&mut self) -> Result<(), String> {
        let WatchState { known, answered, .. } = self.state.borrow().clone();
        let Some(document) = answered else { return Ok(()) };
        let age = known.age(Instant::now()).unwrap_or_default();
        self.copy.store(document.as_deref(), SystemTime::now() - age)
    }

    /// What an earlier agent saw.
    fn recalled(&self, instance: &Ocid) -> Source<W::Value> {
        let mut known = Source::default();
        match W::read_copy(&self.copy, instance) {
            Ok(Some((value, age))) => known.recall(value, age, None, Instant::now()),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(event = format!("{}.copy_unusable", W::PREFIX), error = %chain(error.as_ref()), "starting without it");
            }
        }
        known
    }
}

impl<V: Clone> WatchState<V> {
    fn observe(&mut self, listed: ListResult<V>, activity: WatchActivity) {
        match (listed.value, &listed.unreadable) {
            (Some(value), _) => {
                self.known.watched(value, activity);
                self.answered = Some(listed.document.map(Arc::from));
            }
            (None, why) => self.known.fail(why.clone().unwrap_or_default()),
        }
        (self.unreadable, self.is_refused) = (listed.unreadable, false);
    }

    fn lose(&mut self, end: &WatchEnd) {
        self.is_refused = matches!(end, WatchEnd::Refused(_));
        if self.unreadable.is_some() {
            self.known.unwatch();
        } else {
            self.known.fail(end.to_string());
        }
    }

    fn current(self, now: Instant) -> Source<V> {
        let (mut known, bound) = (self.known, if self.is_refused { REFUSED } else { STALE });
        if let Some(error) = self.unreadable {
            known.error = Some(error);
        } else if known.is_pending() {
            known.error = Some("the API server has not answered yet".to_owned());
        } else if known.age(now).is_some_and(|age| age <= bound) {
            known.error = None;
        }
        known
    }
}

impl<W: InstanceKind> InstanceWatcher<W> {
    /// Watches whenever there is something to watch.
    pub(crate) async fn run(mut self) {
        loop {
            let Ok(instance) = self.instance.wait_for(Option::is_some).await.map(|instance| instance.clone()) else {
                return;
            };
            let Some(instance) = instance else { continue };
            let (state, changed) = (self.state.clone(), self.changed.clone());
            let observer = InstanceObserver::<W> { instance: instance.clone(), state, changed };
            // Cancel-safe: a watch that is dropped is opened again, and lists again.
            tokio::select! {
                () = W::watch(&instance).run(|seen| observer.note(seen)) => {}
                changed = self.instance.wait_for(|now| now.as_ref() != Some(&instance)) => drop(changed),
            }
        }
    }
}

impl<W: InstanceKind> InstanceObserver<W> {
    /// The API server does not know the kind. Returns whether that answer is believed. Known objects do not go because of a 404:
    /// a proxy answers that as well, and so does an API server whose CRD is being created again.
    fn lose_kind(&self, state: &mut WatchState<W::Value>) -> bool {
        let is_believed = state.known.value.as_ref().is_none_or(|value| *value == W::Value::default());
        if is_believed {
            state.observe(W::read(&self.instance, Vec::new(), None), WatchActivity::begin());
            state.known.unwatch();
        }
        is_believed
    }

    fn note(&self, seen: Result<WatchedObjects<W::Object>, &WatchEnd>) -> Option<Duration> {
        match seen {
            Ok(watched) => {
                self.observe(watched);
                None
            }
            Err(end) => self.lose(end),
        }
    }

    fn observe(&self, WatchedObjects { objects, activity }: WatchedObjects<W::Object>) {
        self.state.send_modify(|state| {
            let listed = W::read(&self.instance, objects, state.known.value.clone());
            state.observe(listed, activity);
        });
        self.changed.notify_one();
    }

    fn lose(&self, end: &WatchEnd) -> Option<Duration> {
        let (mut pause, is_refused) = (None, matches!(end, WatchEnd::Refused(_)));
        self.state.send_modify(|state| {
            if matches!(end, WatchEnd::UnknownKind(_)) && self.lose_kind(state) {
                pause = Some(jittered(UNKNOWN_KIND, chance()));
            } else {
                state.lose(end);
            }
        });
        // A refusal becomes an error at a later try, which need not wait for the next poll of all sources.
        if pause.is_some() || is_refused {
            self.changed.notify_one();
        }
        pause
    }
}
