//! Settings of node policies: a leader sends them on the channel, and the agent applies, compares, keeps and undoes them. Keys of
//! the network namespace; others are in `kernel_settings.rs`, for a guest.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use channel::{Client, Identity, Peer, Reply, Request};
use health::Summary;
use sandbox::Container;
use serde_json::{Value, json};
use tunables::document::POLICY_PATH;
use tunables::{ItemState, NodeAnswer, PolicyState};

use crate::node::Node;
use crate::running::{Agent, wait_for};

const LIMIT: Duration = Duration::from_secs(30);
/// The instance of [`Node`]s.
pub(crate) const INSTANCE: &str = "ocid1.instance.oc1.iad.node";
const BACKLOG: &str = "net/core/somaxconn";

/// A controller whose key the agents of a node trust.
pub(crate) struct Leader<'a> {
    pub(crate) node: &'a Node,
    identity: Identity,
}

impl<'a> Leader<'a> {
    pub(crate) fn new(node: &'a Node) -> Self {
        let identity = Identity::generate().unwrap();
        fs::create_dir_all(node.path("keys")).unwrap();
        fs::write(node.path("keys/oke-node-controller-0"), identity.fingerprint().to_string()).unwrap();
        Self { node, identity }
    }

    /// An agent that is ready.
    fn agent(&self) -> Agent {
        let agent = self.start(self.node.container(), &[]);
        self.node.wait_ready(&agent);
        agent
    }

    /// An agent in a container, with more options.
    pub(crate) fn start(&self, container: Container, more: &[&str]) -> Agent {
        let container = container.with_config_map(api::CONTROLLER_KEYS, &self.node.path("keys"));
        self.node.start(container, &[&["--node-ip", "127.0.0.1"], more].concat())
    }

    pub(crate) fn request(&self, agent: &Agent, request: &Request) -> Reply {
        let reply = RefCell::new(None);
        let is_answered = || {
            let listening = agent.events("channel.listening");
            let Some(line) = listening.first() else { return false };
            let address: SocketAddr = line["address"].as_str().unwrap().parse().unwrap();
            let peer = Peer { address, key: line["key"].as_str().unwrap().parse().unwrap() };
            let client = Client::new(self.identity.clone());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            *reply.borrow_mut() = self.node.inside(|| runtime.block_on(client.send(peer, request.clone(), LIMIT))).ok();
            reply.borrow().is_some()
        };
        // The agent reads keys every few seconds, and accepts a few connections per second.
        wait_for("a reply", is_answered, || agent.log());
        reply.into_inner().unwrap()
    }

    /// Sends a document; the answer to it.
    pub(crate) fn send(&self, agent: &Agent, document: &Value) -> NodeAnswer {
        let request = Request::post(POLICY_PATH, document.to_string());
        let answer = RefCell::new(None);
        let is_answered = || {
            let reply = self.request(agent, &request);
            // As a leader does while the agent does not know its instance, or works longer than a request waits.
            assert!(matches!(reply.status, 200 | 503), "{reply:?}\n{}", agent.log());
            let read = serde_json::from_slice(&reply.body).ok();
            *answer.borrow_mut() = read.filter(|read: &NodeAnswer| document["revision"] == read.document);
            answer.borrow().is_some()
        };
        wait_for("an answer to the document", is_answered, || agent.log());
        answer.into_inner().unwrap()
    }

    /// Waits until the values of a document are confirmed: by these requests, for the agent.
    pub(crate) fn wait_confirmed(&self, agent: &Agent) {
        let is_confirmed = || self.answer(agent).policies.iter().all(|it| it.state == PolicyState::Applied);
        wait_for("the confirmation", is_confirmed, || format!("{:?}\n{}", self.answer(agent), agent.log()));
    }

    pub(crate) fn answer(&self, agent: &Agent) -> NodeAnswer {
        serde_json::from_slice(&self.request(agent, &Request::get(POLICY_PATH)).body).unwrap()
    }
}

/// A document of one policy.
pub(crate) fn document(revision: &str, mode: &str, sysctls: &[(&str, &str)]) -> Value {
    let setting = |(key, value): &(&str, &str)| json!({ "key": key, "value": value, "policy": 0 });
    let policies = json!([{ "name": "web", "uid": "u", "revision": "r", "priority": 100, "mode": mode }]);
    json!({
        "version": 1, "revision": revision, "cluster": "c", "instance": INSTANCE,
        "policies": if mode.is_empty() { json!([]) } else { policies },
        "sysctls": sysctls.iter().map(setting).collect::<Vec<_>>(),
        "baseline": { "ready": true, "problems": ["x"] },
    })
}

/// The items that are not as the document says, as `item state current desired`.
pub(crate) fn items(answer: &NodeAnswer) -> Vec<String> {
    let text = |it: &tunables::ItemReport| format!("{} {} {} {}", it.item, it.state.as_str(), it.current, it.desired);
    answer.items.iter().map(text).collect()
}

fn policy_state(answer: &NodeAnswer) -> PolicyState {
    answer.policies[0].state
}

#[test]
fn policy_is_reported_then_applied_then_undone() {
    let node = Node::with_pods();
    let leader = Leader::new(&node);
    let agent = leader.agent();
    let before = node.sysctl(BACKLOG);
    let values = [("net.core.somaxconn", "16384"), ("net.ipv4.tcp_fin_timeout", "60")];
    let answer = leader.send(&agent, &document("a", "report", &values));
    assert_eq!(items(&answer), [format!("net.core.somaxconn Drifted {before} 16384")]);
    assert_eq!((policy_state(&answer), answer.in_sync, answer.baseline.problems.len()), (PolicyState::Applied, 1, 1));
    assert_eq!(node.sysctl(BACKLOG), before);
    let summary =
        || serde_json::from_slice::<Summary>(&leader.request(&agent, &Request::get("/v1/summary")).body).unwrap();
    let reported = summary().node_policy.unwrap();
    assert_eq!(reported.document, "a");

    let hostile = [
        ("net.core.somaxconn", "16384"),
        ("net.ipv4.ip_forward", "0"),
        ("kernel.core_pattern", "|/bin/sh"),
        ("vm.max_map_count", "262144"),
        ("net.ipv4.tcp_congestion_control", "nosuch"),
    ];
    let answer = leader.send(&agent, &document("b", "apply", &hostile));
    let congestion = node.sysctl("net/ipv4/tcp_congestion_control");
    assert_eq!(
        items(&answer),
        [
            format!("net.ipv4.tcp_congestion_control Failed {congestion} nosuch"),
            "kernel.core_pattern Refused  |/bin/sh".to_owned(),
            "net.ipv4.ip_forward Refused  0".to_owned(),
            "vm.max_map_count NotGranted  262144".to_owned(),
        ]
    );
    assert_eq!((policy_state(&answer), answer.in_sync), (PolicyState::Failed, 1));
    assert_eq!((node.sysctl(BACKLOG).as_str(), node.sysctl("net/ipv4/ip_forward").as_str()), ("16384", "1"));
    assert_ne!(summary().node_policy.unwrap().answer, reported.answer);
    assert_eq!(leader.answer(&agent), answer);

    // What is not taken changes nothing.
    let mut other = document("x", "", &[]);
    other["instance"] = json!("ocid1.instance.oc1.iad.other");
    let post = |text: String| leader.request(&agent, &Request::post(POLICY_PATH, text)).status;
    assert_eq!(post(other.to_string()), 409);
    assert_eq!(post("{\"version\": 1".to_owned()), 400);
    assert_eq!(post(document("x", "apply", &[("net.core.somaxconn", &"1".repeat(30_000))]).to_string()), 400);
    assert_eq!((leader.answer(&agent).document.as_str(), node.sysctl(BACKLOG).as_str()), ("b", "16384"));

    let answer = leader.send(&agent, &document("c", "", &[]));
    assert_eq!((answer.policies.len(), answer.items.len()), (0, 0));
    assert_eq!(node.sysctl(BACKLOG), before);
    let changes = |action: &str| node.metric(&format!("policy_changes_total{{action=\"{action}\",result=\"ok\""));
    assert_eq!((changes("set"), changes("restore")), (1, 1));
}

#[test]
fn values_outlive_the_agent_and_are_there_when_the_next_is_ready() {
    let node = Node::with_pods();
    let leader = Leader::new(&node);
    let agent = leader.agent();
    let before = node.sysctl(BACKLOG);
    let answer = leader.send(&agent, &document("a", "apply", &[("net.core.somaxconn", "16384")]));
    assert_eq!((policy_state(&answer), node.sysctl(BACKLOG).as_str()), (PolicyState::Applying, "16384"));
    leader.wait_confirmed(&agent);
    agent.stop();
    assert_eq!(node.sysctl(BACKLOG), "16384", "a stop undoes nothing");
    // As after a reboot: the kernel has its own value, and no leader comes.
    node.inside(|| fs::write(format!("/proc/sys/{BACKLOG}"), &before)).unwrap();
    let agent = leader.agent();
    assert_eq!(node.sysctl(BACKLOG), "16384");
    drop(agent);
    assert_eq!(node.sysctl(BACKLOG), "16384");
    // A damaged file does not count as an empty document.
    fs::write(node.path("lib").join(vcn::NODE_POLICY_FILE), "{\"version\": 1, \"docu").unwrap();
    let agent = leader.agent();
    node.wait_conditions(&agent, &["StateFailed"]);
    assert_eq!((node.sysctl(BACKLOG).as_str(), leader.answer(&agent).document.as_str()), ("16384", ""));
    // The record was not lost: the leader sends the document again, and later another.
    leader.send(&agent, &document("a", "apply", &[("net.core.somaxconn", "16384")]));
    node.wait_conditions(&agent, &[]);
    leader.send(&agent, &document("b", "", &[]));
    assert_eq!(node.sysctl(BACKLOG), before);
}

/// No policy names the value any more, so no policy's status does.
#[test]
fn restore_that_fails_is_a_condition_until_it_succeeds() {
    let node = Node::with_pods();
    let leader = Leader::new(&node);
    let (limits, limit) = (node.path("netfilter"), node.path("netfilter/nf_conntrack_max"));
    fs::create_dir(&limits).unwrap();
    fs::write(&limit, "32768\n").unwrap();
    let container = node.container().with_volume(&limits, "/host/proc/sys/net/netfilter".as_ref());
    let agent = leader.start(container, &[]);
    node.wait_ready(&agent);
    leader.send(&agent, &document("a", "apply", &[("net.netfilter.nf_conntrack_max", "65536")]));
    leader.wait_confirmed(&agent);
    // Neither read nor written.
    fs::remove_file(&limit).unwrap();
    fs::create_dir(&limit).unwrap();
    leader.send(&agent, &document("b", "", &[]));
    node.wait_conditions(&agent, &["SettingNotRestored"]);
    let text = node.get("/readyz").1;
    assert!(text.contains("net.netfilter.nf_conntrack_max to 32768: "), "{text}");
    fs::remove_dir(&limit).unwrap();
    fs::write(&limit, "65536\n").unwrap();
    leader.send(&agent, &document("c", "", &[]));
    node.wait_conditions(&agent, &[]);
    assert_eq!(fs::read_to_string(&limit).unwrap().trim(), "32768");
}

#[test]
fn value_of_another_program_is_set_back_when_links_change() {
    let node = Node::with_pods();
    let leader = Leader::new(&node);
    let agent = leader.agent();
    leader.send(&agent, &document("a", "apply", &[("net.core.somaxconn", "16384")]));
    leader.wait_confirmed(&agent);
    let change = |value: &str, link: &str, last: u8| {
        node.inside(|| fs::write(format!("/proc/sys/{BACKLOG}"), value)).unwrap();
        node.plug(link, last);
    };
    change("200", "ens7", 77);
    wait_for("the value", || node.sysctl(BACKLOG) == "16384", || agent.log());
    // At most once a minute.
    change("300", "ens8", 78);
    wait_for("the report", || leader.answer(&agent).items.len() == 1, || agent.log());
    assert_eq!(items(&leader.answer(&agent)), ["net.core.somaxconn Drifted 300 16384"]);
    assert_eq!(leader.answer(&agent).items[0].state, ItemState::Drifted);
    // `Keep`: the value stays, and is the node's own from now on.
    leader.send(&agent, &document("b", "keep", &[]));
    leader.send(&agent, &document("c", "", &[]));
    assert_eq!(node.sysctl(BACKLOG), "300");
}
