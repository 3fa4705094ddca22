//! Requests about the Pods of operations. Each is for this leader alone: what a former leader did already is a success.

use api::Received;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};

use super::NAMESPACE;
use crate::cluster::request::{RequestError, send};

/// The Pods as they are read: one that cannot be parsed hides no other.
pub(crate) fn pods(client: &Client) -> Api<Received<Pod>> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// Creates a Pod. One of its name that is there already stays.
///
/// # Errors
/// When the API server refused.
pub(crate) async fn create_pod(client: &Client, pod: &Pod) -> Result<(), RequestError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    match send(pods.create(&PostParams::default(), pod)).await {
        Err(error) if error.code() != Some(409) => Err(error),
        _ => Ok(()),
    }
}

/// Deletes a Pod at once, also if its kubelet is dead: its container ended, or did not start. Whether it was gone already.
///
/// # Errors
/// When the API server refused.
pub(crate) async fn delete_pod(client: &Client, name: &str) -> Result<bool, RequestError> {
    match send(pods(client).delete(name, &DeleteParams::default().grace_period(0))).await {
        Ok(_) => Ok(false),
        Err(error) if error.code() == Some(404) => Ok(true),
        Err(error) => Err(error),
    }
}
