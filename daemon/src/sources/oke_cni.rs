//! Whether OKE's own CNI is in this cluster: its DaemonSet, watched by name. On a new node its pod takes most of a minute to
//! leave anything on the host that would show it. By then our CNI would be installed, and both would assign the same addresses.

use std::sync::Arc;
use std::time::Duration;

use backoff::Backoff;
use installer::{OKE_DAEMONSET, Presence};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::core::PartialObjectMeta;
use resident::api_server;
use tokio::sync::{Notify, watch};

use crate::sources::object_watch::{ObjectWatch, lasting};

/// Where OKE installs it.
const NAMESPACE: &str = "kube-system";

/// How long the first answer may take, connecting included.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// Whether the DaemonSet exists; `None` until the first question has ended, with or without an answer.
pub(crate) type DaemonSetAnswer = Option<Presence>;

/// Watches and notifies `changed`. The last answer stays while there is no watch.
pub(crate) async fn run(found: watch::Sender<DaemonSetAnswer>, changed: Arc<Notify>) {
    let publish = |answer| {
        if found.send_if_modified(|known| absorb(known, answer)) {
            changed.notify_one();
        }
    };
    if !api_server::in_cluster() {
        publish(None);
        return std::future::pending().await;
    }
    let watch = ObjectWatch::<PartialObjectMeta<DaemonSet>> {
        field: "metadata.name",
        name: OKE_DAEMONSET.to_owned(),
        kind: "DaemonSet",
        resource: (),
        api: |client| Api::namespaced(client, NAMESPACE),
        config: lasting(),
        deadline: ANSWER,
        retry: Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(5) },
        prefix: "oke_cni",
    };
    watch
        .run(|objects| {
            publish(objects.ok().map(|watched| Presence::from(!watched.objects.is_empty())));
            None
        })
        .await;
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
