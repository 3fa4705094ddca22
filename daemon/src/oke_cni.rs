//! Whether OKE's own CNI is in this cluster, by its DaemonSet. On a new node its pod takes most of a minute to leave anything
//! on the host that would show it; by then ours would be there, and both hand out the same addresses.

use std::sync::Arc;
use std::time::Duration;

use imds::Backoff;
use installer::departure::{OwnDaemonSet, daemon_sets, meaning};
use installer::{OKE_DAEMONSET, Seen};
use kube::Api;
use kube::api::{DynamicObject, GetParams};
use resident::logging::chain;
use tokio::sync::{Notify, watch};

use crate::backoff::{chance, jittered};
use resident::api_server;

/// Where OKE puts it.
const NAMESPACE: &str = "kube-system";

/// How often it is asked for. It comes and goes with an add-on of the cluster's.
const LOOK: Duration = Duration::from_secs(300);

/// Between failures; all nodes fail together when the API server does.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: LOOK };

/// How long the answer may take, connecting included.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// What is known; nothing before the first question has ended, however that was.
pub type Found = Option<Seen>;

/// Asks for ever, and tells `published` what is new. The last good answer stays when there is none.
pub async fn run(found: watch::Sender<Found>, published: Arc<Notify>) {
    if !api_server::in_cluster() {
        found.send_replace(Some(Seen::Unknown));
        return std::future::pending().await;
    }
    let (mut failures, mut told) = (0_u32, false);
    loop {
        let asked = tokio::time::timeout(ANSWER, ask()).await;
        let answer = asked.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER.as_secs())));
        let pause = match &answer {
            Ok(_) => {
                if told {
                    tracing::info!(event = "oke_cni.asked_again", daemonset = OKE_DAEMONSET);
                }
                (failures, told) = (0, false);
                jittered(LOOK, chance())
            }
            Err(why) => {
                if !told {
                    tracing::warn!(event = "oke_cni.unknown", daemonset = OKE_DAEMONSET, "{why}");
                }
                (failures, told) = (failures.saturating_add(1), true);
                RETRY.pause(failures, chance())
            }
        };
        if found.send_if_modified(|known| absorb(known, answer.ok())) {
            published.notify_one();
        }
        tokio::time::sleep(pause).await;
    }
}

/// Takes an answer in; says whether that is news.
fn absorb(known: &mut Found, answer: Found) -> bool {
    let now = answer.or(*known).or(Some(Seen::Unknown));
    std::mem::replace(known, now) != now
}

async fn ask() -> Result<Seen, String> {
    let (client, _) = api_server::client()?;
    let api: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &daemon_sets());
    // As the server remembers it: thousands of nodes ask, and none is in a hurry.
    match api.get_metadata_with(OKE_DAEMONSET, &GetParams::any()).await {
        Ok(_) => Ok(Seen::Present),
        Err(kube::Error::Api(status)) if meaning(&status, OKE_DAEMONSET) == OwnDaemonSet::NotFound => Ok(Seen::Absent),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => Err(chain(&error)),
    }
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
}
