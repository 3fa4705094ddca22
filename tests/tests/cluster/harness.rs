//! The harness's API server is one that we support, and has a kind when `apply_object` returns.

use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use kube_harness::ApiServer;
use serde_json::json;

/// The oldest Kubernetes that we support.
const OLDEST: (u32, u32) = (1, 32);

fn admin(server: &ApiServer) -> Client {
    server.client(server.admin()).unwrap()
}

#[tokio::test]
async fn api_server_is_of_a_supported_version() {
    let version = admin(ApiServer::shared().unwrap()).apiserver_version().await.unwrap();
    let number = |text: &str| text.trim_end_matches('+').parse::<u32>().unwrap();
    assert!((number(&version.major), number(&version.minor)) >= OLDEST, "{version:?}");
}

/// The API server serves a new kind a moment after its discovery lists it: not each time, hence ten kinds.
#[tokio::test]
async fn custom_resources_can_be_listed_when_apply_returns() {
    let server = ApiServer::shared().unwrap();
    for number in 0..10 {
        let (plural, kind) = (format!("things{number}"), format!("Thing{number}"));
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.test.example.com") },
            "spec": { "group": "test.example.com", "scope": "Cluster", "names": { "plural": plural, "kind": kind },
                "versions": [{ "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object" } } }] },
        });
        server.apply_object(definition).await.unwrap();
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("test.example.com", "v1", &kind), &plural);
        let things: Api<DynamicObject> = Api::all_with(admin(server), &kind);
        assert_eq!(things.list(&ListParams::default()).await.unwrap().items.len(), 0, "{plural}");
    }
}
