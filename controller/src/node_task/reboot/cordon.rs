//! Cordons a node with our annotation, and removes that cordon; never another one.

use std::fmt::Debug;

use api::CORDON_ANNOTATION;
use json_patch::jsonptr::PointerBuf;
use json_patch::{PatchOperation, RemoveOperation};
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;

use super::facts::Cordon;
use crate::cluster::request::{RequestError, is, params, put, send};
use crate::cluster::store::NodeView;

const UNSCHEDULABLE: [&str; 2] = ["spec", "unschedulable"];
const ANNOTATION: [&str; 3] = ["metadata", "annotations", CORDON_ANNOTATION];

impl Cordon {
    /// Of a Node, for the task that writes `owner` into the annotation.
    pub(crate) fn of(node: &NodeView, owner: &str) -> Self {
        match (node.unschedulable, node.cordoned_by.as_deref() == Some(owner)) {
            (false, false) => Self::Absent,
            (false, true) => Self::Lifted,
            (true, true) => Self::Own,
            (true, false) => Self::Foreign,
        }
    }
}

/// Cordons the node, if it is still at the version that was judged: another program may have cordoned it since.
pub(crate) async fn cordon(client: &Client, node: &NodeView, owner: &str) -> Result<(), RequestError> {
    let metadata = json!({ "resourceVersion": node.version, "annotations": { CORDON_ANNOTATION: owner } });
    let patch = json!({ "metadata": metadata, "spec": { "unschedulable": true } });
    patch_node(client, &node.name, &Patch::Merge(patch)).await
}

/// Removes the cordon of this owner, or the annotation that is left of it. Without them, nothing happens.
pub(crate) async fn uncordon(client: &Client, node: &str, owner: &str) -> Result<(), RequestError> {
    let remove = RemoveOperation { path: PointerBuf::from_tokens(ANNOTATION) };
    let steps = vec![is(ANNOTATION, owner), PatchOperation::Remove(remove), put(UNSCHEDULABLE, json!(false))];
    match patch_node(client, node, &Patch::Json::<()>(json_patch::Patch(steps))).await {
        // The Node is gone, or its annotation is another one.
        Err(error) if error.code() == Some(404) || error.is_conflict() => Ok(()),
        outcome => outcome,
    }
}

async fn patch_node<P: Serialize + Debug>(client: &Client, node: &str, patch: &Patch<P>) -> Result<(), RequestError> {
    // The answer is a whole Node, of which nothing is read.
    let api: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    send(api.patch(node, &params(), patch)).await.map(drop)
}
