//! Reads OKE's pod network of an instance, before a VNIC is attached or detached. Reads only; decides nothing.
//!
//! While OKE's controller builds a pod network, it uses each secondary VNIC of the instance for pods. It counts them, assigns
//! pod addresses to them, and fails if one appears meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use api::NativePodNetwork;
use kube::api::DynamicObject;
use kube::{Api, Client};
use resident::logging::chain;
use thiserror::Error;
use tokio::time::timeout;
use vcn::Ocid;

use crate::cluster::client::patient;
use crate::report::metrics::Metrics;

const DEADLINE: Duration = Duration::from_secs(20);
/// How long a busy API server is retried: less than the deadline, so that its refusal is reported.
const READING: Duration = Duration::from_secs(5);
/// HTTP: too many requests.
const TOO_MANY_REQUESTS: u16 = 429;
/// HTTP: from here on the server itself fails.
const SERVER_ERRORS: u16 = 500;

/// What is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodNetwork {
    /// There is none: no such object, or no such kind in the cluster.
    Absent,
    /// OKE builds one, or has built it.
    There(NativePodNetwork),
    /// The API server refuses, or its answer cannot be read. The words for people are unchanged while the cause is.
    Unreadable(String),
}

/// The API server does not answer, or only that it is busy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{error}")]
pub struct PodNetworkReadError {
    /// For people; unchanged while the cause is.
    pub words: String,
    /// With all details, for the log.
    pub error: String,
}

/// The pod networks in the API server.
#[derive(Clone)]
pub struct KubePodNetworks {
    api: Api<DynamicObject>,
    /// The code of the refusal that was logged last: one cause concerns ten thousand instances.
    refused: Arc<AtomicU16>,
}

impl KubePodNetworks {
    /// Uses this client, which must report refusals at once.
    pub fn new(client: &Client, metrics: Arc<Metrics>) -> Self {
        let api = Api::all_with(patient(client, metrics, READING), &api::npn::resource());
        Self { api, refused: Arc::default() }
    }

    pub(crate) async fn pod_network(&self, instance: &Ocid) -> Result<PodNetwork, PodNetworkReadError> {
        let name = instance.unique_id();
        let unanswered = |error| PodNetworkReadError {
            words: format!("the API server gives no answer about NativePodNetwork {name}"),
            error,
        };
        match timeout(DEADLINE, self.api.get(name)).await {
            Ok(Ok(object)) => {
                self.refused.store(0, Ordering::Relaxed);
                Ok(parsed(instance, object))
            }
            // No such object, or, without a Status in the body, no such kind.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(PodNetwork::Absent),
            Ok(Err(kube::Error::Api(status))) => {
                let words = format!("the API server answers {} for NativePodNetwork {name}", status.code);
                if status.code == TOO_MANY_REQUESTS || status.code >= SERVER_ERRORS {
                    return Err(PodNetworkReadError { words, error: chain(&kube::Error::Api(status)) });
                }
                if self.refused.swap(status.code, Ordering::Relaxed) != status.code {
                    let error = chain(&kube::Error::Api(status));
                    tracing::warn!(event = "npn.unread", why = words, error);
                }
                Ok(PodNetwork::Unreadable(words))
            }
            Ok(Err(kube::Error::SerdeError(_))) => {
                Ok(PodNetwork::Unreadable(format!("NativePodNetwork {name} cannot be read")))
            }
            Ok(Err(error)) => Err(unanswered(chain(&error))),
            Err(_) => Err(unanswered(format!("no answer about NativePodNetwork {name} within {DEADLINE:?}"))),
        }
    }
}

fn parsed(instance: &Ocid, object: DynamicObject) -> PodNetwork {
    let name = instance.unique_id();
    let document = serde_json::to_vec(&object).unwrap_or_default();
    match NativePodNetwork::parse(&document) {
        Ok(npn) if npn.instance == *instance => PodNetwork::There(npn),
        Ok(npn) => {
            PodNetwork::Unreadable(format!("NativePodNetwork {name} belongs to another instance, {}", npn.instance))
        }
        Err(error) => PodNetwork::Unreadable(chain(&error)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::attachment::sample::instance;
    use crate::cluster::client::offline::{client_with, json};

    /// The result when this is always answered, and whether it comes before the deadline.
    async fn known(code: u16) -> (Result<PodNetwork, PodNetworkReadError>, bool) {
        let refusal =
            format!(r#"{{"kind":"Status","status":"Failure","message":"as it is","reason":"as it is","code":{code}}}"#);
        let client = client_with(move |_, _| Some(json(code, refusal.clone())));
        let began = Instant::now();
        let known = KubePodNetworks::new(&client, Arc::default()).pod_network(&instance(1)).await;
        (known, began.elapsed() < DEADLINE)
    }

    fn answers(code: u16) -> String {
        format!("the API server answers {code} for NativePodNetwork {}", instance(1).unique_id())
    }

    #[tokio::test(start_paused = true)]
    async fn busy_server_is_distinguished_from_a_refusal() {
        for code in [429, 500, 503, 504] {
            let (known, is_early) = known(code).await;
            assert!(is_early && matches!(&known, Err(why) if why.words == answers(code)), "{known:?}");
        }
        for code in [401, 403] {
            let (known, _) = known(code).await;
            assert!(matches!(&known, Ok(PodNetwork::Unreadable(why)) if *why == answers(code)), "{known:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn foreign_answer_is_distinguished_from_no_answer() {
        let known = |document: Option<String>| async move {
            let client = client_with(move |_, _| document.clone().map(|document| json(200, document)));
            KubePodNetworks::new(&client, Arc::default()).pod_network(&instance(1)).await
        };
        let of = |instance: &Ocid| {
            serde_json::json!({ "apiVersion": "oci.oraclecloud.com/v1beta1", "kind": "NativePodNetwork",
                "metadata": { "name": "x" }, "spec": { "id": instance } })
            .to_string()
        };
        assert!(matches!(known(Some(of(&instance(1)))).await, Ok(PodNetwork::There(_))));
        for strange in [of(&instance(2)), of(&instance(1)).replace("ocid1", "none"), "{".to_owned()] {
            let known = known(Some(strange.clone())).await;
            assert!(matches!(known, Ok(PodNetwork::Unreadable(_))), "{strange}: {known:?}");
        }
        assert!(known(None).await.is_err());
    }
}
