//! In a cluster, with the rights of `manifests/uninstall` and a real API server: nothing is removed while the agent's DaemonSet
//! exists or may exist.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube_harness::{ApiServer, Bound, ServiceAccount};
use sandbox::Container;
use serde_json::{Value, json};

use super::kernel::Host;
use crate::node::Node;

/// An API server follows rights and objects within a second; a busy machine is slow.
const WITHIN: Duration = Duration::from_secs(120);

const DAEMON_SET: &str = "/apis/apps/v1/namespaces/oke-node-manager/daemonsets/oke-node-agent";
const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/oke-node-manager/rolebindings/oke-node-uninstall";

struct Cluster {
    node: Node,
    host: Host,
    server: ApiServer,
}

fn manifest(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").join(name)
}

impl Cluster {
    /// Our network on a node, and an API server on its loopback that knows the agent's DaemonSet.
    fn new() -> Self {
        let (node, host) = (Node::installed(), Host::new());
        host.ip("link set lo up");
        let server = host.inside(|| ApiServer::start().unwrap());
        let cluster = Self { node, host, server };
        cluster.do_(async |server| {
            let account = ServiceAccount::new("oke-node-manager", "oke-node-uninstall");
            server.create_account(&account).await.unwrap();
            for file in ["base/daemonset.yaml", "uninstall/access.yaml"] {
                server.apply(&manifest(file)).await.unwrap();
            }
            let token = server.token(&account, &Bound::Nothing).await.unwrap();
            server.write_in_cluster(&token, "oke-node-manager", &cluster.node.path("secrets")).unwrap();
        });
        cluster
    }

    fn do_<T: Send>(&self, work: impl AsyncFnOnce(&ApiServer) -> T + Send) -> T {
        self.host.inside(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(work(&self.server))
        })
    }

    fn delete(&self, path: &str) {
        self.do_(async |server| {
            let client = server.client(server.admin()).unwrap();
            client.request_text(hyper::Request::delete(path).body(Vec::new()).unwrap()).await.unwrap();
        });
    }

    fn uninstall(&self, more: &[&str]) -> (i32, String) {
        let (address, port) = self.server.service();
        let container = self.node.placed(Container::uninstaller().unwrap());
        let container = container.with_api_server(&self.node.path("secrets"), &address, &port);
        self.host.inside(|| self.node.run_in(&container, more))
    }

    /// Retries until it is refused with these words; nothing is removed meanwhile.
    fn refused(&self, words: &str) {
        let (before, end) = (self.node.snapshot(), Instant::now() + WITHIN);
        loop {
            let (code, text) = self.uninstall(&[]);
            assert_eq!((code, self.node.snapshot() == before), (75, true), "{text}");
            assert!(text.contains("status: refused") && text.contains("--force"), "{text}");
            if text.contains(words) {
                return;
            }
            assert!(Instant::now() < end, "never {words}: {text}");
        }
    }
}

#[test]
fn uninstall_is_refused_unless_the_daemonset_is_gone() {
    let cluster = Cluster::new();
    cluster.refused("these DaemonSets exist, and their agents would install everything again: oke-node-agent. ");
    cluster.delete(BINDING);
    cluster.refused("the agents' DaemonSets may still exist (403 daemonsets.apps is forbidden: ");
    cluster.server.stop().unwrap();
    cluster.refused("Connection refused");
    let (code, text) = cluster.uninstall(&["--force"]);
    assert_eq!(code, 0, "a broken cluster can be uninstalled: {text}");
    assert_eq!(cluster.node.names(), ["bin/portmap"]);
}

impl Cluster {
    /// Our network is removed as soon as the API server applies the rights.
    fn uninstalled(&self) {
        let end = Instant::now() + WITHIN;
        let (mut code, mut text) = self.uninstall(&[]);
        while code != 0 && Instant::now() < end {
            assert!(text.contains("is forbidden: "), "{text}");
            (code, text) = self.uninstall(&[]);
        }
        assert!(code == 0 && text.contains("status: removed"), "{text}");
        assert_eq!(self.node.names(), ["bin/portmap"]);
    }
}

#[test]
fn node_is_uninstalled_after_its_daemonset_is_deleted() {
    let cluster = Cluster::new();
    cluster.delete(DAEMON_SET);
    cluster.uninstalled();
}

/// The DaemonSet of the agents excludes nodes with the label; that of the uninstaller selects them.
#[test]
fn released_node_is_uninstalled_while_agents_run_elsewhere() {
    let cluster = Cluster::new();
    let labels = json!({ "app.kubernetes.io/name": "oke-node-uninstall" });
    let set = |selector: Value| {
        let pod = json!({ "serviceAccountName": "oke-node-uninstall", "nodeSelector": selector,
            "containers": [{ "name": "done", "image": "image" }] });
        json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": "oke-node-uninstall", "namespace": "oke-node-manager" },
            "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod } } })
    };
    let apply = |object: Value| cluster.do_(async |server| server.apply_object(object).await.unwrap());
    apply(set(json!({ "kubernetes.io/os": "linux" })));
    cluster.refused("their agents would install everything again: oke-node-agent. ");
    apply(set(json!({ "kubernetes.io/os": "linux", "oke-node-manager/release": "yes" })));
    cluster.uninstalled();
}
