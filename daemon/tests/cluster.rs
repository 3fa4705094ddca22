//! The agent in a cluster: it reads its NativePodNetwork from a real API server, with the rights of its manifest, and goes
//! on without it. Not next to the other tests of the agent: some of those measure how soon it repairs, and an API server
//! takes its time of the processor.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]
#![expect(clippy::indexing_slicing, clippy::panic, reason = "likewise")]

#[path = "cluster/bundle_stream.rs"]
mod bundle_stream;
#[expect(dead_code, reason = "the same as for the tests of the agent without a cluster, which do more with it")]
#[path = "agent/called.rs"]
mod called;
#[path = "cluster/captures.rs"]
mod captures;
#[path = "cluster/channel.rs"]
mod channel;
#[path = "cluster/events.rs"]
mod events;
#[expect(dead_code, reason = "likewise")]
#[path = "agent/metadata.rs"]
mod metadata;
#[expect(dead_code, reason = "likewise")]
#[path = "agent/node.rs"]
mod node;
#[expect(dead_code, reason = "likewise")]
#[path = "agent/pod.rs"]
mod pod;
#[expect(dead_code, reason = "likewise")]
#[path = "agent/running.rs"]
mod running;
#[path = "cluster/served.rs"]
mod served;
#[path = "cluster/uninstall_on_delete.rs"]
mod uninstall_on_delete;
#[path = "cluster/uninstaller.rs"]
mod uninstaller;
#[path = "cluster/vnic_attachments.rs"]
mod vnic_attachments;

use std::cell::Cell;
use std::path::{Path, PathBuf};

use kube_harness::{ApiServer, Bound, ServiceAccount};
use metadata::vnic;
use node::{Agent, Node, OKE, native_pod_network, wait_for};
use serde_json::{Value, json};
use served::{LIST_NPNS, LIST_OKES, WATCH_NPNS, WATCH_OKES};

/// A node with two VNICs for pods in a cluster of its own.
struct Cluster {
    node: Node,
    server: ApiServer,
}

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base/daemonset.yaml")
}

impl Cluster {
    /// One that knows no NativePodNetworks, nor the agent's rights.
    fn bare() -> Self {
        let node = Node::new();
        node.plug("ens5", 33);
        node.plug("ens6", 34);
        node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33), vnic("more", 34)]);
        let server = node.inside(|| ApiServer::start().unwrap());
        node.api_server.set(server.service()).unwrap();
        let cluster = Self { node, server };
        cluster.do_(async |server| {
            let account = ServiceAccount::new("oke-node-manager", "oke-node-agent");
            server.create_account(&account).await.unwrap();
            let agent = server.token(&account, &Bound::Nothing).await.unwrap();
            server.write_in_cluster(&agent, "oke-node-manager", &cluster.node.path("secrets")).unwrap();
        });
        cluster
    }

    /// One as OKE makes it, with the agent's manifest applied.
    fn new() -> Self {
        let cluster = Self::bare();
        cluster.do_(async |server| server.apply(&ApiServer::native_pod_networks()).await.unwrap());
        cluster.grant();
        cluster
    }

    /// Gives the agent the rights of its manifest.
    fn grant(&self) {
        self.do_(async |server| server.apply(&manifest()).await.unwrap());
        [LIST_NPNS, WATCH_NPNS, LIST_OKES, WATCH_OKES].into_iter().for_each(|right| self.wait_may(right, true));
    }

    /// Works with the API server, which is on the node's loopback.
    fn do_<T: Send>(&self, work: impl AsyncFnOnce(&ApiServer) -> T + Send) -> T {
        self.node.inside(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(work(&self.server))
        })
    }

    fn apply(&self, object: Value) {
        self.do_(async |server| server.apply_object(object).await.unwrap());
    }

    /// Publishes a NativePodNetwork, as OKE does.
    fn publish(&self, state: &str, vnics: &[(&str, u8)]) {
        self.apply(native_pod_network(state, vnics, false));
    }

    fn delete(&self, path: &str) {
        self.do_(async |server| {
            let client = server.client(server.admin()).unwrap();
            let request = hyper::Request::delete(path).body(Vec::new()).unwrap();
            client.request_text(request).await.unwrap();
        });
    }

    /// VNICs that have addresses for pods.
    fn offered(&self) -> Vec<String> {
        let vnics = self.node.pools()["vnics"].as_array().cloned().unwrap_or_default();
        vnics.iter().map(|vnic| vnic["vnicId"].as_str().unwrap().rsplit('.').next().unwrap().to_owned()).collect()
    }

    /// How many requests about DaemonSets the API server counts by this metric and verb.
    fn counted(&self, metric: &str, verb: &str) -> u64 {
        self.counted_of("daemonsets", metric, verb)
    }

    /// The same about another kind.
    fn counted_of(&self, resource: &str, metric: &str, verb: &str) -> u64 {
        let text = self.do_(async |server| {
            let request = hyper::Request::get("/metrics").body(Vec::new()).unwrap();
            server.client(server.admin()).unwrap().request_text(request).await.unwrap()
        });
        let labels = [format!("{metric}{{"), format!("resource=\"{resource}\""), format!("verb=\"{verb}\"")];
        let these = text.lines().filter(|line| labels.iter().all(|label| line.contains(label)));
        these.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// What `status` says of the NativePodNetwork.
    fn source(&self) -> Value {
        let (_, status) = self.node.run(&["status", "-o", "json"]);
        let status: Value = serde_json::from_str(&status).unwrap();
        let sources = status["sources"].as_array().unwrap();
        sources.iter().find(|source| source["name"] == "native-pod-network").unwrap().clone()
    }

    fn wait_offered(&self, agent: &Agent, expected: &[&str]) {
        wait_for("the addresses", || self.offered() == expected, || format!("{:?}\n{}", self.offered(), agent.log()));
    }

    /// Waits until the answer is young. Each change of the object is a byte of its watch.
    fn wait_fresh(&self) {
        let changes = Cell::new(0);
        let is_fresh = || {
            changes.set(changes.get() + 1);
            let mut object = native_pod_network("SUCCESS", &[("pods", 33), ("more", 34)], false);
            object["metadata"]["annotations"] = json!({ "changes": changes.get().to_string() });
            self.apply(object);
            self.source()["ageSeconds"].as_u64() < Some(5)
        };
        wait_for("no age", is_fresh, || self.source().to_string());
    }

    /// The message of a condition.
    fn message(&self, reason: &str) -> String {
        let body: Value = serde_json::from_str(&self.node.get("/readyz").1).unwrap();
        let found = body["conditions"].as_array().unwrap().iter().find(|condition| condition["reason"] == reason);
        found.unwrap()["message"].as_str().unwrap().to_owned()
    }
}

#[test]
fn watch_follows_only_the_object_of_this_instance() {
    let cluster = Cluster::new();
    let mut other = native_pod_network("SUCCESS", &[("more", 34)], false);
    other["metadata"]["name"] = "other".into();
    other["spec"]["id"] = "ocid1.instance.oc1.iad.other".into();
    cluster.apply(other);
    // So that nothing but the watch can tell.
    let agent = cluster.node.agent(&["--resync-seconds", "3600"]);
    cluster.node.wait_conditions(&agent, &["NativePodNetworkPending"]);
    assert_eq!(cluster.offered(), [""; 0]);
    cluster.publish("SUCCESS", &[("pods", 33)]);
    cluster.node.wait_ready(&agent);
    assert_eq!(cluster.offered(), ["pods"]);
    let mut source = cluster.source();
    // Since it was read, as at each news; an hour, if it were by the timer.
    let age = source.as_object_mut().unwrap().remove("ageSeconds").unwrap();
    assert!(age.as_u64().is_some_and(|age| age < 60), "{age}");
    assert_eq!(source, json!({"name": "native-pod-network", "summary": "SUCCESS"}));
    cluster.publish("SUCCESS", &[("pods", 33), ("more", 34)]);
    cluster.wait_offered(&agent, &["pods", "more"]);
    cluster.delete("/apis/oci.oraclecloud.com/v1beta1/nativepodnetworks/node");
    cluster.node.wait_conditions(&agent, &["NativePodNetworkPending"]);
    assert_eq!(cluster.offered(), ["pods", "more"], "nothing is taken away from pods");
    assert!(!cluster.node.path("lib/nativepodnetwork-seen.json").exists());
}

#[test]
fn failed_copy_is_written_when_possible() {
    let cluster = Cluster::new();
    let copy = cluster.node.path("lib/nativepodnetwork-seen.json");
    std::fs::create_dir_all(&copy).unwrap();
    cluster.publish("SUCCESS", &[("pods", 33)]);
    let agent = cluster.node.ready_agent(&[]);
    cluster.node.wait_conditions(&agent, &["StateFailed"]);
    let message = cluster.message("StateFailed");
    assert!(message.starts_with("writing /var/lib/vcn-native/nativepodnetwork-seen.json: "), "{message}");
    std::fs::remove_dir(&copy).unwrap();
    cluster.node.wait_conditions(&agent, &[]);
    assert!(copy.is_file());
}

#[test]
fn agent_works_and_restarts_without_api_server() {
    let cluster = Cluster::new();
    cluster.publish("SUCCESS", &[("pods", 33)]);
    let agent = cluster.node.ready_agent(&[]);
    cluster.server.stop().unwrap();
    wait_for("the loss", || agent.events("npn.watch_lost").len() == 1, || agent.log());
    assert_eq!(cluster.node.get("/readyz").0, 200);
    assert_eq!(cluster.node.conditions(), [""; 0], "a restart of the API server raises no condition");
    agent.stop();

    // Only the copy on disk has it.
    std::fs::remove_file(cluster.node.path("run/pools.json")).unwrap();
    let agent = cluster.node.ready_agent(&[]);
    assert_eq!(cluster.offered(), ["pods"]);
    let source = cluster.source();
    assert_eq!((&source["summary"], &source["error"]), (&json!("SUCCESS"), &Value::Null), "{source}");
    // Grown beyond what lies between two of its questions, on a busy machine, too.
    wait_for("an age", || cluster.source()["ageSeconds"].as_u64() > Some(5), || cluster.source().to_string());

    cluster.node.inside(|| cluster.server.start_again().unwrap());
    cluster.publish("SUCCESS", &[("pods", 33), ("more", 34)]);
    cluster.wait_offered(&agent, &["pods", "more"]);
    cluster.wait_fresh();

    // What the watch would go on from is forgotten: 410.
    cluster.do_(async |server| server.expire().await.unwrap());
    cluster.publish("SUCCESS", &[("pods", 33)]);
    cluster.wait_offered(&agent, &["pods"]);
}

#[test]
fn answer_is_as_old_as_the_last_byte_of_its_watch() {
    let cluster = Cluster::new();
    cluster.publish("SUCCESS", &[("pods", 33)]);
    let agent = cluster.node.ready_agent(&[]);
    // The connection stays open, and nothing arrives.
    cluster.server.freeze().unwrap();
    wait_for("an age", || cluster.source()["ageSeconds"].as_u64() > Some(5), || agent.log());
    assert_eq!(cluster.source()["error"], Value::Null, "an outage of minutes harms no pod");
    cluster.server.thaw().unwrap();
    cluster.wait_fresh();
}

#[test]
fn frozen_api_server_delays_nothing() {
    let cluster = Cluster::new();
    cluster.publish("SUCCESS", &[("pods", 33)]);
    let agent = cluster.node.ready_agent(&[]);
    agent.stop();
    cluster.server.freeze().unwrap();
    let agent = cluster.node.ready_agent(&[]);
    // By the copy: the server had not even been given up, which it may have been since this thread looked.
    let log = agent.log();
    let (ready, lost) = (log.find("\"agent.ready\""), log.find("\"npn.watch_lost\""));
    assert!(ready.is_some() && lost.is_none_or(|lost| ready < Some(lost)), "{log}");
    // A first answer of the metadata service configures the network again, which is not a repair.
    cluster.node.wait_conditions(&agent, &["VnicAttachmentsUnreadable"]);
    cluster.node.delete_rule(vcn::Family::Ipv4, 1537);
    agent.wait_said("host.repaired", "rule add pref 1537");
    wait_for("a deadline", || agent.events("npn.watch_lost").len() == 1, || agent.log());
    let nameless = agent.log().lines().find(|line| !line.contains(r#""event":"#)).map(str::to_owned);
    assert_eq!(nameless, None, "every line has an event's name");
    cluster.server.thaw().unwrap();
    cluster.publish("SUCCESS", &[("pods", 33), ("more", 34)]);
    cluster.wait_offered(&agent, &["pods", "more"]);
}

#[test]
fn missing_kind_is_none_and_missing_right_is_reported() {
    let cluster = Cluster::bare();
    cluster.grant();
    let agent = cluster.node.agent(&[]);
    cluster.node.wait_conditions(&agent, &["NativePodNetworkPending"]);
    assert_eq!(agent.events("npn.watch_lost"), [] as [Value; 0]);
    agent.stop();

    cluster.do_(async |server| server.apply(&ApiServer::native_pod_networks()).await.unwrap());
    cluster.publish("SUCCESS", &[("pods", 33)]);
    cluster.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/oke-node-agent");
    cluster.wait_may(LIST_NPNS, false);
    let agent = cluster.node.agent(&[]);
    cluster.node.wait_conditions(&agent, &["NativePodNetworkUnreadable", "VnicAttachmentsUnreadable"]);
    let message = cluster.message("NativePodNetworkUnreadable");
    let forbidden =
        "User \"system:serviceaccount:oke-node-manager:oke-node-agent\" cannot list resource \"nativepodnetworks\"";
    assert!(message.contains(forbidden), "{message}");
    assert_eq!(message.matches("forbidden").count(), 1, "{message}");
    cluster.do_(async |server| server.apply(&manifest()).await.unwrap());
    cluster.node.wait_ready(&agent);
    assert_eq!(cluster.offered(), ["pods"]);
    assert_eq!(agent.events("npn.watch_lost").len(), 1, "logged once");
    assert_eq!(agent.events("npn.watched_again").len(), 1);
}

#[test]
fn every_verb_of_the_role_is_needed() {
    let cluster = Cluster::new();
    cluster.publish("SUCCESS", &[("pods", 33)]);
    for ((granted, has), (missed, lacks)) in
        [(("list", LIST_NPNS), ("watch", WATCH_NPNS)), (("watch", WATCH_NPNS), ("list", LIST_NPNS))]
    {
        cluster.apply(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "oke-node-agent"},
            "rules": [{"apiGroups": ["oci.oraclecloud.com"], "resources": ["nativepodnetworks"], "verbs": [granted]}],
        }));
        cluster.wait_may(has, true);
        cluster.wait_may(lacks, false);
        let agent = cluster.node.agent(&[]);
        let lost = || {
            agent.events("npn.watch_lost").iter().any(|event| {
                let message = event["message"].as_str().unwrap();
                message.contains(&format!("cannot {missed} resource \"nativepodnetworks\""))
            })
        };
        wait_for("the refusal", lost, || agent.log());
        agent.stop();
    }
}

/// Of OKE's own CNI, as far as its name goes.
fn okes_daemonset() -> Value {
    let labels = json!({"app": "vcn-native-ip-cni"});
    let pod = json!({"containers": [{"name": "install-cni-ips", "image": "x"}]});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "vcn-native-ip-cni", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    })
}

const OKES: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets/vcn-native-ip-cni";

/// What was decided, in order.
fn decided(agent: &Agent) -> Vec<(bool, String)> {
    let decisions = agent.events("pod_network.decided");
    let decisions =
        decisions.iter().map(|it| (it["install"].as_bool().unwrap(), it["decided_by"].as_str().unwrap().to_owned()));
    let mut decided: Vec<_> = decisions.filter(|(_, by)| by != "nothing").collect();
    decided.dedup();
    decided
}

/// On a new node: its pod has not written anything there yet.
#[test]
fn nothing_is_installed_while_okes_cni_exists() {
    let cluster = Cluster::new();
    cluster.apply(okes_daemonset());
    cluster.wait_remembered(OKES, true);
    cluster.publish("SUCCESS", &[("pods", 33)]);
    let installed = || ["bin", "net.d"].map(|below| std::fs::read_dir(cluster.node.path(below)).unwrap().count());
    let agent = cluster.node.agent(&[]);
    wait_for("a decision", || !decided(&agent).is_empty(), || agent.log());
    assert_eq!(decided(&agent), [(false, "oke-daemonset".to_owned())], "{}", agent.log());
    // OKE's pod has not come, or never will.
    cluster.node.wait_conditions(&agent, &["RuntimeConfigurationMissing"]);
    let (ready, why) = cluster.node.run(&["why-not-ready"]);
    assert!(
        !ready && why.starts_with("Not ready: new pods cannot start here.") && why.contains("CNI_TAKEOVER"),
        "{why}"
    );
    let okes = cluster.node.path("net.d/10-oci.conflist");
    std::fs::write(&okes, OKE).unwrap();
    cluster.node.wait_conditions(&agent, &[]);
    std::fs::remove_file(&okes).unwrap();
    cluster.node.wait_conditions(&agent, &["RuntimeConfigurationMissing"]);
    agent.stop();
    assert_eq!(installed(), [0, 0]);

    let agent = cluster.node.ready_agent(&["--signal-oke-daemonset", "absent"]);
    assert_eq!(decided(&agent), [(true, "instance-metadata".to_owned())], "who knows better says so");
    agent.stop();
    for file in ["bin/vcn-native", "net.d/05-vcn-native.conflist"] {
        std::fs::remove_file(cluster.node.path(file)).unwrap();
    }

    cluster.delete(OKES);
    cluster.wait_remembered(OKES, false);
    let agent = cluster.node.ready_agent(&[]);
    assert_eq!(decided(&agent), [(true, "instance-metadata".to_owned())]);
    assert_eq!((installed(), agent.events("oke_cni.watch_lost").len()), ([1, 1], 0));
}

/// Ten thousand agents watch it: a request each in five minutes would be 33 a second.
#[test]
fn okes_daemonset_is_followed_by_one_watch() {
    let cluster = Cluster::new();
    cluster.publish("SUCCESS", &[("pods", 33)]);
    let agent = cluster.node.ready_agent(&[]);
    let is_seen = || {
        let decided = agent.events("pod_network.decided").pop();
        decided.is_some_and(|it| it["message"].as_str().unwrap().contains("the DaemonSet vcn-native-ip-cni exists"))
    };
    let watches = || cluster.counted("apiserver_longrunning_requests", "WATCH");
    wait_for("the watch", || watches() == 1, || agent.log());
    let lists = || cluster.counted("apiserver_request_total", "LIST");
    let ended = || cluster.counted("apiserver_request_total", "WATCH");
    let before = (lists(), ended());
    for present in [true, false, true] {
        if present {
            cluster.apply(okes_daemonset())
        } else {
            cluster.delete(OKES)
        }
        wait_for("the news", || is_seen() == present, || format!("{present}\n{}", agent.log()));
    }
    // The timer reads nothing.
    cluster.node.wait_timer_passes(&agent, 5);
    assert_eq!(((lists(), ended()), watches()), (before, 1));

    // A server that comes again, without what the watch would go on from: 410.
    cluster.server.stop().unwrap();
    wait_for("the loss", || agent.events("oke_cni.watch_lost").len() == 1, || agent.log());
    cluster.node.inside(|| cluster.server.start_again().unwrap());
    cluster.do_(async |server| server.expire().await.unwrap());
    cluster.delete(OKES);
    wait_for("the news", || !is_seen(), || agent.log());
    assert!(!agent.events("oke_cni.watched_again").is_empty(), "{}", agent.log());
}

/// One object for all nodes, which may put a pod on none of them.
#[test]
fn installed_node_is_maintained_when_okes_cni_appears() {
    let cluster = Cluster::new();
    cluster.publish("SUCCESS", &[("pods", 33)]);
    let agent = cluster.node.ready_agent(&[]);
    agent.stop();
    cluster.apply(okes_daemonset());
    cluster.wait_remembered(OKES, true);

    let agent = cluster.node.ready_agent(&[]);
    assert_eq!(decided(&agent), [(true, "instance-metadata".to_owned())], "{}", agent.log());
    // The node has our pod network, so the agent waits for the API server for at most a second.
    let reason = || agent.events("pod_network.decided").pop().unwrap()["message"].as_str().unwrap().to_owned();
    let is_reported =
        || reason().contains("the DaemonSet vcn-native-ip-cni exists") && reason().contains("it is maintained");
    wait_for("the reason", is_reported, || format!("{}\n{}", reason(), agent.log()));
    assert_eq!(decided(&agent), [(true, "instance-metadata".to_owned())], "{}", agent.log());
    assert!(cluster.node.run(&["status"]).1.contains("the DaemonSet vcn-native-ip-cni exists"));
    cluster.publish("SUCCESS", &[("pods", 33), ("more", 34)]);
    cluster.wait_offered(&agent, &["pods", "more"]);

    // Its pod has come to this node.
    std::fs::write(cluster.node.path("net.d/10-oci.conflist"), OKE).unwrap();
    let given_up = || decided(&agent).last() == Some(&(false, "oke-conflist".to_owned()));
    wait_for("the other decision", given_up, || agent.log());
    agent.stop();
}

#[test]
fn missing_right_to_read_okes_cni_is_logged_once() {
    let cluster = Cluster::new();
    cluster.publish("SUCCESS", &[("pods", 33)]);
    for (granted, missed, lacks) in [(vec![], "list", LIST_OKES), (vec!["list"], "watch", WATCH_OKES)] {
        let rule = json!({
            "apiGroups": ["apps"], "resources": ["daemonsets"], "resourceNames": ["vcn-native-ip-cni"], "verbs": granted,
        });
        cluster.apply(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "oke-node-agent", "namespace": "kube-system"},
            "rules": if granted.is_empty() { json!([]) } else { json!([rule]) },
        }));
        cluster.wait_may(lacks, false);
        let agent = cluster.node.ready_agent(&[]);
        wait_for("the refusal", || !agent.events("oke_cni.watch_lost").is_empty(), || agent.log());
        let event = agent.events("oke_cni.watch_lost").remove(0);
        let missing = format!("cannot {missed} resource \"daemonsets\" in API group \"apps\" in the namespace");
        assert!(event["message"].as_str().unwrap().contains(&missing), "{event}");
        if missed == "list" {
            cluster.grant();
            wait_for("the answer", || agent.events("oke_cni.watched_again").len() == 1, || agent.log());
            assert_eq!(agent.events("oke_cni.watch_lost").len(), 1);
        }
        agent.stop();
    }
}

#[test]
fn object_of_another_instance_is_not_used() {
    let cluster = Cluster::new();
    let mut foreign = native_pod_network("SUCCESS", &[("pods", 33)], false);
    foreign["spec"]["id"] = "ocid1.instance.oc1.phx.node".into();
    cluster.apply(foreign);
    let agent = cluster.node.agent(&[]);
    cluster.node.wait_conditions(&agent, &["NativePodNetworkUnreadable"]);
    let message = cluster.message("NativePodNetworkUnreadable");
    let why = "NativePodNetwork node is the NativePodNetwork of ocid1.instance.oc1.phx.node, this instance is \
               ocid1.instance.oc1.iad.node";
    assert!(message.contains(why), "{message}");
    assert_eq!(cluster.offered(), [""; 0]);
    cluster.publish("SUCCESS", &[("pods", 33)]);
    cluster.node.wait_ready(&agent);
}

#[test]
fn named_file_replaces_the_api_server() {
    let node = Node::new();
    node.plug("ens5", 33);
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
    std::fs::create_dir(node.path("secrets")).unwrap();
    std::fs::write(node.path("secrets/token"), "a token").unwrap();
    node.api_server.set(("127.0.0.1".into(), "1".into())).unwrap();
    node.publish("SUCCESS", &[("pods", 33)]);
    let _agent = node.ready_agent(&["--npn-file", "/var/lib/vcn-native/nativepodnetwork.json"]);
}
