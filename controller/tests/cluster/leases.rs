//! One replica leads, the other takes over.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube_harness::wait_until;
use sandbox::OciSettings;
use serde_json::json;

use crate::process::Controller;
use crate::scene::Scene;

/// As long as a test can wait; it is renewed ten times meanwhile.
const LEASE: Duration = Duration::from_secs(8);

/// How often a promised time is measured, because the machine may stand still.
const TRIES: usize = 3;

/// The next controllers request leases of this many seconds.
fn lease_of(scene: &mut Scene, seconds: u64) {
    scene.environment.insert("LEASE_SECONDS".to_owned(), seconds.to_string());
}

fn leases(scene: &Scene) -> Api<Lease> {
    Api::namespaced(scene.client.clone(), "oke-node-manager")
}

pub(crate) async fn spec(scene: &Scene) -> LeaseSpec {
    leases(scene).get("oke-node-controller").await.unwrap().spec.unwrap()
}

/// When the Lease was last renewed.
async fn renewed(scene: &Scene) -> Timestamp {
    spec(scene).await.renew_time.unwrap().0
}

/// A controller that is the leader. If the machine stood still for longer than a short Lease, it exited, and another is
/// started, as a kubelet does.
async fn leading(scene: &Scene, name: &str) -> Controller {
    let mut controller = scene.controller(name);
    wait_until("the first leads", async || {
        if controller.ended().is_some() {
            controller = scene.controller(name);
        }
        controller.leads()
    })
    .await;
    controller
}

#[tokio::test]
async fn a_standby_leads_when_a_killed_leaders_lease_expires() {
    let scene = Scene::new().await;
    let mut one = leading(&scene, "one").await;
    let two = scene.controller("two");
    wait_until("the second stands by", async || two.get("/readyz").is_some_and(|(_, body)| body.contains("standby")))
        .await;
    assert_eq!(
        (one.metric("oke_node_controller_leads "), two.metric("oke_node_controller_leads ")),
        (Some(1.0), Some(0.0))
    );
    one.kill();
    // It is valid for as long as a busy machine needs, which is too long for a test. It is no longer renewed, so its duration
    // is shortened.
    let shorter = Patch::Merge(json!({ "spec": { "leaseDurationSeconds": LEASE.as_secs() } }));
    leases(&scene).patch("oke-node-controller", &PatchParams::default(), &shorter).await.unwrap();
    let good_until = renewed(&scene).await + LEASE;
    wait_until("the second leads", async || two.leads()).await;
    assert!(Timestamp::now() >= good_until, "the lease was good until {good_until}");
    scene.want("storage", 0, json!({})).await;
    scene.wait_for_reason("storage", "Ready").await;
}

#[tokio::test]
async fn a_stopped_leader_releases_the_lease() {
    let mut scene = Scene::new().await;
    lease_of(&mut scene, 300);
    let mut one = leading(&scene, "one").await;
    let two = scene.controller("two");
    wait_until("the second stands by", async || two.get("/readyz").is_some()).await;
    assert!(one.terminate().success());
    let released = Instant::now();
    wait_until("the second leads", async || two.leads()).await;
    println!("after {:?}, and not after the 300 s that the lease was good for", released.elapsed());
}

/// The Pod of a replica, which is ready.
pub(crate) async fn make_replica(scene: &Scene, name: &str, node: &str) {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "oke-node-manager");
    let pod = json!({
        "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "oke-node-controller" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "c", "uid": "c", "controller": true }] },
        "spec": { "nodeName": node, "serviceAccountName": "oke-node-agent", "automountServiceAccountToken": false,
            "containers": [{ "name": "controller", "image": "controller" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
}

/// What the kubelet reports, or the API server once it stopped.
pub(crate) async fn set_kubelet(scene: &Scene, node: &str, status: &str) {
    let condition = json!({ "type": "Ready", "status": status, "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    let nodes: Api<Node> = Api::all(scene.client.clone());
    nodes.patch_status(node, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn leader_on_a_node_without_kubelet_hands_the_lease_over() {
    let mut scene = Scene::with(2, 2, OciSettings::default()).await;
    lease_of(&mut scene, 300);
    for (name, node) in [("one", "node-0"), ("two", "node-1")] {
        make_replica(&scene, name, node).await;
        set_kubelet(&scene, node, "True").await;
    }
    let mut one = leading(&scene, "one").await;
    let two = scene.controller("two");
    wait_until("the second stands by", async || two.get("/readyz").is_some()).await;
    set_kubelet(&scene, "node-0", "Unknown").await;
    wait_until("the second leads", async || two.leads()).await;
    // Nothing would start it again.
    wait_until("the first stands by", async || one.get("/readyz").is_some_and(|(_, body)| body.contains("standby")))
        .await;
    assert_eq!((one.ended(), spec(&scene).await.holder_identity.as_deref()), (None, Some("two")));
    assert!(one.log().contains(r#""event":"lease.handed_over""#), "{}", one.log());
    set_kubelet(&scene, "node-0", "True").await;
    set_kubelet(&scene, "node-1", "Unknown").await;
    wait_until("the first leads again", async || one.leads()).await;
}

/// A proxy to the API server: it passes everything on until it is cut, and then nothing, on old or new connections.
fn wire(to: SocketAddr, cut: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let cut = cut.clone();
    thread::spawn(move || {
        for near in listener.incoming().filter_map(Result::ok) {
            let Ok(far) = TcpStream::connect(to) else { continue };
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
            for (mut from, mut into) in [(near, far), back] {
                let cut = cut.clone();
                thread::spawn(move || {
                    let mut piece = [0; 16 * 1024];
                    while let Ok(length @ 1..) = from.read(&mut piece) {
                        if !cut.load(Ordering::SeqCst) && into.write_all(&piece[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = into.shutdown(Shutdown::Both);
                });
            }
        }
    });
    address
}

#[tokio::test]
async fn a_cut_off_leader_exits_before_the_next_one_leads() {
    let mut late = Vec::new();
    while late.len() < TRIES {
        match cut_off().await {
            Ok(before) => return println!("{before:?} before the other one took it"),
            Err(why) => late.push(why),
        }
    }
    panic!("{late:#?}");
}

/// The time between its exit and the other replica's Lease.
async fn cut_off() -> Result<Duration, String> {
    let mut scene = Scene::new().await;
    lease_of(&mut scene, 15);
    let (server, cut) = (scene.kubernetes.url(), Arc::new(AtomicBool::new(false)));
    let near = wire(server.trim_start_matches("https://").trim_end_matches('/').parse().unwrap(), &cut);
    let direct = std::fs::read_to_string(scene.folder.path().join("kubeconfig")).unwrap();
    let through = scene.folder.path().join("through");
    std::fs::write(&through, direct.replace(server.trim_end_matches('/'), &format!("https://{near}"))).unwrap();
    scene.environment.insert("KUBECONFIG".to_owned(), through.display().to_string());
    let mut one = leading(&scene, "one").await;
    scene.environment.remove("KUBECONFIG");
    lease_of(&mut scene, 120);
    let mut two = scene.controller("two");
    wait_until("the second stands by", async || two.get("/readyz").is_some()).await;
    for number in 0..5 {
        scene.want(&format!("storage-{number}"), 0, json!({})).await;
    }
    wait_until("something is being attached", async || !scene.vnics().is_empty()).await;
    cut.store(true, Ordering::SeqCst);
    wait_until("the second leads", async || two.leads()).await;
    let spec = spec(&scene).await;
    assert_eq!(spec.holder_identity.as_deref(), Some("two"));
    let taken = SystemTime::from(spec.acquire_time.unwrap().0);
    if one.ended().and_then(|status| status.code()) != Some(1) {
        return Err(format!("it works on: {}", one.log()));
    }
    let before = taken.duration_since(one.spoke()).map_err(|error| format!("{error}: {}", one.log()))?;
    for number in 0..5 {
        scene.wait_for_reason(&format!("storage-{number}"), "Ready").await;
    }
    scene.assert_exact().await;
    assert_eq!(two.ended(), None);
    Ok(before)
}

/// Both have work when it continues: it was frozen during its own, and the other one has just begun.
#[tokio::test]
async fn a_frozen_leader_loses_its_lease_and_exits() {
    let mut scene = Scene::new().await;
    lease_of(&mut scene, LEASE.as_secs());
    let mut one = leading(&scene, "one").await;
    lease_of(&mut scene, 120);
    let mut two = scene.controller("two");
    for number in 0..3 {
        scene.want(&format!("storage-{number}"), 0, json!({})).await;
    }
    wait_until("something is being attached", async || !scene.vnics().is_empty()).await;
    one.freeze(true);
    for number in 3..6 {
        scene.want(&format!("storage-{number}"), 0, json!({})).await;
    }
    wait_until("the second leads", async || two.leads()).await;
    one.freeze(false);
    wait_until("the first has exited", async || one.ended().is_some()).await;
    assert_eq!(one.ended().unwrap().code(), Some(1), "{}", one.log());
    for number in 0..6 {
        scene.wait_for_reason(&format!("storage-{number}"), "Ready").await;
    }
    scene.assert_exact().await;
    assert_eq!(two.ended(), None);
}

async fn has_lease(scene: &Scene) -> bool {
    leases(scene).get_opt("oke-node-controller").await.unwrap().is_some()
}

#[tokio::test]
async fn a_misconfigured_replica_exits_without_requesting_the_lease() {
    let mut scene = Scene::new().await;
    scene.environment.insert("OCI_CA_FILE".to_owned(), "/nowhere/ca.pem".to_owned());
    let mut one = scene.controller("one");
    wait_until("it has exited", async || one.ended().is_some()).await;
    assert_eq!(one.ended().unwrap().code(), Some(2));
    assert!(one.log().contains("reading OCI_CA_FILE /nowhere/ca.pem"), "{}", one.log());
    assert!(!has_lease(&scene).await);
}

/// A metadata service that knows the region; never returns.
fn metadata(listen: SocketAddr) {
    let listener = TcpListener::bind(listen).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let info = r#"{"realmDomainComponent":"oraclecloud8.com","regionIdentifier":"ap-chiyoda-1"}"#;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", info.len());
            let _ = stream.write_all(format!("{head}{info}").as_bytes());
        }
    });
}

#[tokio::test]
async fn a_replica_without_a_region_requests_no_lease() {
    let mut scene = Scene::new().await;
    // No other program listens at this address or connects from it.
    let silent = SocketAddr::from(([127, 2, 0, 1], 9810));
    for (key, value) in [
        ("OCI_PRINCIPAL", "workload-identity"),
        ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
        ("OCI_ENDPOINT", ""),
        ("OCI_METADATA_BASE_URL", &format!("http://{silent}/opc/v2")),
    ] {
        scene.environment.insert(key.to_owned(), value.to_owned());
    }
    let mut one = scene.controller("one");
    let says = |controller: &Controller, status, words: &str| {
        controller.get("/readyz").is_some_and(|(is, body)| is == status && body.contains(words))
    };
    wait_until("it says what it waits for", async || says(&one, 503, "the region of this instance")).await;
    assert_eq!(one.metric("oke_node_controller_oci_client "), Some(0.0));
    assert!(!has_lease(&scene).await);
    metadata(silent);
    wait_until("it leads", async || one.leads()).await;
    assert_eq!((one.metric("oke_node_controller_oci_client "), one.ended()), (Some(1.0), None));
}
