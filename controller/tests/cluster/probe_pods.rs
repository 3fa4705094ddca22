//! Probe Pods on a real API server with the controller's real token: what it creates, reads and deletes, and what the policies refuse.
//! The test plays the kubelet's part.

use api::TestState;
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use kube_harness::{Bound, ServiceAccount, wait_until};
use nettest::probe::{PROBE_VERSION, ProbeReport, ProbeRequest, Tally, Task};
use sandbox::OciSettings;
use serde_json::{Value, json};

use crate::network_tests::{create, finished, make_pod};
use crate::scene::{Scene, manifest};

const NAMESPACE: &str = "oke-node-manager";
const PROBES: &str = "oke-node-manager-probes";
const CONTROLLER: &str = "oke-node-controller";
/// The replica, and its Pod.
const ONE: &str = "one";

/// A scene whose controller has its own token, and no other rights than the manifests'.
async fn scene() -> (Scene, Client) {
    let scene = Scene::with(1, 2, OciSettings::default()).await;
    let server = &scene.kubernetes;
    server.create_account(&ServiceAccount::new("shop", "default")).await.unwrap();
    for file in ["admission.yaml", "controller.yaml", "probe-pods.yaml"] {
        server.apply(&manifest(file)).await.unwrap();
    }
    // Kubernetes' own controller would count.
    let quotas: Api<ResourceQuota> = Api::namespaced(scene.client.clone(), PROBES);
    let counted = json!({ "status": { "hard": { "pods": "100" }, "used": { "pods": "0" } } });
    quotas.patch_status("oke-network-probe", &PatchParams::default(), &Patch::Merge(counted)).await.unwrap();
    let own = json!({ "metadata": { "name": ONE }, "spec": { "serviceAccountName": CONTROLLER,
        "automountServiceAccountToken": false, "containers": [{ "name": "controller", "image": "oke-node-manager" }] } });
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), NAMESPACE);
    pods.create(&PostParams::default(), &serde_json::from_value(own).unwrap()).await.unwrap();
    let account = ServiceAccount::new(NAMESPACE, CONTROLLER);
    let token = server.token(&account, &Bound::Pod(ONE.to_owned())).await.unwrap();
    server.write_kubeconfig(&token, &scene.folder.path().join("kubeconfig")).unwrap();
    let client = server.client(&token).unwrap();
    (scene, client)
}

/// Waits for a probe Pod, and ends it as its kubelet would.
async fn end_probe(scene: &Scene, report: &ProbeReport) -> Pod {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), PROBES);
    let mut found = None;
    wait_until("a probe Pod", async || {
        found = pods.list(&ListParams::default()).await.unwrap().items.pop();
        found.is_some()
    })
    .await;
    let pod = found.unwrap();
    let terminated = json!({ "exitCode": 0, "message": serde_json::to_string(report).unwrap() });
    let container = json!({ "name": "probe", "ready": false, "restartCount": 0, "image": "", "imageID": "",
        "state": { "terminated": terminated } });
    let status = json!({ "status": { "phase": "Succeeded", "containerStatuses": [container] } });
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    pod
}

/// The same Pod as a user would create it, changed.
fn again(pod: &Pod, name: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut value = json!({ "metadata": { "name": name, "labels": pod.labels() }, "spec": pod.spec });
    change(&mut value["spec"]);
    serde_json::from_value(value).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_pod_replies_for_pod_and_other_pods_are_refused() {
    let (scene, token) = scene().await;
    make_pod(&scene, "cart-1", "cart", "Running").await;
    let controller = scene.controller(ONE);
    let spec = json!({ "sources": [{ "pods": { "namespace": "shop" } }], "targets": [{ "service": "imds" }],
        "probes": [{ "type": "HTTP" }] });
    create(&scene, "refused", spec.clone()).await;
    let status = finished(&scene, "refused").await;
    assert_eq!(status.state, Some(TestState::Refused));
    assert!(status.message.contains("create rolebinding oke-network-test-pods"), "{}", status.message);

    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "oke-network-test-pods", "namespace": "shop" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oke-network-test-pods" },
        "subjects": [{ "kind": "ServiceAccount", "name": CONTROLLER, "namespace": NAMESPACE }] });
    scene.kubernetes.apply_object(binding).await.unwrap();
    let shop: Api<Pod> = Api::namespaced(token.clone(), "shop");
    wait_until("the controller may list Pods", async || shop.list(&ListParams::default()).await.is_ok()).await;
    create(&scene, "allowed", spec.clone()).await;
    let answered = Tally { sent: 5, received: 5, failure: None, micros: vec![100, 200, 300, 400, 500] };
    let pod =
        end_probe(&scene, &ProbeReport { version: PROBE_VERSION, tally: answered, ..ProbeReport::default() }).await;
    let status = finished(&scene, "allowed").await;
    assert_eq!((status.worst_verdict.as_str(), status.counts.unwrap().sent), ("Reachable", 5), "{status:?}");
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), PROBES);
    wait_until("the probe Pod is deleted", async || pods.list(&ListParams::default()).await.unwrap().items.is_empty())
        .await;
    let shown = pod.spec.clone().unwrap();
    assert_eq!(shown.node_name.as_deref(), Some("node-0"));
    let request = shown.containers[0].env.as_ref().unwrap()[0].value.clone().unwrap();
    assert!(matches!(ProbeRequest::read(request.as_bytes()).unwrap().task, Task::Send(_)));

    // A test that is deleted while its probe Pod runs, and a leader that ends: the next one deletes the Pod.
    drop(controller);
    let as_controller: Api<Pod> = Api::namespaced(token.clone(), PROBES);
    as_controller.create(&PostParams::default(), &again(&pod, "orphan", |_| ())).await.unwrap();
    let _controller = scene.controller(ONE);
    wait_until("the orphan is deleted", async || pods.get_opt("orphan").await.unwrap().is_none()).await;

    policies_refuse_other_pods(&scene, &as_controller, &pod).await;
}

/// A change of a spec.
type Change = fn(&mut Value);

/// What is not a probe Pod; the policy is the same for administrators.
#[expect(clippy::too_many_lines, reason = "a table")]
async fn policies_refuse_other_pods(scene: &Scene, as_controller: &Api<Pod>, pod: &Pod) {
    let as_admin: Api<Pod> = Api::namespaced(scene.client.clone(), PROBES);
    let changes: [(&str, Change); 30] = [
        ("image", |spec| spec["containers"][0]["image"] = json!("busybox")),
        ("command", |spec| spec["containers"][0]["command"] = json!(["/bin/sh"])),
        ("args", |spec| spec["containers"][0]["args"] = json!(["run"])),
        ("variable", |spec| spec["containers"][0]["env"][0]["name"] = json!("KUBECONFIG")),
        ("no-variable", |spec| spec["containers"][0]["env"] = json!([])),
        ("env-from", |spec| spec["containers"][0]["envFrom"] = json!([{ "secretRef": { "name": "a" } }])),
        ("port", |spec| spec["containers"][0]["ports"] = json!([{ "containerPort": 80 }])),
        ("liveness", |spec| {
            spec["containers"][0]["livenessProbe"] = json!({ "httpGet": { "port": 1, "host": "10.0.0.1" } })
        }),
        ("message", |spec| spec["containers"][0]["terminationMessagePath"] = json!("/etc/passwd")),
        ("capability", |spec| spec["containers"][0]["securityContext"]["capabilities"] = json!({ "add": ["NET_RAW"] })),
        ("privileged", |spec| spec["containers"][0]["securityContext"] = json!({ "privileged": true })),
        ("root", |spec| spec["securityContext"]["runAsUser"] = json!(0)),
        ("sysctl", |spec| spec["securityContext"]["sysctls"][0]["name"] = json!("net.ipv4.tcp_syncookies")),
        ("host-network", |spec| {
            spec["hostNetwork"] = json!(true);
            spec["securityContext"]["sysctls"] = json!([]);
        }),
        ("host-processes", |spec| spec["hostPID"] = json!(true)),
        ("volume", |spec| spec["volumes"] = json!([{ "name": "a", "emptyDir": {} }])),
        ("host-alias", |spec| spec["hostAliases"] = json!([{ "ip": "10.0.0.1", "hostnames": ["a"] }])),
        ("second", |spec| {
            let mut second = spec["containers"][0].clone();
            second["name"] = json!("second");
            spec["containers"].as_array_mut().unwrap().push(second);
        }),
        ("no-node", |spec| spec["nodeName"] = Value::Null),
        ("forever", |spec| spec["activeDeadlineSeconds"] = json!(3600)),
        ("token", |spec| spec["automountServiceAccountToken"] = json!(true)),
        ("account", |spec| {
            spec["serviceAccountName"] = json!("default");
            spec["serviceAccount"] = Value::Null;
        }),
        ("grace", |spec| spec["terminationGracePeriodSeconds"] = json!(3600)),
        ("group", |spec| spec["securityContext"]["runAsGroup"] = json!(0)),
        ("groups", |spec| spec["securityContext"]["supplementalGroups"] = json!([0])),
        ("fs-group", |spec| spec["securityContext"]["fsGroup"] = json!(1)),
        ("own-group", |spec| spec["containers"][0]["securityContext"]["runAsGroup"] = json!(1)),
        ("cpu", |spec| spec["containers"][0]["resources"]["requests"]["cpu"] = json!("64")),
        ("memory", |spec| spec["containers"][0]["resources"]["limits"]["memory"] = json!("64Gi")),
        ("no-resources", |spec| spec["containers"][0]["resources"] = Value::Null),
    ];
    scene.kubernetes.create_account(&ServiceAccount::new(PROBES, "default")).await.unwrap();
    // The policy alone, as if the label had been changed.
    let namespaces: Api<Namespace> = Api::all(scene.client.clone());
    let level = "pod-security.kubernetes.io/enforce";
    let restricted = namespaces.get(PROBES).await.unwrap();
    assert_eq!(restricted.labels()[level], "restricted");
    let relaxed = Patch::Merge(json!({ "metadata": { "labels": { level: "privileged" } } }));
    namespaces.patch(PROBES, &PatchParams::default(), &relaxed).await.unwrap();
    for (name, change) in changes {
        for pods in [as_controller, &as_admin] {
            let refused = pods.create(&PostParams::default(), &again(pod, name, change)).await.map(|_| ());
            assert_forbidden(refused, name, &["'oke-network-probe' with binding"]);
        }
    }
    for (name, metadata) in [
        ("annotation", json!({ "annotations": { "oke.oraclecloud.com/interfaces": "storage" } })),
        ("other-annotation", json!({ "annotations": { "k8s.v1.cni.cncf.io/networks": "storage" } })),
        ("label", json!({ "labels": { "app.kubernetes.io/name": "oke-network-probe", "app": "cart" } })),
        ("no-label", json!({ "labels": null })),
        ("finalizer", json!({ "finalizers": ["example.com/kept"] })),
        ("owner", json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "a", "uid": "a" }] })),
    ] {
        let mut object = serde_json::to_value(again(pod, name, |_| ())).unwrap();
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let object: Pod = serde_json::from_value(object).unwrap();
        for pods in [as_controller, &as_admin] {
            let refused = pods.create(&PostParams::default(), &object).await.map(|_| ());
            assert_forbidden(refused, name, &["must have its two labels"]);
        }
    }
    as_admin.create(&PostParams::default(), &again(pod, "changed", |_| ())).await.unwrap();
    for (metadata, is_allowed) in [
        (json!({ "annotations": { "k8s.v1.cni.cncf.io/network-status": "[]" } }), true),
        (json!({ "annotations": { "oke.oraclecloud.com/interfaces": "storage" } }), false),
        (json!({ "annotations": { "k8s.v1.cni.cncf.io/networks": "storage" } }), false),
        (json!({ "labels": { "app": "cart" } }), false),
        (json!({ "finalizers": ["example.com/kept"] }), false),
    ] {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let changed = as_admin.patch("changed", &PatchParams::default(), &patch).await.map(|_| ());
        match is_allowed {
            true => changed.unwrap(),
            false => assert_forbidden(changed, "changed", &["must not request interfaces"]),
        }
    }
    let other = Patch::Strategic(json!({ "spec": { "containers": [{ "name": "probe", "image": "busybox" }] } }));
    let changed = as_admin.patch("changed", &PatchParams::default(), &other).await.map(|_| ());
    assert_forbidden(changed, "changed", &["must not be changed"]);
    as_admin.delete("changed", &DeleteParams::default()).await.unwrap();

    // Whatever the controller is granted, it creates Pods nowhere else.
    let everything = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "controller-everything" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": CONTROLLER, "namespace": NAMESPACE }] });
    scene.kubernetes.apply_object(everything).await.unwrap();
    let elsewhere: Api<Pod> = Api::namespaced(as_controller.clone().into_client(), "shop");
    let only = "the controller may only create and delete probe Pods";
    let pod = again(pod, "elsewhere", |spec| spec["serviceAccountName"] = json!("default"));
    wait_until("the policy alone refuses", async || {
        let refused = elsewhere.create(&PostParams::default(), &pod).await.unwrap_err();
        refused.to_string().contains(only)
    })
    .await;
    let deleted = elsewhere.delete("cart-1", &DeleteParams::default()).await.map(|_| ());
    assert_forbidden(deleted, "elsewhere", &[only]);
}

pub(crate) fn assert_forbidden(outcome: kube::Result<()>, what: &str, whys: &[&str]) {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            assert!(whys.iter().any(|why| status.message.contains(why)), "{what}: {}", status.message);
        }
        other => panic!("{what}: {other:?}"),
    }
}
