//! SIGTERM in a cluster: everything stays unless the agent's own DaemonSet is gone and no pod uses our network. Then the node
//! becomes what it was before the agent came, as far as the agent's container permits.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::process::Command;
use std::time::Duration;

use installer::RemovalStatus;
use netlink::Address;
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use vcn::Mtu;

use crate::Cluster;
use crate::channel::Channel;
use crate::node::{Agent, Node, OKE, name, wait_for};
use crate::pod::Pod;
use crate::served::LIST_OWN;
use crate::uninstaller::uninstall;

const OWN: &str = "/apis/apps/v1/namespaces/oke-node-manager/daemonsets/oke-node-agent";

/// How long Kubernetes waits before it kills. The agent waits for an answer for 4 s of it.
const GRACE: Duration = Duration::from_secs(30);

/// What it says of an API server that took longer.
const SILENT: &str = "no answer within 4 s";

/// Every file with its mode, owner and content, except sockets.
const FILES: &str = "cd \"$0\" && find bin net.d run lib host ! -type s -printf '%p %y %m %U\\n' | sort && \
                     find bin net.d run lib host -type f -exec sha256sum '{}' + | sort -k 2";

/// The host's network, as far as being up once leaves no traces.
const KERNEL: &str = "ip -4 rule; ip -6 rule; ip -4 route show table all; ip neigh show proxy; ip -4 addr show; \
                      nft --terse list ruleset; for key in ip_forward conf/ens5/rp_filter conf/ens5/forwarding; do \
                      cat /proc/sys/net/ipv4/$key; done; ip -oneline link show ens5 | grep -o ',UP\\|mtu [0-9]*'";

/// How often an agent is started and stopped until it was not too slow.
const TRIES: u32 = 5;

/// A node in a cluster, and how it was before its agent came.
struct Scene {
    cluster: Cluster,
    before: String,
}

impl Scene {
    fn new() -> Self {
        let cluster = Cluster::new();
        cluster.publish("SUCCESS", &[("pods", 33)]);
        // Directories that the kubelet creates for mounts stay, and so does the mode of two of them.
        for directory in ["run", "lib"] {
            fs::DirBuilder::new().mode(0o700).create(cluster.node.path(directory)).unwrap();
        }
        for directory in [
            "etc/systemd",
            "run/systemd/netif",
            "run/systemd/networkd.conf.d",
            "run/NetworkManager/devices",
            "etc/oci-utils.conf.d",
        ] {
            fs::create_dir_all(cluster.node.path("host").join(directory)).unwrap();
        }
        let before = looks(&cluster.node);
        Self { cluster, before }
    }

    /// An agent that has nothing left to write: it is ready by what it saw itself, not by what one before it saw.
    fn ready_agent(&self, more: &[&str]) -> Agent {
        let _ = fs::remove_file(self.cluster.node.path("lib/nativepodnetwork-seen.json"));
        self.agent(more)
    }

    fn agent(&self, more: &[&str]) -> Agent {
        self.cluster.node.ready_agent(more)
    }

    /// SIGTERM; the node before it and after it.
    fn stop(&self, agent: &mut Agent) -> (String, String) {
        self.stop_or(agent, || self.ready_agent(&[]))
    }

    /// The same of an agent that was started so.
    fn stop_or(&self, agent: &mut Agent, start: impl Fn() -> Agent) -> (String, String) {
        // On a busy machine a full reconcile, or the API server's answer, may take longer than the agent waits for it, and
        // then it rather leaves all.
        let busy = |agent: &Agent| agent.events("agent.uninstall_refused").iter().any(|it| it["reason"] == "busy");
        let silent = |agent: &Agent| agent.events("agent.returning").iter().any(|it| it["why"] == SILENT);
        for _ in 0..TRIES {
            let before = settled(&self.cluster.node, agent);
            let (status, took) = agent.stop();
            if busy(agent) || silent(agent) {
                *agent = start();
                continue;
            }
            assert!(status.success() && took < GRACE, "{status} after {took:?}: {}", agent.log());
            return (before, looks(&self.cluster.node));
        }
        panic!("each of {TRIES} agents was too slow");
    }

    /// SIGTERM leaves everything where the agent was started so, without a question or for this reason; the agent logs this as
    /// its cause.
    fn stays(&self, start: impl Fn() -> Agent, reason: &[&str], why: &str) {
        let mut agent = start();
        let (before, after) = self.stop_or(&mut agent, start);
        same(&after, &before, &agent);
        assert_ne!(before, self.before, "there is something to take away");
        assert_eq!(words(&agent, "agent.returning"), reason, "{}", agent.log());
        let causes = agent.events("agent.returning");
        assert!(causes.iter().all(|it| it["why"].as_str().unwrap_or_default().contains(why)), "{why}: {causes:?}");
        assert_eq!(words(&agent, "agent.leaving"), [""; 0]);
    }
}

fn looks(node: &Node) -> String {
    let sh = |script: &str| {
        let output = Command::new("sh").args(["-c", script]).arg(node.path("")).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    node.inside(|| sh(FILES) + &sh(KERNEL))
}

/// The node once no file is being replaced: a ready agent still writes its copies of what it learnt.
fn settled(node: &Node, agent: &Agent) -> String {
    let seen = RefCell::new(looks(node));
    let is_settled = || {
        let (now, before) = (looks(node), seen.take());
        let is_same = now == before && !now.contains(".json.new");
        seen.replace(now);
        is_same
    };
    wait_for("files that stay", is_settled, || agent.log());
    seen.into_inner()
}

/// Both to the byte, for as little as differs.
fn same(now: &str, before: &str, agent: &Agent) {
    let without = |text: &str, other: &str| -> Vec<String> {
        text.lines().filter(|line| !other.lines().any(|known| known == *line)).map(str::to_owned).collect()
    };
    let (more, less) = (without(now, before), without(before, now));
    assert!(now == before, "more: {more:#?}\nless: {less:#?}\n{}", agent.log());
}

fn words(agent: &Agent, event: &str) -> Vec<String> {
    agent.events(event).iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn deleted_daemonset_restores_the_node() {
    for how in ["", "?propagationPolicy=Foreground"] {
        let scene = Scene::new();
        let mut agent = scene.ready_agent(&[]);
        scene.cluster.delete(&format!("{OWN}{how}"));
        let (working, after) = scene.stop(&mut agent);
        assert_ne!(working, after, "there is something to take away");
        same(&after, &scene.before, &agent);
        assert_eq!(words(&agent, "agent.leaving"), ["daemonset-gone"]);
        let [event] = &agent.events("agent.uninstalled")[..] else { panic!("{}", agent.log()) };
        assert_eq!(event["status"], "removed", "{}", agent.log());
    }
}

/// By the agent itself, and by the uninstaller after it.
#[test]
fn values_of_policies_are_restored() {
    for is_by_agent in [true, false] {
        let channel = Channel::new(None);
        let (cluster, agent) = (&channel.scene.cluster, &channel.agent);
        let values = || {
            let script = "cat /proc/sys/net/core/somaxconn /proc/sys/net/ipv4/tcp_fin_timeout; \
                          ip -oneline link show ens6 | grep -o 'qlen [0-9]*'";
            cluster.node.sh(script).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let before = values();
        channel.send_policies(&json!({
            "version": 1, "revision": "a", "cluster": "c",
            "policies": [{ "name": "web", "uid": "u", "revision": "r", "priority": 100, "mode": "apply" }],
            "sysctls": [{ "key": "net.core.somaxconn", "value": "16384", "policy": 0 },
                        { "key": "net.ipv4.tcp_fin_timeout", "value": "20", "policy": 0 }],
            "links": [{ "link": { "select": { "name": "ens6" }, "txQueueLength": 500 }, "policy": 0 }],
        }));
        let applied = "16384 20 qlen 500";
        assert_eq!(values(), applied, "{}", agent.log());
        if is_by_agent {
            cluster.delete(OWN);
            let (status, took) = agent.stop();
            assert!(status.success() && took < GRACE, "{status} after {took:?}: {}", agent.log());
            assert_eq!(agent.events("agent.uninstalled").len(), 1, "{}", agent.log());
        } else {
            agent.stop();
            assert_eq!(values(), applied, "a stop undoes nothing");
            let removal = uninstall(&cluster.node);
            assert_eq!(removal.status(), RemovalStatus::All, "{removal}");
        }
        assert_eq!(values(), before, "by the agent: {is_by_agent}\n{}", agent.log());
        assert!(!cluster.node.path("lib").join(vcn::NODE_POLICY_FILE).exists());
    }
}

/// A pool's entry is removed from the values, or all DaemonSets are deleted one after the other.
#[test]
fn deleted_daemonset_of_a_pool_uninstalls_only_with_all_others() {
    let scene = Scene::new();
    let pool = json!({ "app.kubernetes.io/name": "oke-node-agent", "oke-node-manager/pool": "pilot" });
    let pod = json!({ "serviceAccountName": "oke-node-agent", "containers": [{ "name": "agent", "image": "agent" }] });
    let template = json!({ "metadata": { "labels": pool }, "spec": pod });
    let set = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "oke-node-agent-pilot", "namespace": "oke-node-manager" },
        "spec": { "selector": { "matchLabels": pool }, "template": template } });
    let pilot = ["--pod-name", "oke-node-agent-pilot-7k2xp"];
    scene.stays(|| scene.ready_agent(&pilot), &["others-present"], "oke-node-agent");
    scene.cluster.apply(set);
    scene.stays(|| scene.ready_agent(&pilot), &["daemonset-present"], "");
    scene.cluster.delete(OWN);
    scene.cluster.delete(&format!("{OWN}-pilot"));
    let mut agent = scene.ready_agent(&pilot);
    let (_, after) = scene.stop_or(&mut agent, || scene.ready_agent(&pilot));
    same(&after, &scene.before, &agent);
    assert_eq!(words(&agent, "agent.leaving"), ["daemonset-gone"]);
}

/// OKE's pods stand on the VNIC's link by then.
#[test]
fn node_handed_over_keeps_links_in_use() {
    let scene = Scene::new();
    let node = &scene.cluster.node;
    let mut agent = scene.ready_agent(&[]);
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    wait_for(
        "the removal of our configuration",
        || !node.path("net.d/05-vcn-native.conflist").exists(),
        || agent.log(),
    );
    node.on(|socket| {
        let index = socket.index_of(&name("ens5")).unwrap();
        socket.add_address(&Address::new(index, "10.0.33.7/24".parse().unwrap())).unwrap();
    });
    scene.cluster.delete(OWN);
    let (_, after) = scene.stop(&mut agent);
    let link = node.on(|socket| socket.link(&name("ens5")).unwrap());
    assert!(link.up && link.mtu == Mtu::VCN, "{}", agent.log());
    assert!(after.contains("10.0.33.7/24") && !after.contains("10.0.33.7/32"), "{after}");
    let left = agent.events("agent.uninstall_left");
    let left: Vec<_> = left.iter().map(|event| event["left"].as_str().unwrap()).collect();
    let why = "10-oci.conflist is of another pod network, which may use it";
    assert!(left.contains(&format!("setting link/ens5/state: {why}").as_str()), "{left:?}");
}

#[test]
fn pod_with_an_address_prevents_uninstall() {
    let scene = Scene::new();
    let mut agent = scene.ready_agent(&[]);
    let _pod = Pod::add(&scene.cluster.node, "one");
    scene.cluster.delete(OWN);
    let (before, after) = scene.stop(&mut agent);
    same(&after, &before, &agent);
    assert_eq!(words(&agent, "agent.leaving"), ["daemonset-gone"]);
    let refused = agent.events("agent.uninstall_refused");
    let [holding] = &refused[..] else { panic!("{}", agent.log()) };
    let why = holding["why"].as_str().unwrap();
    let hold = "1 attachment(s) of this boot hold addresses (vcn-native/one/eth0); drain the node";
    assert!(holding["reason"] == "refused" && why.starts_with(hold), "{holding}");
    assert_eq!(agent.events("agent.uninstalled"), [] as [Value; 0]);
}

/// Work in progress would put back what an uninstall removes. The work here: a plugin of the chain hangs when the installer
/// calls its VERSION, for two seconds; the agent waits one second when it stops.
#[test]
fn busy_agent_uninstalls_nothing() {
    let scene = Scene::new();
    let node = &scene.cluster.node;
    let files = ["bin/called", "bin/never", "bin/portmap"].map(|file| node.path(file));
    let [calls_fifo, never, portmap] = &files;
    mkfifo(calls_fifo, Mode::S_IRWXU).unwrap();
    mkfifo(never, Mode::S_IRWXU).unwrap();
    // Open for both, so that the plugin's write waits for no reader.
    let calls = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(calls_fifo).unwrap();
    let called = || (&calls).read(&mut [0; 64]).is_ok();
    let script = "#!/bin/sh\necho >${0%/*}/called\nread line <${0%/*}/never\n";
    sandbox::write_program(portmap, script.as_bytes()).unwrap();
    scene.cluster.delete(OWN);
    for attempt in 1.. {
        let agent = scene.ready_agent(&["--resync-seconds", "0.2"]);
        let before = looks(node);
        while called() {}
        wait_for("the installer to call the plugin again", called, || agent.log());
        let (status, took) = agent.stop();
        assert!(status.success() && took < GRACE, "{status} after {took:?}: {}", agent.log());
        assert_eq!(words(&agent, "agent.leaving"), ["daemonset-gone"]);
        // On a busy machine the question to the API server may take longer than the plugin hangs.
        if words(&agent, "agent.uninstall_refused").is_empty() && attempt < TRIES {
            continue;
        }
        same(&looks(node), &before, &agent);
        assert_ne!(before, scene.before, "there is something to take away");
        assert_eq!(words(&agent, "agent.uninstall_refused"), ["busy"], "{}", agent.log());
        assert_eq!(agent.events("agent.uninstalled"), [] as [Value; 0]);
        break;
    }

    // The next agent finds nothing in its way.
    for file in &files {
        fs::remove_file(file).unwrap();
    }
    let mut agent = scene.ready_agent(&[]);
    let (_, after) = scene.stop(&mut agent);
    same(&after, &scene.before, &agent);
}

#[test]
fn present_daemonset_or_unclear_answer_keeps_everything() {
    let scene = Scene::new();
    scene.stays(|| scene.ready_agent(&[]), &["daemonset-present"], "");

    scene.cluster.delete(OWN);
    scene.cluster.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/oke-node-manager/rolebindings/oke-node-agent");
    scene.cluster.wait_may(LIST_OWN, false);
    scene.stays(|| scene.ready_agent(&[]), &["unknown"], "403 daemonsets.apps is forbidden");

    let token = scene.cluster.node.path("secrets/token");
    let good = fs::read(&token).unwrap();
    let refused_later = || {
        fs::write(&token, &good).unwrap();
        let agent = scene.ready_agent(&[]);
        fs::write(&token, "invalid").unwrap();
        agent
    };
    scene.stays(refused_later, &["unknown"], "401 Unauthorized");

    scene.cluster.server.stop().unwrap();
    scene.stays(|| scene.agent(&[]), &["unknown"], "Connection refused");
}

#[test]
fn silent_api_server_delays_the_end_four_seconds() {
    let scene = Scene::new();
    let agent = scene.ready_agent(&[]);
    scene.cluster.server.stop().unwrap();
    let port: u16 = scene.cluster.node.api_server.get().unwrap().1.parse().unwrap();
    // It takes the connection, and that is all.
    let _silent = scene.cluster.node.inside(|| std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
    let before = looks(&scene.cluster.node);
    let (status, took) = agent.stop();
    assert!(status.success() && took > Duration::from_millis(3900), "{status} after {took:?}");
    assert!(took < GRACE, "{took:?}");
    same(&looks(&scene.cluster.node), &before, &agent);
    assert_eq!(words(&agent, "agent.returning"), ["unknown"]);
    assert_eq!(agent.events("agent.returning")[0]["why"], SILENT);
}

/// The DaemonSet was deleted, and still only SIGTERM triggers it.
#[test]
fn uninstall_denied_or_nameless_sends_no_request() {
    let scene = Scene::new();
    scene.cluster.delete(OWN);
    for option in [["--uninstall-when-deleted", "deny"], ["--pod-name", ""]] {
        scene.stays(|| scene.ready_agent(&option), &[], "");
    }
    let node = &scene.cluster.node;
    let denied_later = || {
        node.deliver(1, "UNINSTALL_WHEN_DELETED=allow\n");
        let agent = scene.ready_agent(&[]);
        node.deliver(2, "UNINSTALL_WHEN_DELETED=deny\n");
        wait_for("the new configuration", || agent.events("agent.started").len() == 2, || agent.log());
        node.wait_ready(&agent);
        agent
    };
    scene.stays(denied_later, &[], "");
}

/// The agent may not change owners of files, and gets no capability for the rare foreign file.
#[test]
fn foreign_file_is_left_for_the_uninstaller_to_restore() {
    let scene = Scene::new();
    let node = &scene.cluster.node;
    let foreign = node.path("bin/vcn-native");
    fs::write(&foreign, "a foreign plugin of that name").unwrap();
    chown(&foreign, Some(1000), Some(1000)).unwrap();
    let before = looks(node);
    let mut agent = scene.ready_agent(&[]);
    scene.cluster.delete(OWN);
    scene.stop(&mut agent);
    assert_eq!(agent.events("agent.uninstalled"), [] as [Value; 0]);
    let events = agent.events("agent.uninstall_incomplete");
    assert_eq!(events.iter().map(|event| &event["status"]).collect::<Vec<_>>(), [&json!("failed")], "{}", agent.log());
    let failed = agent.events("agent.uninstall_failed");
    let [failed] = &failed[..] else { panic!("{}", agent.log()) };
    assert!(failed["why"].as_str().unwrap().contains("setting its owner failed"), "{failed}");

    let removal = uninstall(node);
    assert_eq!(removal.status(), RemovalStatus::All, "{removal}");
    same(&looks(node), &before, &agent);
    assert_eq!(fs::metadata(&foreign).unwrap().uid(), 1000);
}
