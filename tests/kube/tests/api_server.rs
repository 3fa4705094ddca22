//! The API server of our tests is a real one: it knows who asks, refuses whom it must, keeps what it was given, and goes
//! without a trace.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use kube_harness::{ApiServer, Bound, Identity, ServiceAccount};
use serde_json::json;

/// The oldest Kubernetes that we support.
const OLDEST: (u32, u32) = (1, 32);
const WITHIN: Duration = Duration::from_secs(120);

fn server() -> &'static ApiServer {
    ApiServer::shared().unwrap()
}

fn admin(server: &ApiServer) -> Client {
    server.client(server.admin()).unwrap()
}

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some(BTreeMap::from([("key".into(), "value".into())])), ..ConfigMap::default() }
}

async fn create_map(client: &Client, name: &str) -> kube::Result<ConfigMap> {
    Api::namespaced(client.clone(), "default").create(&PostParams::default(), &map(name)).await
}

async fn create_node(client: &Client, name: &str) {
    let node = json!({ "metadata": { "name": name } });
    let node: Node = serde_json::from_value(node).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
}

/// The HTTP status of a refusal.
fn refused<T>(outcome: kube::Result<T>) -> (u16, String) {
    match outcome {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("nothing was refused"),
    }
}

async fn who(server: &ApiServer, identity: &Identity) -> (String, Vec<String>, BTreeMap<String, Vec<String>>) {
    let reviews: Api<SelfSubjectReview> = Api::all(server.client(identity).unwrap());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    (user.username.unwrap(), user.groups.unwrap(), user.extra.unwrap_or_default())
}

/// Tries until `outcome` is as wanted.
async fn wait_for<T>(what: &str, mut outcome: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WITHIN;
    loop {
        if let Some(found) = outcome().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn it_is_no_older_than_what_we_support() {
    let version = admin(server()).apiserver_version().await.unwrap();
    let number = |text: &str| text.trim_end_matches('+').parse::<u32>().unwrap();
    assert!((number(&version.major), number(&version.minor)) >= OLDEST, "{version:?}");
}

#[tokio::test]
async fn an_account_without_rights_is_denied() {
    let server = server();
    let account = ServiceAccount::new("harness-denied", "nobody");
    server.create_account(&account).await.unwrap();
    server.create_account(&account).await.unwrap(); // again is well
    let client = server.client(&server.token(&account, &Bound::Nothing).await.unwrap()).unwrap();
    let nodes: Api<Node> = Api::all(client);
    let (code, message) = refused(nodes.list(&ListParams::default()).await);
    assert_eq!(code, 403);
    assert!(message.contains("system:serviceaccount:harness-denied:nobody"), "{message}");
}

#[tokio::test]
async fn a_token_says_which_pod_and_node_it_is_bound_to() {
    let server = server();
    let client = admin(server);
    let account = ServiceAccount::new("harness-bound", "agent");
    server.create_account(&account).await.unwrap();
    create_node(&client, "bound-1").await;
    let pod = json!({
        "metadata": { "name": "agent-1" },
        "spec": { "nodeName": "bound-1", "serviceAccountName": "agent", "automountServiceAccountToken": false,
                  "containers": [{ "name": "agent", "image": "agent" }] },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    Api::namespaced(client, "harness-bound").create(&PostParams::default(), &pod).await.unwrap();

    let of_pod = server.token(&account, &Bound::Pod("agent-1".into())).await.unwrap();
    let (user, groups, extra) = who(server, &of_pod).await;
    assert_eq!(user, "system:serviceaccount:harness-bound:agent");
    assert!(groups.contains(&"system:serviceaccounts:harness-bound".to_owned()), "{groups:?}");
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], ["agent-1"]);
    assert_eq!(extra["authentication.kubernetes.io/node-name"], ["bound-1"]);

    let of_node = server.token(&account, &Bound::Node("bound-1".into())).await.unwrap();
    let (_, _, extra) = who(server, &of_node).await;
    assert_eq!(extra["authentication.kubernetes.io/node-name"], ["bound-1"]);
    assert!(!extra.contains_key("authentication.kubernetes.io/pod-name"), "{extra:?}");
}

#[tokio::test]
async fn a_node_may_annotate_itself_and_no_other_node() {
    let server = server();
    create_node(&admin(server), "restricted-1").await;
    create_node(&admin(server), "restricted-2").await;
    let kubelet = server.node("restricted-1").unwrap();
    assert_eq!(who(server, &kubelet).await.0, "system:node:restricted-1");
    let nodes: Api<Node> = Api::all(server.client(&kubelet).unwrap());
    let annotate = Patch::Merge(json!({ "metadata": { "annotations": { "a": "b" } } }));
    nodes.patch("restricted-1", &PatchParams::default(), &annotate).await.unwrap();
    let (code, message) = refused(nodes.patch("restricted-2", &PatchParams::default(), &annotate).await);
    assert_eq!(code, 403);
    assert!(message.contains("is not allowed to modify node"), "{message}");
}

#[tokio::test]
async fn an_admission_policy_is_enforced() {
    let server = server();
    server.apply(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policy.yaml")).await.unwrap();
    let client = admin(server);
    let message = wait_for("the policy denies", async || match create_map(&client, "forbidden-name").await {
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(other) => panic!("{other}"),
        Ok(_) => {
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
            maps.delete("forbidden-name", &Default::default()).await.unwrap();
            None
        }
    });
    let message = message.await;
    assert!(message.contains("this name is for tests"), "{message}");
    create_map(&client, "another-name").await.unwrap();
}

#[tokio::test]
async fn a_custom_resource_is_served_when_apply_returns() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("widgets.yaml");
    let text = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: widgets.test.example.com }
spec:
  group: test.example.com
  scope: Cluster
  names: { plural: widgets, singular: widget, kind: Widget }
  versions:
    - name: v1
      served: true
      storage: true
      schema: { openAPIV3Schema: { type: object, properties: { size: { type: integer, maximum: 3 } } } }
---
apiVersion: test.example.com/v1
kind: Widget
metadata: { name: one }
size: 3
";
    fs::write(&file, text).unwrap();
    server.apply(folder.path()).await.unwrap();
    fs::write(&file, text.replace("size: 3", "weight: 3")).unwrap();
    let error = server.apply(&file).await.unwrap_err();
    assert!(error.to_string().contains(".weight: field not declared in schema"), "{error}");
    fs::write(&file, text.replace("size: 3", "size: 4")).unwrap();
    let error = server.apply(&file).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot apply Widget one: "), "{error}");
    assert!(error.contains("should be less than or equal to 3"), "{error}");
}

/// Its handler, and the cache that lists are made of, come a moment after discovery: not each time, hence some.
#[tokio::test]
async fn custom_resources_can_be_listed_when_apply_returns() {
    let server = server();
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

#[tokio::test]
async fn an_object_outlives_a_restart_and_identities_stay_good() {
    let server = ApiServer::start().unwrap();
    let account = ServiceAccount::new("default", "reader");
    server.create_account(&account).await.unwrap();
    let reader = server.token(&account, &Bound::Nothing).await.unwrap();
    let client = admin(&server);
    let made = create_map(&client, "kept").await.unwrap();
    server.stop().unwrap();
    assert!(client.apiserver_version().await.is_err(), "it still answers");
    assert!(server.freeze().is_err(), "nothing is there to freeze");
    server.start_again().unwrap();
    server.start_again().unwrap(); // it runs already
    server.freeze().unwrap();
    let answer = tokio::time::timeout(Duration::from_millis(300), client.apiserver_version()).await;
    assert!(answer.is_err(), "it still answers");
    server.thaw().unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    assert_eq!(maps.get("kept").await.unwrap(), made);
    assert_eq!(who(&server, &reader).await.0, "system:serviceaccount:default:reader");
}

#[tokio::test]
async fn two_servers_know_nothing_of_each_other() {
    let (one, two) = (ApiServer::start().unwrap(), ApiServer::start().unwrap());
    create_map(&admin(&one), "own").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(admin(&two), "default");
    assert_eq!(maps.get_opt("own").await.unwrap(), None);
    let of_two = Api::<Node>::all(two.client(one.admin()).unwrap());
    assert_eq!(refused(of_two.list(&ListParams::default()).await).0, 401);
}

#[tokio::test]
async fn a_watch_of_what_was_forgotten_answers_410() {
    let server = ApiServer::start().unwrap();
    let client = admin(&server);
    let old = create_map(&client, "old").await.unwrap().metadata.resource_version.unwrap();
    server.expire().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(admin(&server), "default");
    let status = match first_event(&maps, &old).await {
        Ok(WatchEvent::Error(status)) => *status,
        Err(kube::Error::Api(status)) => *status,
        other => panic!("{other:?}"),
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"), "{status:?}");
    // And one that begins now is served.
    let now = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    create_map(&client, "new").await.unwrap();
    let event = first_event(&maps, &now).await.unwrap();
    assert!(matches!(&event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("new")), "{event:?}");
}

async fn first_event(maps: &Api<ConfigMap>, since: &str) -> kube::Result<WatchEvent<ConfigMap>> {
    use futures::StreamExt;
    let stream = maps.watch(&WatchParams::default().timeout(120), since).await?;
    Box::pin(stream).next().await.unwrap()
}

#[tokio::test]
async fn a_throttled_account_gets_429_until_it_is_let_go() {
    let server = ApiServer::start().unwrap();
    let account = ServiceAccount::new("default", "busy");
    server.create_account(&account).await.unwrap();
    let client = server.client(&server.token(&account, &Bound::Nothing).await.unwrap()).unwrap();
    client.apiserver_version().await.unwrap();
    let status = async || match client.apiserver_version().await {
        Ok(_) => 200,
        Err(error) => refused::<()>(Err(error)).0,
    };
    server.throttle("system:serviceaccount:default:busy").await.unwrap();
    for _ in 0..20 {
        assert_eq!(status().await, 429);
    }
    admin(&server).apiserver_version().await.unwrap();
    server.unthrottle().await.unwrap();
    wait_for("200", async || (status().await == 200).then_some(())).await;
}

#[test]
fn nothing_is_left_of_a_server_that_went() {
    let server = ApiServer::start().unwrap();
    let folder = server.folder().to_owned();
    let programs = processes_of(&folder);
    assert_eq!(programs, ["etcd", "kube-apiserver"]);
    drop(server);
    assert_eq!(processes_of(&folder), [""; 0]);
    assert!(!folder.exists());
}

/// Even when nobody could clean up: the programs die with the thread that started them.
#[test]
fn no_program_is_left_of_a_killed_test() {
    const CHILD: &str = "KUBE_HARNESS_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let server = ApiServer::start().unwrap();
        println!("folder {}", server.folder().display());
        std::thread::sleep(WITHIN); // until it is killed
        return;
    }
    use std::io::BufRead;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "no_program_is_left_of_a_killed_test", "--nocapture"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let folder = lines.map(Result::unwrap).find_map(|line| Some(line.split_once("folder ")?.1.to_owned())).unwrap();
    assert_eq!(processes_of(folder.as_ref()).len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + WITHIN;
    while !processes_of(folder.as_ref()).is_empty() {
        assert!(Instant::now() < deadline, "{:?} still run", processes_of(folder.as_ref()));
        std::thread::sleep(Duration::from_millis(20));
    }
    // The folder goes when the next server starts; it may be that of another test, which is still removing it.
    drop(ApiServer::start().unwrap());
    while Path::new(&folder).exists() {
        assert!(Instant::now() < deadline, "the folder is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The programs that have the folder in their arguments.
fn processes_of(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains(&*folder.to_string_lossy()) {
            let program = line.split('\0').next().unwrap();
            names.push(program.rsplit('/').next().unwrap().to_owned());
        }
    }
    names.sort();
    names
}
