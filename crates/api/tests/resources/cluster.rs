//! The API server of these tests, with our definitions, and objects tried on it.

use std::path::Path;
use std::sync::OnceLock;

use api::{NetworkTest, NodePolicy, NodeTask, VnicAttachment, VnicProfile};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use kube_harness::ApiServer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// A complaint of the API server: the field, list indices left out, and what is wrong with it.
pub(crate) type Complaint = (String, String);

/// The shared server, once our definitions are served.
pub(crate) async fn server() -> &'static ApiServer {
    static APPLIED: OnceLock<Mutex<bool>> = OnceLock::new();
    let server = ApiServer::shared().unwrap();
    let mut applied = APPLIED.get_or_init(Mutex::default).lock().await;
    if !*applied {
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/base/crds.yaml");
        server.apply(&crds).await.unwrap();
        *applied = true;
    }
    server
}

/// A client of an administrator.
pub(crate) async fn client() -> Client {
    let server = server().await;
    server.client(server.admin()).unwrap()
}

/// The objects of a kind, by what they say of themselves.
pub(crate) fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(api::GROUP, api::VERSION, kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// What the API server says to a new object. Nothing is made.
pub(crate) async fn try_create(client: &Client, object: &Value) -> Result<Value, Vec<Complaint>> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    of(client, object).create(&dry, &typed(object)).await.map(taken).map_err(complaints)
}

/// What the API server says to `new` in the place of `old`, which is made for that and taken away again.
pub(crate) async fn try_replace(client: &Client, old: &Value, new: &Value) -> Result<Value, Vec<Complaint>> {
    let api = of(client, old);
    let made = api.create(&PostParams::default(), &typed(old)).await.unwrap();
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let name = made.metadata.name.unwrap();
    // Null takes a field away that `new` has not.
    let outcome = api.patch(&name, &dry, &Patch::Merge(&difference(old, new))).await;
    api.delete(&name, &Default::default()).await.unwrap();
    outcome.map(taken).map_err(complaints)
}

/// What the API server takes, we can read: one object that we cannot would hide others.
fn taken(object: DynamicObject) -> Value {
    let value = serde_json::to_value(object).unwrap();
    let written = match value["kind"].as_str() {
        Some("NetworkTest") => serde_json::to_value(from::<NetworkTest>(&value).spec),
        Some("NodePolicy") => serde_json::to_value(from::<NodePolicy>(&value).spec),
        Some("NodeTask") => serde_json::to_value(from::<NodeTask>(&value).spec),
        Some("VnicAttachment") => serde_json::to_value(from::<VnicAttachment>(&value).spec),
        _ => serde_json::to_value(from::<VnicProfile>(&value).spec),
    };
    let (read, taken) = (without_defaults(&written.unwrap()), without_defaults(&value["spec"]));
    assert_eq!(read, taken, "nothing is lost by reading it");
    value
}

fn from<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// Without what means the same as its absence.
fn without_defaults(value: &Value) -> Value {
    let nothing = [
        json!(0),
        json!(false),
        json!([]),
        json!({}),
        json!("Detach"),
        json!("Report"),
        json!("Restore"),
        json!("Rollback"),
    ];
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| (name.clone(), without_defaults(field)));
            fields.filter(|(name, field)| name == "nicIndex" || !nothing.contains(field)).collect()
        }
        Value::Array(elements) => elements.iter().map(without_defaults).collect(),
        other => other.clone(),
    }
}

fn of(client: &Client, object: &Value) -> Api<DynamicObject> {
    api(client, object["kind"].as_str().unwrap())
}

pub(crate) fn typed(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).unwrap()
}

fn difference(old: &Value, new: &Value) -> Value {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else { return new.clone() };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let kept = after.iter().map(|(key, value)| (key.clone(), difference(&old[key], value)));
    gone.chain(kept).collect()
}

fn complaints(error: kube::Error) -> Vec<Complaint> {
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!(status.code, 422, "{status:?}");
    let causes = status.details.unwrap().causes;
    causes.into_iter().map(|cause| (without_indices(&cause.field), cause.message)).collect()
}

/// The object itself is `<nil>` there.
fn without_indices(field: &str) -> String {
    let field = if field == "<nil>" { "" } else { field };
    let mut parts = field.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |path, part| format!("{path}[]{}", part.split_once(']').map_or("", |(_, rest)| rest)))
}
