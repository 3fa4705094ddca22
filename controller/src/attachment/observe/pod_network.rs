//! Reads OKE's pod network of an instance, before a VNIC is attached or detached. Reads only; decides nothing.
//!
//! While OKE's controller builds a pod network, it uses each secondary VNIC of the instance for pods: it counts them, assigns
//! pod addresses to them, and fails if one appears meanwhile.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::NativePodNetwork;
use kube::api::DynamicObject;
use kube::{Api, Client};
use resident::logging::chain;
use tokio::time::timeout;
use vcn::Ocid;

use crate::cluster::client::patient;
use crate::report::metrics::Metrics;

/// The deadline of the request.
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
    /// The API server refuses, or its answer cannot be read.
    Unread(ReadFailure),
    /// No answer, or only that there is none now.
    Silent(ReadFailure),
}

/// Why it is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFailure {
    /// For people; unchanged while the cause is.
    pub words: String,
    /// For the log, with all details.
    pub error: String,
}

/// The source of pod networks.
pub trait PodNetworks: Send + Sync {
    /// That of this instance, as it is now.
    fn pod_network(&self, instance: &Ocid) -> impl Future<Output = PodNetwork> + Send;
}

/// Those of the API server.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct KubePodNetworks(Api<DynamicObject>);

impl KubePodNetworks {
    /// Uses this client, which must report refusals at once.
    #[must_use]
    pub fn new(client: &Client, metrics: Arc<Metrics>) -> Self {
        Self(Api::all_with(patient(client, metrics, READING), &api::npn::resource()))
    }
}

impl PodNetworks for KubePodNetworks {
    async fn pod_network(&self, instance: &Ocid) -> PodNetwork {
        let name = instance.unique_id();
        let silent = || format!("the API server gives no answer about NativePodNetwork {name}");
        match timeout(DEADLINE, self.0.get(name)).await {
            Ok(Ok(object)) => understood(instance, object),
            // No such object, or, without a Status in the body, no such kind.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => PodNetwork::Absent,
            Ok(Err(kube::Error::Api(status))) => {
                let words = format!("the API server answers {} for NativePodNetwork {name}", status.code);
                let is_silent = status.code == TOO_MANY_REQUESTS || status.code >= SERVER_ERRORS;
                let why = ReadFailure { words, error: chain(&kube::Error::Api(status)) };
                if is_silent { PodNetwork::Silent(why) } else { PodNetwork::Unread(why) }
            }
            Ok(Err(error @ kube::Error::SerdeError(_))) => {
                let words = format!("NativePodNetwork {name} cannot be read");
                PodNetwork::Unread(ReadFailure { words, error: chain(&error) })
            }
            Ok(Err(error)) => PodNetwork::Silent(ReadFailure { words: silent(), error: chain(&error) }),
            Err(_) => {
                PodNetwork::Silent(ReadFailure { words: silent(), error: format!("no answer within {DEADLINE:?}") })
            }
        }
    }
}

fn understood(instance: &Ocid, object: DynamicObject) -> PodNetwork {
    let name = instance.unique_id();
    let document = serde_json::to_vec(&object).unwrap_or_default();
    let words = match NativePodNetwork::parse(&document) {
        Ok(npn) if npn.instance == *instance => return PodNetwork::There(npn),
        Ok(npn) => format!("NativePodNetwork {name} belongs to another instance, {}", npn.instance),
        Err(error) => chain(&error),
    };
    PodNetwork::Unread(ReadFailure { error: words.clone(), words })
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::attachment::sample::instance;
    use crate::cluster::client::offline::{client_with, json};

    /// The result when this is always answered, and whether it comes before the deadline.
    async fn known(code: u16) -> (PodNetwork, bool) {
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
    async fn a_busy_server_is_told_apart_from_a_refusal() {
        for code in [429, 500, 503, 504] {
            let (known, is_early) = known(code).await;
            assert!(is_early && matches!(&known, PodNetwork::Silent(why) if why.words == answers(code)), "{known:?}");
        }
        for code in [401, 403] {
            let (known, _) = known(code).await;
            assert!(matches!(&known, PodNetwork::Unread(why) if why.words == answers(code)), "{known:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_answer_is_told_apart_from_no_answer() {
        let known = |document: Option<String>| async move {
            let client = client_with(move |_, _| document.clone().map(|document| json(200, document)));
            KubePodNetworks::new(&client, Arc::default()).pod_network(&instance(1)).await
        };
        let of = |instance: &Ocid| {
            serde_json::json!({ "apiVersion": "oci.oraclecloud.com/v1beta1", "kind": "NativePodNetwork",
                "metadata": { "name": "x" }, "spec": { "id": instance } })
            .to_string()
        };
        assert!(matches!(known(Some(of(&instance(1)))).await, PodNetwork::There(_)));
        for strange in [of(&instance(2)), of(&instance(1)).replace("ocid1", "none"), "{".to_owned()] {
            let known = known(Some(strange.clone())).await;
            assert!(matches!(known, PodNetwork::Unread(_)), "{strange}: {known:?}");
        }
        assert!(matches!(known(None).await, PodNetwork::Silent(_)));
    }
}
