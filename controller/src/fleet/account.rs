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

/// The account's name, as in manifests/base/daemonset.yaml.
pub(crate) const NAME: &str = "oke-node-agent";

/// The time between two reads.
const ROUND: Duration = Duration::from_secs(10);

/// Reads the account in a loop; never returns. `missing` holds the time since when the account is missing.
pub(crate) async fn follow(client: Client, namespace: &str, missing: watch::Sender<Option<Timestamp>>) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let mut is_failing = false;
    loop {
        let answer = send(accounts.get_metadata_opt(NAME)).await.map(|found| found.is_some());
        if let Err(error) = &answer
            && !is_failing
        {
            tracing::warn!(event = "agents.account_unread", error = chain(error), "retried");
        }
        is_failing = answer.is_err();
        missing.send_if_modified(|since| note(since, &answer, Timestamp::now()));
        sleep(ROUND).await;
    }
}

/// Records an answer; a failed read changes nothing. Returns whether `since` changed.
fn note(since: &mut Option<Timestamp>, answer: &Result<bool, RequestError>, now: Timestamp) -> bool {
    match (answer, &since) {
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
        for (answer, second, expected) in [
            (Err(RequestError::TimedOut), 1, None),
            (Ok(false), 2, Some(at(2))),
            (Ok(false), 3, Some(at(2))),
            (Err(RequestError::TimedOut), 4, Some(at(2))),
            (Ok(true), 5, None),
        ] {
            let before = since;
            assert_eq!(note(&mut since, &answer, at(second)), before != expected);
            assert_eq!(since, expected);
        }
    }
}
