//! `kubectl oke-node bundle` against a real API server with the shipped roles, and a leader whose stream is whole, broken or hangs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use api::bundle::{BUNDLE_AUDIENCE, BundleIndex, BundledNode};
use k8s_openapi::api::authentication::v1::TokenReview;
use kube::Api;
use kube::api::PostParams;
use kube_harness::{ApiServer, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use stream::{end, entry};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::{NAMESPACE, NODE, RBAC, VIEWER, json_of, program, run, text};

/// Holds the roles for bundles, too.
const OPERATOR: &str = "kubectl-bundler";
const SECRET: &str = "s3cr3t-in-an-object";

/// What the leader does after these bytes.
#[derive(Clone, Copy)]
pub(super) enum After {
    End,
    Break,
    Hang,
}

async fn server() -> &'static ApiServer {
    static READY: OnceCell<()> = OnceCell::const_new();
    let server = super::server().await;
    READY.get_or_init(async || prepare(server).await).await;
    server
}

async fn prepare(server: &ApiServer) {
    let bind = |kind: &str, namespace: Option<&str>, kind_of_role: &str, role: &str| {
        json!({ "apiVersion": format!("{RBAC}/v1"), "kind": kind,
            "metadata": { "name": format!("{OPERATOR}-{role}"), "namespace": namespace },
            "subjects": [{ "kind": "User", "name": OPERATOR, "apiGroup": RBAC }],
            "roleRef": { "apiGroup": RBAC, "kind": kind_of_role, "name": role } })
    };
    let variables = json!([{ "name": "PASSWORD", "value": SECRET }]);
    let pod = json!({ "automountServiceAccountToken": false,
        "containers": [{ "name": "agent", "image": "none", "env": variables }] });
    let labels = json!({ "app": "bundle-test" });
    let spec = json!({ "sources": [{ "node": NODE }], "targets": [{ "url": format!("https://example.org/a?key={SECRET}") }],
        "probes": [{ "type": "HTTPS" }], "externalTargets": true });
    server.create_account(&kube_harness::ServiceAccount::new(NAMESPACE, "default")).await.unwrap();
    for object in [
        bind("ClusterRoleBinding", None, "ClusterRole", "oke-node-viewer"),
        bind("ClusterRoleBinding", None, "ClusterRole", "oke-node-bundle"),
        bind("RoleBinding", Some(NAMESPACE), "Role", "oke-node-bundle"),
        bind("RoleBinding", Some("default"), "Role", "oke-node-bundle"),
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "bundle-node",
            "annotations": { "example.org/token": SECRET } } }),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "bundle-pod", "namespace": NAMESPACE }, "spec": pod }),
        json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "bundle-agents", "namespace": NAMESPACE },
            "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod } } }),
        json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NetworkTest", "metadata": { "name": "bundle-test" },
            "spec": spec }),
        json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "bundle-event", "namespace": "default" },
            "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "oke.oraclecloud.com/oke-node-agent",
            "reportingInstance": "a", "action": "Checked", "reason": "AddressesExhausted", "type": "Warning", "note": "none left",
            "regarding": { "kind": "Node", "name": NODE } }),
        json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "foreign-event", "namespace": "default" },
            "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "example.org/other",
            "reportingInstance": "a", "action": "Did", "reason": "Other", "type": "Normal", "note": SECRET,
            "regarding": { "kind": "Node", "name": NODE } }),
    ] {
        server.apply_object(object).await.unwrap();
    }
    // A role takes a moment to apply.
    wait_for("the roles for bundles", async || {
        let folder = TempDir::new().unwrap();
        let url = leader(Vec::new(), After::Break).0;
        let output = bundle(server, OPERATOR, &folder, &["--view-url", &url]);
        let summary: Value = serde_json::from_slice(&output.stdout).ok()?;
        (summary["missing"].as_array()?.len() == 1).then_some(())
    })
    .await;
}

/// A leader that sends this; its URL, and the heads of requests.
pub(super) fn leader(tar: Vec<u8>, after: After) -> (String, Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (heads_in, heads) = channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        let _ = heads_in.send(head);
        write!(stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        for chunk in tar.chunks(700) {
            write!(stream, "{:x}\r\n", chunk.len()).unwrap();
            stream.write_all(chunk).unwrap();
            stream.write_all(b"\r\n").unwrap();
        }
        match after {
            After::End => stream.write_all(b"0\r\n\r\n").unwrap(),
            After::Break => {}
            After::Hang => {
                let _ = stream.read_to_end(&mut Vec::new());
            }
        }
    });
    (url, heads)
}

/// What a leader sends of these nodes.
fn tar_of(nodes: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut tar = entry("bundle/controller/status.json", b"{}").unwrap();
    let account = |(name, problem): &(&str, Option<&str>)| BundledNode {
        name: (*name).to_owned(),
        problem: problem.map(str::to_owned),
        ..BundledNode::default()
    };
    for (name, _) in nodes {
        tar.extend(entry(&format!("bundle/nodes/{name}/README.txt"), name.as_bytes()).unwrap());
    }
    let index = BundleIndex { nodes: nodes.iter().map(account).collect() };
    tar.extend(entry("bundle/index.json", &serde_json::to_vec(&index).unwrap()).unwrap());
    tar.extend(end());
    tar
}

fn bundle(server: &ApiServer, user: &str, folder: &TempDir, arguments: &[&str]) -> Output {
    let file = folder.path().join("oke.tar").display().to_string();
    run(server, user, &[&["bundle", "-o", "json", "--file", &file], arguments].concat())
}

fn entries(file: &Path) -> BTreeMap<String, String> {
    let bytes = fs::read(file).unwrap();
    let read = |mut entry: tar::Entry<'_, &[u8]>| {
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (entry.path().unwrap().strip_prefix("bundle").unwrap().display().to_string(), text)
    };
    tar::Archive::new(bytes.as_slice()).entries().unwrap().map(|entry| read(entry.unwrap())).collect()
}

fn names(folder: &TempDir) -> Vec<String> {
    let names = fs::read_dir(folder.path()).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_has_objects_and_nodes_and_no_secret() {
    let server = server().await;
    let folder = TempDir::new().unwrap();
    let (url, heads) = leader(tar_of(&[(NODE, None)]), After::End);
    let output = bundle(server, OPERATOR, &folder, &["--node", NODE, "--view-url", &url]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = json_of(&output);
    assert_eq!((&summary["missing"], &summary["nodes"][0]["name"]), (&json!([]), &json!(NODE)));
    let file = folder.path().join("oke.tar");
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.permissions().mode() & 0o777, summary["bytes"].as_u64()), (0o600, Some(found.len())));
    assert_eq!(names(&folder), ["oke.tar"]);
    let entries = entries(&file);
    for (name, holds) in [
        ("objects/nodes-1.json", "ConntrackUse"),
        ("objects/nodes-1.json", "bundle-node"),
        ("objects/vnicattachments-1.json", "kubectl-storage"),
        ("objects/vnicprofiles-1.json", "[]"),
        ("objects/networktests-1.json", "https://example.org/a?…"),
        ("objects/pods-1.json", "bundle-pod"),
        ("objects/daemonsets-1.json", "bundle-agents"),
        ("objects/events-1.json", "AddressesExhausted"),
        ("controller/status.json", "{}"),
        (&format!("nodes/{NODE}/README.txt"), NODE),
        ("README.txt", "Missing:\n  nothing\n"),
    ] {
        assert!(entries.get(name).is_some_and(|text| text.contains(holds)), "{name} lacks {holds}: {entries:?}");
    }
    assert!(entries.values().all(|text| !text.contains(SECRET)), "{entries:?}");
    assert!(!entries["objects/events-1.json"].contains("foreign-event"));
    // The leader gets a token that is good for nothing else.
    let head = heads.recv().unwrap();
    assert_eq!(head[0], format!("GET /bundle?node={NODE} HTTP/1.1"));
    let token = head.iter().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap();
    let client = server.client(server.admin()).unwrap();
    let reviews: Api<TokenReview> = Api::all(client);
    for (audiences, expected) in [(json!([]), None), (json!([BUNDLE_AUDIENCE]), Some(true))] {
        let review = serde_json::from_value(json!({ "spec": { "token": token, "audiences": audiences } })).unwrap();
        let status = reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
        assert_eq!(status.authenticated, expected, "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_the_roles_are_named_and_no_file_is_left() {
    let server = server().await;
    let folder = TempDir::new().unwrap();
    let output = bundle(server, VIEWER, &folder, &["--view-url", "http://127.0.0.1:1"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for part in [
        "serviceaccounts \"oke-node-bundle\" is forbidden",
        "ClusterRole and the Roles oke-node-bundle",
        "--role=oke-node-bundle",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(names(&folder), [""; 0]);
    // kubectl can say so in advance.
    let may = async |user: &str| {
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": { "user": user,
            "resourceAttributes": { "verb": "create", "resource": "serviceaccounts", "subresource": "token",
                "namespace": NAMESPACE, "name": "oke-node-bundle" } } });
        let reviews: Api<k8s_openapi::api::authorization::v1::SubjectAccessReview> =
            Api::all(server.client(server.admin()).unwrap());
        let review =
            serde_json::from_value::<k8s_openapi::api::authorization::v1::SubjectAccessReview>(review).unwrap();
        reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
    };
    assert_eq!((may(VIEWER).await, may(OPERATOR).await), (false, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_bundle_says_what_it_lacks() {
    let server = server().await;
    let missing = |output: &Output| {
        let summary = json_of(output);
        let nodes = summary["nodes"].as_array().unwrap().iter().filter_map(|node| node["problem"].as_str());
        let parts = summary["missing"].as_array().unwrap().iter().filter_map(|part| part["why"].as_str());
        nodes.chain(parts).collect::<Vec<_>>().join("; ")
    };
    let whole = tar_of(&[(NODE, None), ("b", Some("no agent runs on the node"))]);
    let broken = whole[..512 + 512 + 512 + 3].to_vec();
    for (tar, after, expected, zeros) in [
        (whole.clone(), After::End, "no agent runs on the node", false),
        (broken, After::Break, "zeros replace", true),
        // The connection breaks after the last entry, before the end.
        (whole[..whole.len() - 1024].to_vec(), After::Break, "later entries are missing", false),
        (b"no tar at all".repeat(100), After::End, "a tar header is not valid", false),
    ] {
        let folder = TempDir::new().unwrap();
        let url = leader(tar, after).0;
        let output = bundle(server, OPERATOR, &folder, &["--node", NODE, "--node", "b", "--view-url", &url]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(missing(&output).contains(expected), "{expected}: {output:?}");
        let entries = entries(&folder.path().join("oke.tar"));
        assert!(entries["README.txt"].contains(expected), "{entries:?}");
        assert_eq!(entries.values().any(|text| text.contains('\0')), zeros);
        assert!(entries["objects/pods-1.json"].contains("bundle-pod"));
    }
    // No leader: the objects are there.
    let folder = TempDir::new().unwrap();
    let output = bundle(server, OPERATOR, &folder, &["--view-url", "http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(missing(&output).contains("connecting to http://127.0.0.1:1"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupt_removes_the_unfinished_file() {
    let server = server().await;
    let folder = TempDir::new().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    server.write_kubeconfig(&server.user(OPERATOR, None).unwrap(), &kubeconfig).unwrap();
    let whole = tar_of(&[(NODE, None)]);
    let url = leader(whole[..1500].to_vec(), After::Hang).0;
    let target = folder.path().join("oke.tar");
    let mut command = program();
    command
        .args(["bundle", "--node", NODE, "--view-url", &url, "--kubeconfig"])
        .arg(&kubeconfig)
        .arg("--file")
        .arg(&target);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    // It says what it waits for.
    let progress = lines.find(|line| line.contains("received")).unwrap();
    assert!(progress.contains("at controller/status.json") || progress.contains("at nodes/"), "{progress}");
    assert_eq!(names(&folder).len(), 2);
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let last = lines.last().unwrap();
    assert!(last.contains("interrupted: the unfinished file was removed"), "{last}");
    assert_eq!((child.wait().unwrap().code(), names(&folder)), (Some(1), vec!["kubeconfig".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_output_has_the_tar_alone() {
    let server = server().await;
    let folder = TempDir::new().unwrap();
    let url = leader(tar_of(&[]), After::End).0;
    let output = run(server, OPERATOR, &["bundle", "--file", "-", "--view-url", &url]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let file = folder.path().join("copy.tar");
    fs::write(&file, &output.stdout).unwrap();
    assert!(entries(&file).contains_key("README.txt"));
    assert!(text(&output.stderr).contains("-: "), "{output:?}");
    let many: Vec<String> = (0..21).flat_map(|number| ["--node".to_owned(), format!("n{number}")]).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for arguments in [
        &[&["bundle", "--file", "x"], &many[..]].concat()[..],
        &["bundle"],
        &["bundle", "--file", "x", "--node", "a", "--problems"],
    ] {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
}
