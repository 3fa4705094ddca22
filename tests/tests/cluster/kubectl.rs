//! `kubectl oke-node` against a real API server, with exactly the shipped rights: what it shows without a controller, and why
//! it cannot call one. That it reaches a leader through a kubelet is a case of `tests/cluster/cases`; here a leader's view is
//! read by its URL.

mod bundles;
mod captures;
mod connections;
mod policies;
mod proxies;
mod tasks;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::thread;

use api::{NetworkTest, VnicAttachment};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube_harness::{ApiServer, wait_for};
use serde_json::{Value, json};
use tests::built::bin_dir;
use tokio::sync::OnceCell;

use crate::manifests_folder;

const NAMESPACE: &str = "oke-node-manager";
/// Holds the shipped roles.
const VIEWER: &str = "kubectl-viewer";
const NODE: &str = "kubectl-node";
const INSTANCE: &str = "ocid1.instance.oc1.iad.anuwcljtkubectl";
const POOL: &str = "ocid1.nodepool.oc1.iad.anuwcljtkubectlpool";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The server with a Node and its VnicAttachment, and with the roles bound.
async fn server() -> &'static ApiServer {
    static READY: OnceCell<()> = OnceCell::const_new();
    let server = ApiServer::shared().unwrap();
    READY.get_or_init(async || prepare(server).await).await;
    server
}

async fn prepare(server: &ApiServer) {
    for file in ["namespace.yaml", "crds.yaml", "viewer.yaml"] {
        server.apply(&manifests_folder().join("base").join(file)).await.unwrap();
    }
    let subjects = json!([{ "kind": "User", "name": VIEWER, "apiGroup": RBAC }]);
    let role = |kind: &str| json!({ "apiGroup": RBAC, "kind": kind, "name": "oke-node-viewer" });
    let binding = |kind: &str, role: Value| {
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": { "name": VIEWER, "namespace": NAMESPACE },
            "subjects": subjects, "roleRef": role })
    };
    let mut everywhere = binding("ClusterRoleBinding", role("ClusterRole"));
    everywhere["metadata"] = json!({ "name": VIEWER });
    let spec =
        json!({ "instanceId": INSTANCE, "name": "storage", "purpose": "Host", "subnetId": "ocid1.subnet.oc1.iad.a" });
    let objects = [
        everywhere,
        binding("RoleBinding", role("Role")),
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE,
                "labels": { "pool": "blue" }, "annotations": { "oci.oraclecloud.com/node-pool-id": POOL } },
            "spec": { "providerID": format!("oci://{INSTANCE}") } }),
        json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
            "metadata": { "name": "kubectl-storage" }, "spec": spec }),
    ];
    for object in objects {
        server.apply_object(object).await.unwrap();
    }
    let since = "2026-01-02T03:04:05Z";
    let conditions = json!([
        { "type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": since },
        { "type": "oke.oraclecloud.com/NetworkReady", "status": "False", "reason": "ConntrackUse",
          "message": "The connection table is nearly full.", "lastTransitionTime": since },
    ]);
    let client = server.client(server.admin()).unwrap();
    let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
    Api::<Node>::all(client.clone()).patch_status(NODE, &PatchParams::default(), &patch).await.unwrap();
    let conditions =
        json!([{ "type": "Ready", "status": "False", "reason": "NotConfigured", "lastTransitionTime": since }]);
    let report = json!({ "configured": false, "reason": "LinkMissing" });
    let patch = Patch::Merge(json!({ "status": { "nodeName": NODE, "node": report, "conditions": conditions } }));
    let attachments: Api<VnicAttachment> = Api::all(client);
    attachments.patch_status("kubectl-storage", &PatchParams::default(), &patch).await.unwrap();
    // A role takes a moment to apply.
    wait_for("the viewer's roles", async || {
        let shown = run(server, VIEWER, &["status"]);
        (text(&shown.stdout).contains(NODE) && text(&shown.stdout).contains("there is no Lease")).then_some(())
    })
    .await;
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn program() -> Command {
    let mut command = Command::new(bin_dir().join("kubectl-oke_node"));
    command.env_clear().env("HOME", "/nonexistent");
    command
}

fn run(server: &ApiServer, user: &str, arguments: &[&str]) -> Output {
    let kubeconfig = server.folder().join(format!("{user}.kubeconfig"));
    server.write_kubeconfig(&server.user(user, None).unwrap(), &kubeconfig).unwrap();
    program().args(arguments).arg("--kubeconfig").arg(kubeconfig).output().unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn without_leader_status_says_why_and_shows_the_api() {
    let server = server().await;
    let unreachable = async |why: &str| {
        let output = run(server, VIEWER, &["status", "-o", "json"]);
        let answer = json_of(&output);
        let found = answer["unreachable"].as_str().unwrap();
        assert!(found.contains(why) && !found.contains("forbidden"), "{found}");
        assert!(!found.contains("Status {"), "no data structure: {found}");
        assert_eq!((output.status.code(), answer["source"].as_str()), (Some(1), Some("apiServer")));
        answer
    };
    let answer = unreachable("there is no Lease oke-node-manager/oke-node-controller").await;
    let nodes = answer["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["name"] == NODE).unwrap();
    assert_eq!((node["state"].as_str(), node["instance"].as_str()), (Some("Critical"), Some(INSTANCE)));
    assert_eq!(node["summary"]["checks"][0]["name"], "ConntrackUse");
    assert!(answer["vnics"]["items"].to_string().contains("kubectl-storage"), "{answer}");
    // A controller that released its Lease; then one whose pod is gone; then one on a node without a kubelet.
    let lease = |holder: &str| {
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "oke-node-controller", "namespace": NAMESPACE }, "spec": { "holderIdentity": holder } })
    };
    server.apply_object(lease("")).await.unwrap();
    unreachable("has no holder: no controller is the leader").await;
    server.apply_object(lease("kubectl-leader")).await.unwrap();
    unreachable("port-forward to the leader's pod oke-node-manager/kubectl-leader").await;
    let container = json!({ "name": "controller", "image": "none" });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "kubectl-leader", "namespace": NAMESPACE },
        "spec": { "nodeName": NODE, "automountServiceAccountToken": false, "containers": [container] } });
    server.create_account(&kube_harness::ServiceAccount::new(NAMESPACE, "default")).await.unwrap();
    server.apply_object(pod).await.unwrap();
    unreachable("port-forward to the leader's pod oke-node-manager/kubectl-leader").await;
    let client = server.client(server.admin()).unwrap();
    let stopped = |status: &str| {
        json!({ "status": { "conditions": [{ "type": "Ready", "status": status, "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-01-02T03:04:05Z" }] } })
    };
    let nodes: Api<Node> = Api::all(client);
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(stopped("Unknown"))).await.unwrap();
    let why =
        format!("the leader's node {NODE} is not ready (NodeStatusUnknown: Kubelet stopped posting node status.)");
    let answer = unreachable(&why).await;
    let node = answer["nodes"].as_array().unwrap().iter().find(|node| node["name"] == NODE).unwrap();
    assert!(node["summary"]["checks"].to_string().contains("NodeNotReady"), "{node}");
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(stopped("True"))).await.unwrap();
    // Without rights nothing can be shown, and each refusal is named.
    let output = run(server, "kubectl-stranger", &["status"]);
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    assert!(error.contains("leases") && error.contains("nodes is forbidden"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_and_vnics_show_objects_of_the_api() {
    let server = server().await;
    let output = run(server, VIEWER, &["node", NODE]);
    let shown = text(&output.stdout);
    for part in ["The controller is not reachable", INSTANCE, "ConntrackUse (critical)", "Next: Raise", "LinkMissing"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(output.status.code(), Some(1));
    let output = run(server, VIEWER, &["vnics", "--node", NODE, "-o", "yaml"]);
    let answer: Value = serde_yaml_ng::from_slice(&output.stdout).unwrap();
    let items = answer["items"].as_array().unwrap();
    let fields = ["name", "node", "vnicName", "ready", "reason", "nodeReport"].map(|field| items[0][field].as_str());
    let expected = ["kubectl-storage", NODE, "storage", "False", "NotConfigured", "LinkMissing"].map(Some);
    assert_eq!((items.len(), fields, output.status.code()), (1, expected, Some(1)));
    let end = POOL.rsplit('.').next().unwrap();
    for selection in [&["--pool", end][..], &["--pool", POOL, "-l", "pool=blue"], &["-l", "pool in (blue,green)"]] {
        let shown = |command: &str| json_of(&run(server, VIEWER, &[&[command, "-o", "json"], selection].concat()));
        let nodes = shown("status")["nodes"].as_array().unwrap().clone();
        assert!(nodes.len() == 1 && nodes[0]["name"] == NODE, "{selection:?}: {nodes:?}");
        assert_eq!(shown("vnics")["items"].as_array().unwrap().len(), 1, "{selection:?}");
    }
    for selection in [["--pool", "another-pool"], ["-l", "pool=red"]] {
        let output = run(server, VIEWER, &[&["vnics"], &selection[..]].concat());
        assert!(text(&output.stderr).contains("no Node is selected"), "{output:?}");
    }
    for command in [&["node", "nowhere"][..], &["vnics", "--node", "nowhere"]] {
        let output = run(server, VIEWER, command);
        assert!(text(&output.stderr).contains("there is no Node nowhere"), "{output:?}");
        assert_eq!(output.status.code(), Some(1));
    }
}

/// A leader's view that gives these answers about the fleet, one after the other, and has no policies; its URL.
fn view(answers: Vec<(&'static str, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut answers = answers.into_iter();
        while let Ok((mut stream, _)) = listener.accept() {
            let request = BufReader::new(stream.try_clone().unwrap()).lines();
            let request: Vec<String> = request.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            let (status, body) = match &*request[0] {
                "GET /policies HTTP/1.1" => ("200 OK", "{}".to_owned()),
                line => {
                    assert!(line.starts_with("GET /fleet"), "{request:?}");
                    answers.next().unwrap()
                }
            };
            let length = body.len();
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        }
    });
    url
}

#[test]
fn view_url_needs_no_cluster_and_is_retried_once() {
    let node = |name: &str, state: &str| json!({ "name": name, "state": state, "ageSeconds": 7 });
    let fleet = |nodes: &[Value]| json!({ "leader": "one", "controller": "0.1.0", "leaderSeconds": 9, "nodes": nodes });
    let not_leader = || ("503 Service Unavailable", "not the leader; the leader is one\n".to_owned());
    let healthy = ("200 OK", fleet(&[node("a", "Healthy"), node("b", "Healthy")]).to_string());
    let output = program().args(["status", "--view-url", &view(vec![not_leader(), healthy])]).output().unwrap();
    assert!(text(&output.stdout).contains("2 nodes: 0 critical, 0 warning, 0 unknown, 2 healthy"), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
    let mixed = ("200 OK", fleet(&[node("a", "Healthy"), node("b", "Unknown")]).to_string());
    let output = program().args(["status", "--problems", "--view-url", &view(vec![mixed])]).output().unwrap();
    let names: Vec<String> = text(&output.stdout).lines().map(|line| line.chars().take(2).collect()).collect();
    assert_eq!((names[..3].join(","), output.status.code()), ("NO,b ,".to_owned(), Some(1)), "{output:?}");
    let output = program().args(["status", "--view-url", &view(vec![not_leader(), not_leader()])]).output().unwrap();
    assert!(text(&output.stderr).contains("503 to /fleet: not the leader"), "{output:?}");
}

#[test]
fn color_is_for_terminals_without_no_color_only() {
    let red = "\x1b[31mCritical";
    let fleet = json!({ "leader": "one", "controller": "0.1.0", "leaderSeconds": 9,
        "nodes": [{ "name": "a", "state": "Critical", "ageSeconds": 7 }] });
    let url = view(vec![("200 OK", fleet.to_string()); 5]);
    let shown = |shell: &[&str], format: &str, no_color: Option<&str>| {
        let program = bin_dir().join("kubectl-oke_node");
        let command = format!("exec {} status --view-url {url} -o {format}", program.display());
        let mut shell_command = Command::new(shell[0]);
        shell_command.args(&shell[1..]).arg(command).stdin(Stdio::null());
        let output =
            shell_command.env_remove("NO_COLOR").envs(no_color.map(|value| ("NO_COLOR", value))).output().unwrap();
        assert!(text(&output.stdout).contains("Critical"), "{output:?}");
        text(&output.stdout)
    };
    let terminal = ["script", "--quiet", "--return", "/dev/null", "--command"];
    assert!(shown(&terminal, "table", None).contains(red));
    assert!(shown(&terminal, "table", Some("")).contains(red), "https://no-color.org: an empty value is none");
    let plain =
        [shown(&terminal, "table", Some("1")), shown(&terminal, "json", None), shown(&["sh", "-c"], "table", None)];
    assert!(plain.iter().all(|shown| !shown.contains('\x1b')), "{plain:?}");
}

#[test]
fn exit_status_tells_misuse_from_problems() {
    for (arguments, code) in [
        (&["explain", "102"][..], 0),
        (&["explain", "conntrack_use", "-o", "yaml"], 0),
        (&["--help"], 0),
        (&["explain", "SubnetFul"], 2),
        (&["node"], 2),
        (&["status", "-o", "xml"], 2),
        (&["status", "--kubeconfig", "/nonexistent"], 1),
        (&["nettest", "a", "peers"], 2),
        (&["nettest", "a", "https://b.org/", "--external", "--port", "443"], 2),
        (&["nettest", "a", "https://b.org/", "--external", "--mtu"], 2),
        (&["nettest", "a", "imds", "--throughput", "100"], 2),
        (&["nettest", "a", "imds", "--kubeconfig", "/nonexistent"], 3),
    ] {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    }
    let output = program().args(["explain", "SubnetFul"]).output().unwrap();
    assert!(text(&output.stdout).contains("Similar: SubnetFull"), "{output:?}");
}

/// On a terminal, which `script` opens, and without a controller.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_nettest_showed_progress_and_deletes_its_test() {
    let server = server().await;
    let kubeconfig = server.folder().join("nettest.kubeconfig");
    server.write_kubeconfig(server.admin(), &kubeconfig).unwrap();
    let args = |target: &str| format!("nettest {NODE} {target} --kubeconfig {}", kubeconfig.display());
    let refused = program().args(args("169.254.169.254 --external").split(' ')).output().unwrap();
    assert!(text(&refused.stderr).contains("use service imds or dns"), "{refused:?}");
    assert_eq!(refused.status.code(), Some(2));

    let tests: Api<NetworkTest> = Api::all(server.client(server.admin()).unwrap());
    let ours = async || {
        let all = tests.list(&ListParams::default()).await.unwrap().items;
        all.iter().filter(|test| test.metadata.generate_name.as_deref() == Some("kubectl-")).count()
    };
    // No shell stays between that Ctrl-C would end as well, with its own exit status.
    let command = format!("exec {} {}", bin_dir().join("kubectl-oke_node").display(), args("imds"));
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"]);
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap());
    let mut progress = Vec::new();
    shown.read_until(b':', &mut progress).unwrap();
    assert_eq!((text(&progress).as_str(), ours().await), ("\rwaiting for the controller:", 1));
    // Ctrl-C. The terminal stays open.
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    let mut rest = String::new();
    shown.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("deleted NetworkTest kubectl-") && rest.contains("interrupted"), "{rest}");
    assert_eq!((child.wait().unwrap().code(), ours().await), (Some(3), 0));
}
