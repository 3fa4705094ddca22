//! Whether OKE's own CNI is in this cluster: its DaemonSet, watched by name. On a new node its pod takes most of a minute to
//! leave anything on the host that would show it. By then our CNI would be installed, and both would assign the same addresses.

use std::sync::Arc;
use std::time::Duration;

use backoff::Backoff;
use installer::{OKE_DAEMONSET, Presence};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Config;
use resident::api_server;
use tokio::sync::{Notify, watch};

use crate::sources::backoff::{chance, jittered};
use crate::sources::object_watch::{LogEvents, ObjectWatch, Observer, WatchEnd};

/// Where OKE installs it.
const NAMESPACE: &str = "kube-system";

/// How long one watch lasts before the next continues it with one request; a dead connection is noticed then. Bookmarks, one a
/// minute, keep an idle connection open.
const WATCH: Duration = Duration::from_mins(30);

/// How long the first answer may take, connecting included.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// Whether the DaemonSet exists; `None` until the first question has ended, with or without an answer.
pub type DaemonSetAnswer = Option<Presence>;

struct DaemonSetObserver {
    found: watch::Sender<DaemonSetAnswer>,
    changed: Arc<Notify>,
}

/// Watches and notifies `changed`. The last answer stays while there is no watch.
pub async fn run(found: watch::Sender<DaemonSetAnswer>, changed: Arc<Notify>) {
    let observer = DaemonSetObserver { found, changed };
    if !api_server::in_cluster() {
        observer.publish(None);
        return std::future::pending().await;
    }
    let watch = ObjectWatch::<PartialObjectMeta<DaemonSet>> {
        field: "metadata.name",
        name: OKE_DAEMONSET.to_owned(),
        kind: "DaemonSet",
        api: |client| Api::namespaced(client, NAMESPACE),
        config,
        deadline: ANSWER,
        retry: Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(5) },
        events: LogEvents { lost: "oke_cni.unknown", restored: "oke_cni.watched_again" },
    };
    watch.run(observer).await;
}

/// The first answer as the server has it in memory: thousands of nodes ask, and none needs the newest.
fn config() -> Config {
    let lasts = u32::try_from(jittered(WATCH, chance()).as_secs()).unwrap_or(u32::MAX);
    Config::default().any_semantic().timeout(lasts)
}

impl DaemonSetObserver {
    fn publish(&self, answer: DaemonSetAnswer) {
        if self.found.send_if_modified(|known| absorb(known, answer)) {
            self.changed.notify_one();
        }
    }
}

impl<K> Observer<K> for DaemonSetObserver {
    fn observe(&mut self, objects: Vec<K>) {
        self.publish(Some(Presence::from(!objects.is_empty())));
    }

    fn lose(&mut self, _: &WatchEnd) -> Option<Duration> {
        self.publish(None);
        None
    }
}

/// Takes an answer in; returns whether it changes anything.
fn absorb(known: &mut DaemonSetAnswer, answer: DaemonSetAnswer) -> bool {
    let now = answer.or(*known).or(Some(Presence::Unknown));
    std::mem::replace(known, now) != now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_kept_until_next_and_only_changes_are_published() {
        let mut known = None;
        let answers =
            [None, None, Some(Presence::Absent), None, Some(Presence::Present), Some(Presence::Present), None];
        let published = answers.map(|answer| (absorb(&mut known, answer), known));
        let (unknown, absent, present) = (Some(Presence::Unknown), Some(Presence::Absent), Some(Presence::Present));
        let expected = [
            (true, unknown),
            (false, unknown),
            (true, absent),
            (false, absent),
            (true, present),
            (false, present),
            (false, present),
        ];
        assert_eq!(published, expected);
    }
}
