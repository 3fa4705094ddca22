//! The ServiceAccount of the agents. Without it the API server refuses their tokens, which a running agent notices only when its
//! watches end, up to half an hour later.

use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use resident::logging::chain;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::cluster::request::{RequestError, send};

/// Its name, as in manifests/base/daemonset.yaml.
pub(crate) const NAME: &str = "oke-node-agent";

/// Between two questions.
const ROUND: Duration = Duration::from_secs(10);

/// Asks for it again and again; never returns. `missing` has the time since which it is missing.
pub(crate) async fn follow(client: Client, namespace: &str, missing: watch::Sender<Option<Timestamp>>) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let mut is_failing = false;
    loop {
        let asked = send(accounts.get_metadata_opt(NAME)).await.map(|found| found.is_some());
        if let Err(error) = &asked
            && !is_failing
        {
            tracing::warn!(event = "agents.account_unread", error = chain(error), "retried");
        }
        is_failing = asked.is_err();
        missing.send_if_modified(|since| note(since, &asked, Timestamp::now()));
        sleep(ROUND).await;
    }
}

/// Takes in an answer; without one, what was known stays. Returns whether that changed.
fn note(since: &mut Option<Timestamp>, asked: &Result<bool, RequestError>, now: Timestamp) -> bool {
    match (asked, &since) {
        (Ok(false), None) => *since = Some(now),
        (Ok(true), Some(_)) => *since = None,
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_is_missing_since_the_first_answer_without_it() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut since = None;
        for (asked, second, expected) in [
            (Err(RequestError::TimedOut), 1, None),
            (Ok(false), 2, Some(at(2))),
            (Ok(false), 3, Some(at(2))),
            (Err(RequestError::TimedOut), 4, Some(at(2))),
            (Ok(true), 5, None),
        ] {
            let before = since;
            assert_eq!(note(&mut since, &asked, at(second)), before != expected);
            assert_eq!(since, expected);
        }
    }
}
