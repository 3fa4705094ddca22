//! The VnicAttachments as a watch of the API server reports them. A lost watch makes the last answer older and is an error only
//! when that is old; before the first answer the cached copy is used.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use api::VnicAttachment;
use backoff::Backoff;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Config;
use kube::{Api, ResourceExt};
use resident::logging::chain;
use tokio::sync::{Notify, watch};
use vcn::Ocid;

use super::{KnownAttachments, read_copy};
use crate::sources::backoff::{chance, jittered};
use crate::sources::cached_copy::CachedCopy;
use crate::sources::object_watch::{LogEvents, ObjectWatch, Observer, WatchEnd};

/// How old the last answer may be before a lost watch is an error.
const STALE: Duration = Duration::from_mins(5);

/// How long one watch lasts before the next continues it with one request; a dead connection is noticed then.
const WATCH: Duration = Duration::from_mins(30);

/// Between requests for a kind that does not exist: on clusters without this project's custom resources VNICs are attached by hand.
const UNKNOWN_KIND: Duration = Duration::from_mins(4);

/// What the watch knows, for the source poller.
#[derive(Debug)]
pub struct AttachmentWatch {
    /// The instance to watch for; none while nothing is to be watched.
    instance: watch::Sender<Option<Ocid>>,
    state: watch::Sender<WatchState>,
    copy: CachedCopy,
}

/// The task that watches.
#[derive(Debug)]
pub struct AttachmentWatcher {
    instance: watch::Receiver<Option<Ocid>>,
    state: watch::Sender<WatchState>,
    changed: Arc<Notify>,
}

#[derive(Clone, Debug, Default)]
struct WatchState {
    known: KnownAttachments,
    /// Whether the API server has answered, so that the cached copy is to be written.
    is_answered: bool,
    /// Some objects cannot be read, which the loss of the watch does not change.
    unreadable: Option<String>,
}

struct AttachmentObserver {
    state: watch::Sender<WatchState>,
    changed: Arc<Notify>,
}

impl AttachmentWatch {
    pub(super) fn new(copy: CachedCopy, changed: Arc<Notify>) -> (Self, AttachmentWatcher) {
        let ((instance, named), (state, _)) = (watch::channel(None), watch::channel(WatchState::default()));
        let watcher = AttachmentWatcher { instance: named, state: state.clone(), changed };
        (Self { instance, state, copy }, watcher)
    }

    /// What is known now; without a cached copy the first answer is waited for.
    pub(super) async fn current(&self, instance: &Ocid, within: Duration) -> KnownAttachments {
        if self.instance.borrow().as_ref() != Some(instance) {
            self.state.send_replace(WatchState { known: self.recalled(instance), ..WatchState::default() });
            self.instance.send_replace(Some(instance.clone()));
        }
        let mut state = self.state.subscribe();
        let is_known = |state: &WatchState| state.is_answered || !state.known.is_unasked();
        let _ = tokio::time::timeout(within, state.wait_for(is_known)).await;
        let state = state.borrow().clone();
        state.current(Instant::now())
    }

    pub(super) fn stop(&self) {
        self.instance.send_if_modified(|instance| instance.take().is_some());
    }

    pub(super) fn store_copy(&mut self) -> Result<(), String> {
        let WatchState { known, is_answered, .. } = self.state.borrow().clone();
        let Some(attachments) = known.value.as_ref().filter(|_| is_answered) else { return Ok(()) };
        let age = known.age(Instant::now()).unwrap_or_default();
        self.copy.store(Some(attachments).filter(|all| !all.is_empty()), SystemTime::now() - age)
    }

    /// What an earlier agent saw.
    fn recalled(&self, instance: &Ocid) -> KnownAttachments {
        let mut known = KnownAttachments::default();
        match read_copy(&self.copy, instance) {
            Ok(Some((attachments, age))) => known.recall(attachments, age, None, Instant::now()),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(event = "attachments.copy_unusable", error = %chain(&error), "starting without it");
            }
        }
        known
    }
}

impl WatchState {
    /// Takes in a list. An object that a later version wrote may not be readable: it stays as it was known.
    fn observe(&mut self, objects: Vec<DeserializeGuard<VnicAttachment>>) {
        let before = self.known.value.take().unwrap_or_default();
        let (mut attachments, mut unreadable) = (Vec::with_capacity(objects.len()), Vec::new());
        for object in objects {
            let name = object.name_any();
            match object.0 {
                Ok(mut attachment) => {
                    // Half of it, and of no use here.
                    attachment.metadata.managed_fields = None;
                    attachments.push(attachment);
                }
                Err(error) => {
                    attachments.extend(before.iter().find(|old| old.name_any() == name).cloned());
                    unreadable.push(format!("VnicAttachment {name} cannot be read: {}", error.error));
                }
            }
        }
        self.known.watched(attachments);
        (self.is_answered, self.unreadable) = (true, (!unreadable.is_empty()).then(|| unreadable.join("; ")));
    }

    /// The API server does not know the kind. Returns whether that is to be believed: objects that were seen do not go because
    /// of a 404, which a proxy answers as well.
    fn lose_kind(&mut self, now: Instant) -> bool {
        let is_believed = self.known.value.as_ref().is_none_or(Vec::is_empty);
        if is_believed {
            self.observe(Vec::new());
            self.known.unwatch(now);
        }
        is_believed
    }

    fn current(self, now: Instant) -> KnownAttachments {
        let mut known = self.known;
        if let Some(error) = self.unreadable {
            known.error = Some(error);
        } else if known.is_unasked() {
            known.error = Some("the API server has not answered yet".to_owned());
        } else if known.age(now).is_some_and(|age| age <= STALE) {
            known.error = None;
        }
        known
    }
}

impl AttachmentWatcher {
    /// Watches whenever there is something to watch.
    pub async fn run(mut self) {
        loop {
            let Ok(instance) = self.instance.wait_for(Option::is_some).await.map(|instance| instance.clone()) else {
                return;
            };
            let Some(instance) = instance else { continue };
            let watch = ObjectWatch::<DeserializeGuard<VnicAttachment>> {
                field: "spec.instanceId",
                name: instance.to_string(),
                kind: "VnicAttachment",
                api: Api::all,
                config,
                deadline: Duration::from_secs(30),
                retry: Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(2) },
                events: LogEvents { lost: "attachments.watch_lost", restored: "attachments.watched_again" },
            };
            let observer = AttachmentObserver { state: self.state.clone(), changed: self.changed.clone() };
            // Cancel-safe: a watch that is dropped is opened again, and lists again.
            tokio::select! {
                () = watch.run(observer) => {}
                changed = self.instance.wait_for(|now| now.as_ref() != Some(&instance)) => drop(changed),
            }
        }
    }
}

/// The first answer as the server has it in memory: thousands of nodes ask.
fn config() -> Config {
    let lasts = u32::try_from(jittered(WATCH, chance()).as_secs()).unwrap_or(u32::MAX);
    Config::default().any_semantic().timeout(lasts)
}

impl Observer<DeserializeGuard<VnicAttachment>> for AttachmentObserver {
    fn observe(&mut self, objects: Vec<DeserializeGuard<VnicAttachment>>) {
        self.state.send_modify(|state| state.observe(objects));
        self.changed.notify_one();
    }

    fn lose(&mut self, end: &WatchEnd) -> Option<Duration> {
        let mut pause = None;
        self.state.send_modify(|state| {
            if matches!(end, WatchEnd::UnknownKind(_)) && state.lose_kind(Instant::now()) {
                pause = Some(jittered(UNKNOWN_KIND, chance()));
            } else {
                state.known.fail(end.to_string(), Instant::now());
            }
        });
        if pause.is_some() {
            self.changed.notify_one();
        }
        pause
    }
}

#[cfg(test)]
mod tests {
    use kube::core::error_boundary::InvalidObject;
    use serde_json::json;

    use super::*;

    fn attachment(name: &str, mtu: u16) -> VnicAttachment {
        let spec = json!({ "instanceId": "ocid1.instance.oc1.iad.node", "subnetId": "ocid1.subnet.oc1.iad.s", "name": name,
            "purpose": "Host", "mtu": mtu });
        VnicAttachment::new(name, serde_json::from_value(spec).unwrap())
    }

    fn later(name: &str) -> DeserializeGuard<VnicAttachment> {
        let metadata = attachment(name, 1500).metadata;
        DeserializeGuard(Err(InvalidObject { error: "unknown purpose".to_owned(), metadata }))
    }

    #[test]
    fn object_of_a_later_version_stays_as_it_was_known() {
        let readable = |name: &str, mtu| DeserializeGuard(Ok(attachment(name, mtu)));
        let mut state = WatchState::default();
        state.observe(vec![readable("a", 1500), readable("b", 1500)]);
        state.observe(vec![later("a"), readable("b", 9000), later("c")]);
        assert_eq!(state.known.value, Some(vec![attachment("a", 1500), attachment("b", 9000)]));
        let error = state.current(Instant::now()).error.unwrap();
        assert!(error.contains("VnicAttachment a cannot be read: unknown purpose; VnicAttachment c"), "{error}");
    }

    #[test]
    fn unknown_kind_means_none_unless_some_were_seen() {
        let mut state = WatchState::default();
        assert!(state.lose_kind(Instant::now()) && state.known.value == Some(Vec::new()));
        state.observe(vec![DeserializeGuard(Ok(attachment("a", 1500)))]);
        assert!(!state.lose_kind(Instant::now()) && state.known.value == Some(vec![attachment("a", 1500)]));
    }
}
