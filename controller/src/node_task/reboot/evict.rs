//! Requests evictions: the API server keeps to PodDisruptionBudgets. No pod is ever deleted.

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client};
use resident::logging::chain;
use serde_json::{Value, json};
use vcn::{excerpt, printable};

use super::drain::{EvictionRefusal, PodKey};
use crate::cluster::request::{RequestError, send};

/// Evictions of one node that are in flight at the same time.
const AT_ONCE: usize = 8;
/// The longest text of a refusal, in characters.
const MESSAGE_MAX: usize = 120;

/// Requests the eviction of pods. Returns the first refusal.
pub(crate) async fn evict(client: &Client, pods: Vec<PodKey>) -> Option<EvictionRefusal> {
    let requests = pods.into_iter().map(|pod| {
        let client = client.clone();
        async move {
            let outcome = request(&client, &pod).await;
            outcome.err().map(|error| EvictionRefusal { pod, message: cause(&error) })
        }
    });
    let outcomes: Vec<_> = stream::iter(requests).buffered(AT_ONCE).collect().await;
    outcomes.into_iter().flatten().next()
}

async fn request(client: &Client, pod: &PodKey) -> Result<(), RequestError> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    // A pod of a StatefulSet returns under the same name, so the uid must match. `Api::evict` misspells the field of these options.
    let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod.name, "namespace": pod.namespace },
        "deleteOptions": { "preconditions": { "uid": pod.uid } } });
    let params = PostParams::default();
    match send(api.create_subresource::<Value, Value>("eviction", &pod.name, &params, &body)).await {
        // It is gone, or another one of its name is there.
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// What refuses the eviction: of several causes the first, which names the budget.
fn cause(error: &RequestError) -> String {
    let text = match error {
        _ if error.code() == Some(403) => error.brief(),
        RequestError::Refused(refused) => match &**refused {
            kube::Error::Api(status) => detail(status),
            other => chain(other),
        },
        other => chain(other),
    };
    excerpt(&printable(&text), MESSAGE_MAX).into_owned()
}

fn detail(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let named = causes.map(|cause| cause.message.as_str()).find(|message| !message.is_empty());
    named.unwrap_or(&status.message).to_owned()
}
