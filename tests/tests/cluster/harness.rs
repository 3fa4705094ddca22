//! The harness does what tests rely on without noticing: an outage, an expired watch and a throttled account are real.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use kube_harness::{ApiServer, Bound, ServiceAccount, wait_for};
use serde_json::json;

/// The oldest Kubernetes that we support.
const OLDEST: (u32, u32) = (1, 32);

fn admin(server: &ApiServer) -> Client {
    server.client(server.admin()).unwrap()
}

async fn create_map(client: &Client, name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    let map = ConfigMap { metadata, data: Some(BTreeMap::new()), ..ConfigMap::default() };
    Api::namespaced(client.clone(), "default").create(&PostParams::default(), &map).await.unwrap()
}

/// The HTTP status of an answer.
fn status<T>(outcome: kube::Result<T>) -> u16 {
    match outcome {
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
        Ok(_) => 200,
    }
}

async fn first_event(client: Client, since: &str) -> kube::Result<WatchEvent<ConfigMap>> {
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let stream = maps.watch(&WatchParams::default().timeout(120), since).await?;
    Box::pin(stream).next().await.unwrap()
}

#[tokio::test]
async fn the_api_server_stops_freezes_forgets_and_throttles_on_request() {
    let server = ApiServer::start().unwrap();
    let client = admin(&server);
    let version = client.apiserver_version().await.unwrap();
    let number = |text: &str| text.trim_end_matches('+').parse::<u32>().unwrap();
    assert!((number(&version.major), number(&version.minor)) >= OLDEST, "{version:?}");

    let old = create_map(&client, "old").await;
    server.stop().unwrap();
    assert!(client.apiserver_version().await.is_err(), "stopped, and it still answers");
    server.start_again().unwrap();
    server.freeze().unwrap();
    let answer = tokio::time::timeout(Duration::from_millis(300), client.apiserver_version()).await;
    assert!(answer.is_err(), "frozen, and it still answers");
    server.thaw().unwrap();
    assert_eq!(Api::<ConfigMap>::namespaced(client.clone(), "default").get("old").await.unwrap(), old);

    server.expire().await.unwrap();
    let expired = match first_event(admin(&server), &old.metadata.resource_version.unwrap()).await {
        Ok(WatchEvent::Error(status)) => status.code,
        other => status(other),
    };
    assert_eq!(expired, 410);

    let account = ServiceAccount::new("default", "busy");
    server.create_account(&account).await.unwrap();
    let busy = server.client(&server.token(&account, &Bound::Nothing).await.unwrap()).unwrap();
    assert_eq!(status(busy.apiserver_version().await), 200);
    server.throttle("system:serviceaccount:default:busy").await.unwrap();
    for _ in 0..20 {
        assert_eq!(status(busy.apiserver_version().await), 429);
    }
    assert_eq!(status(client.apiserver_version().await), 200, "other users are not throttled");
    server.unthrottle().await.unwrap();
    wait_for("200", async || (status(busy.apiserver_version().await) == 200).then_some(())).await;
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
