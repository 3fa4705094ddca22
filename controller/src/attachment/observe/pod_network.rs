//! What OKE says of an instance's pod network, asked for by name before a VNIC is attached to the instance or detached from it.
//! Reads, and decides nothing.
//!
//! OKE's controller, while it makes a pod network, takes every secondary VNIC on the instance for one of the pods': it counts them
//! to know how many are missing, gives them pods' addresses, and fails where one comes meanwhile.

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

/// For the one request.
const DEADLINE: Duration = Duration::from_secs(20);
/// From the first refusal for want of time on it is asked for so long: less than the deadline, so that the refusal is what is told.
const READING: Duration = Duration::from_secs(5);
/// HTTP's: too much is asked for at once.
const TOO_MANY_REQUESTS: u16 = 429;
/// HTTP's: from here on the server is in trouble itself.
const SERVER_ERRORS: u16 = 500;

/// What is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodNetwork {
    /// There is none: no such object, or no such kind in the cluster.
    Absent,
    /// OKE makes one, or has made it.
    There(NativePodNetwork),
    /// The API server's answer tells nothing of it: a refusal, or what is not its.
    Unread(Why),
    /// There was no answer, or only that there is none now.
    Silent(Why),
}

/// Why nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The same words as long as nothing changes.
    pub words: String,
    /// For the log, with all that is known.
    pub error: String,
}

/// Who can be asked.
pub trait PodNetworks: Send + Sync {
    /// The one of this instance, as it is now.
    fn pod_network(&self, instance: &Ocid) -> impl Future<Output = PodNetwork> + Send;
}

/// The API server's.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct KubePodNetworks(Api<DynamicObject>);

impl KubePodNetworks {
    /// Those that this client sees, which is to tell at once what is refused.
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
            // No such object, or, in a text that is no Status, no such kind.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => PodNetwork::Absent,
            Ok(Err(kube::Error::Api(status))) => {
                let words = format!("the API server answers {} for NativePodNetwork {name}", status.code);
                let is_silent = status.code == TOO_MANY_REQUESTS || status.code >= SERVER_ERRORS;
                let why = Why { words, error: chain(&kube::Error::Api(status)) };
                if is_silent { PodNetwork::Silent(why) } else { PodNetwork::Unread(why) }
            }
            Ok(Err(error @ kube::Error::SerdeError(_))) => {
                let words = format!("NativePodNetwork {name} cannot be read");
                PodNetwork::Unread(Why { words, error: chain(&error) })
            }
            Ok(Err(error)) => PodNetwork::Silent(Why { words: silent(), error: chain(&error) }),
            Err(_) => PodNetwork::Silent(Why { words: silent(), error: format!("no answer within {DEADLINE:?}") }),
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
    PodNetwork::Unread(Why { error: words.clone(), words })
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::attachment::sample::instance;
    use crate::cluster::client::offline::{client_with, json};

    /// What is known where this is answered for ever, and whether that is known before the deadline.
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
    async fn that_there_is_no_answer_now_is_told_apart_from_a_refusal_and_by_its_code() {
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
    async fn an_answer_that_is_none_of_its_is_told_as_one_and_a_server_that_says_nothing_as_none() {
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
