//! Whether OKE's own CNI is in this cluster, by its DaemonSet, watched by its name. On a new node its pod takes most of a
//! minute to leave anything on the host that would show it; by then ours would be there, and both hand out the same addresses.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use imds::Backoff;
use installer::{OKE_DAEMONSET, Seen};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use resident::api_server;
use tokio::sync::{Notify, watch};

use crate::sources::backoff::{chance, jittered};
use crate::sources::npn::why;

/// Where OKE puts it.
const NAMESPACE: &str = "kube-system";

/// How long one watch lasts before the next goes on from it: at the end of each is one request. A dead connection is noticed
/// then. Bookmarks, one a minute, keep an idle connection open.
const WATCH: Duration = Duration::from_mins(30);

/// Between failures; all nodes fail together when the API server does.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(5) };

/// How long the first answer may take, connecting included.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// What is known; nothing before the first question has ended, however that was.
pub type Found = Option<Seen>;

/// Watches for ever, and notifies `published` of news. The last good answer stays while there is no watch.
pub async fn run(found: watch::Sender<Found>, published: Arc<Notify>) {
    let publish = |answer: Found| {
        if found.send_if_modified(|known| absorb(known, answer)) {
            published.notify_one();
        }
    };
    if !api_server::in_cluster() {
        publish(Some(Seen::Unknown));
        return std::future::pending().await;
    }
    let (mut failures, mut is_lost) = (0_u32, false);
    loop {
        let ended = watch_once(|seen| {
            if is_lost {
                tracing::info!(event = "oke_cni.watched_again", daemonset = OKE_DAEMONSET);
            }
            (failures, is_lost) = (0, false);
            publish(Some(seen));
        });
        let why = ended.await;
        if !is_lost {
            tracing::warn!(event = "oke_cni.unknown", daemonset = OKE_DAEMONSET, "{why}");
        }
        (failures, is_lost) = (failures.saturating_add(1), true);
        publish(None);
        tokio::time::sleep(RETRY.pause(failures, chance())).await;
    }
}

/// Takes an answer in; returns whether that is news.
fn absorb(known: &mut Found, answer: Found) -> bool {
    let now = answer.or(*known).or(Some(Seen::Unknown));
    std::mem::replace(known, now) != now
}

/// Watches until that fails, and returns why; calls `tell` with each answer.
async fn watch_once(mut tell: impl FnMut(Seen)) -> String {
    let client = match api_server::client() {
        Ok((client, _)) => client,
        Err(why) => return why,
    };
    // Nothing but its metadata, and the first answer as the server remembers it: thousands of nodes ask, and none is in a hurry.
    let api: Api<PartialObjectMeta<DaemonSet>> = Api::namespaced(client, NAMESPACE);
    let lasts = u32::try_from(jittered(WATCH, chance()).as_secs()).unwrap_or(u32::MAX);
    let config = watcher::Config::default().fields(&format!("metadata.name={OKE_DAEMONSET}"));
    let mut events = pin!(watcher(api, config.any_semantic().timeout(lasts)));
    let mut listed = Seen::Absent;
    let first = async {
        while let Some(event) = events.next().await {
            if let Some(seen) = answer(&mut listed, event.map_err(|error| why(&error))?) {
                return Ok(seen);
            }
        }
        Err("the watch ended".to_owned())
    };
    match tokio::time::timeout(ANSWER, first).await {
        Ok(Ok(seen)) => tell(seen),
        Ok(Err(why)) => return why,
        Err(_) => return format!("no answer within {} s", ANSWER.as_secs()),
    }
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => answer(&mut listed, event).into_iter().for_each(&mut tell),
            Err(error) => return why(&error),
        }
    }
    "the watch ended".to_owned()
}

/// What an event says: a list says it at its end.
fn answer<K>(listed: &mut Seen, event: Event<K>) -> Found {
    match event {
        Event::Init => *listed = Seen::Absent,
        Event::InitApply(_) => *listed = Seen::Present,
        Event::InitDone => return Some(*listed),
        Event::Apply(_) => return Some(Seen::Present),
        Event::Delete(_) => return Some(Seen::Absent),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_until_there_is_another_and_told_when_it_is_new() {
        let mut known = None;
        let mut told = Vec::new();
        for answer in [None, None, Some(Seen::Absent), None, Some(Seen::Present), Some(Seen::Present), None] {
            let news = absorb(&mut known, answer);
            told.push((known, news));
        }
        let (unknown, absent, present) = (Some(Seen::Unknown), Some(Seen::Absent), Some(Seen::Present));
        let wanted = [
            (unknown, true),
            (unknown, false),
            (absent, true),
            (absent, false),
            (present, true),
            (present, false),
            (present, false),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_list_answers_at_its_end_and_an_event_at_once() {
        let mut listed = Seen::Absent;
        let mut answers = |events: Vec<Event<()>>| -> Vec<Found> {
            events.into_iter().map(|event| answer(&mut listed, event)).collect()
        };
        let (absent, present) = (Some(Seen::Absent), Some(Seen::Present));
        assert_eq!(answers(vec![Event::Init, Event::InitDone]), [None, absent]);
        assert_eq!(answers(vec![Event::Init, Event::InitApply(()), Event::InitDone]), [None, None, present]);
        assert_eq!(answers(vec![Event::Delete(()), Event::Apply(())]), [absent, present]);
        assert_eq!(answers(vec![Event::Init, Event::InitDone]), [None, absent], "another list forgets the one before");
    }
}
