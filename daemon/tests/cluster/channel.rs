//! The controller's channel: the agent publishes its key with its own rights, answers the controller's key, and refuses others.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::channel::{Announcement, Client, Identity, Peer, Reply, Request, SendError};
use api::AGENT_CHANNEL_ANNOTATION;
use health::Summary;
use health::rules::{Action, version};
use health::summary::poll::RULES_PATH;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use nix::sys::signal::Signal;
use sandbox::Container;
use serde_json::{Value, json};
use tunables::document::POLICY_PATH;
use tunables::{NodeAnswer, PolicyState};

use crate::events::{POD, Scene};
use crate::node::{Agent, Node, wait_for};

const LIMIT: Duration = Duration::from_secs(30);

/// The controller's rules of an agent that may raise the limit of connections.
const RAISES_LIMIT: [&str; 2] = [
    r#"{"rules": [{"name": "conntrack-nearly-full", "bound": -1, "samples": {"bad": 60, "of": 60}, "action": "repair"}]}"#,
    r#"{"rules": [{"name": "conntrack-nearly-full", "samples": {"bad": 1, "of": 1}}]}"#,
];

/// What each agent here is started with.
const OPTIONS: [&str; 4] = ["--node-ip", "127.0.0.1", "--captures", "payload"];

/// An agent, and the controller whose key it trusts.
pub(crate) struct Channel {
    pub(crate) scene: Scene,
    pub(crate) agent: Agent,
    pub(crate) controller: Identity,
    container: Container,
    /// None before the agent published its key.
    peer: Option<Peer>,
}

impl Channel {
    /// An agent with these files of rules: the controller's that an earlier agent received, and its own.
    pub(crate) fn new(rules: Option<[&str; 2]>) -> Self {
        Self::prepared(rules, |_| ())
    }

    /// The same, on a node that something is done to before the agent starts.
    pub(crate) fn prepared(rules: Option<[&str; 2]>, prepare: impl FnOnce(&Node)) -> Self {
        let scene = Scene::new();
        let node = &scene.cluster.node;
        prepare(node);
        if let Some([received, own]) = rules {
            std::fs::create_dir(node.path("conf")).unwrap();
            std::fs::write(node.path("conf/health-rules.json"), own).unwrap();
            std::fs::create_dir_all(node.path("lib")).unwrap();
            std::fs::write(received_rules(node), received).unwrap();
        }
        let controller = Identity::generate().unwrap();
        let keys = node.path("keys");
        std::fs::create_dir(&keys).unwrap();
        std::fs::write(keys.join("oke-node-controller-0"), controller.fingerprint().to_string()).unwrap();
        // Outside the kernel's first network namespace, the limit of connections can be read and not written.
        let limits = node.path("netfilter");
        std::fs::create_dir(&limits).unwrap();
        std::fs::write(limits.join("nf_conntrack_max"), "1000\n").unwrap();
        let container = node.container().with_config_map(api::CONTROLLER_KEYS, &keys);
        let container = container.with_volume(&limits, "/host/proc/sys/net/netfilter".as_ref());
        let agent = node.start(container.clone(), &OPTIONS);
        let mut channel = Self { scene, agent, controller, container, peer: None };
        channel.find();
        channel
    }

    /// Waits for the agent's key.
    fn find(&mut self) {
        self.scene.cluster.node.wait_ready(&self.agent);
        let before = self.peer.map(|peer| peer.key);
        let found = || announcement(&self.scene).filter(|announced| Some(announced.key) != before);
        wait_for("the annotation", || found().is_some(), || self.agent.log());
        let Announcement { port, key } = found().unwrap();
        self.peer = Some(Peer { address: SocketAddr::from(([127, 0, 0, 1], port)), key });
    }

    /// Kills the agent, and starts another one in the same container.
    pub(crate) fn restart(&mut self) {
        self.agent.signal(Signal::SIGKILL);
        // Its lock goes when it is gone.
        let _ = self.agent.stop();
        self.agent = self.scene.cluster.node.start(self.container.clone(), &OPTIONS);
        self.find();
    }

    pub(crate) const fn peer(&self) -> Peer {
        self.peer.unwrap()
    }

    fn try_request(&self, identity: &Identity, request: Request) -> Result<Reply, SendError> {
        let (client, peer) = (Client::new(identity.clone()), self.peer());
        self.scene.cluster.do_(async |_| client.send(peer, request, LIMIT).await)
    }

    /// The controller's request. The agent accepts a few connections per second, and reads new keys every few seconds.
    pub(crate) fn request(&self, request: &Request) -> Reply {
        let reply = RefCell::new(None);
        let is_answered = || {
            *reply.borrow_mut() = self.try_request(&self.controller, request.clone()).ok();
            reply.borrow().is_some()
        };
        wait_for("a reply", is_answered, || self.agent.log());
        reply.into_inner().unwrap()
    }

    /// Sends a document of policies, and waits until the agent confirms it.
    pub(crate) fn send_policies(&self, document: &Value) {
        let reply = self.request(&Request::post(POLICY_PATH, document.to_string()));
        assert_eq!(reply.status, 200, "{reply:?}");
        let answer = || serde_json::from_slice::<NodeAnswer>(&self.request(&Request::get(POLICY_PATH)).body).unwrap();
        let is_confirmed = || {
            let answer = answer();
            answer.document == document["revision"] && answer.policies.iter().all(|it| it.state == PolicyState::Applied)
        };
        wait_for("the confirmation", is_confirmed, || format!("{:?}\n{}", answer(), self.agent.log()));
    }
}

fn received_rules(node: &Node) -> PathBuf {
    node.path("lib").join(vcn::CONTROLLER_RULES_FILE)
}

/// What the agent published.
fn announcement(scene: &Scene) -> Option<Announcement> {
    let pod = scene.cluster.do_(async |server| {
        let pods: Api<Pod> = Api::namespaced(server.client(server.admin()).unwrap(), "oke-node-manager");
        pods.get(POD).await.unwrap()
    });
    let annotations = pod.metadata.annotations?;
    Some(serde_json::from_str(annotations.get(AGENT_CHANNEL_ANNOTATION)?).unwrap())
}

#[test]
fn agent_answers_the_controllers_key_and_no_other() {
    let channel = Channel::new(None);
    let stranger = Identity::generate().unwrap();
    let refused = channel.try_request(&stranger, Request::get("/v1/summary"));
    assert!(matches!(refused, Err(SendError::Handshake { .. })), "{refused:?}");
    let summary = || channel.request(&Request::get("/v1/summary"));
    let read = |reply: &Reply| serde_json::from_slice::<Summary>(&reply.body).unwrap();
    wait_for("the first signals", || read(&summary()).counts.healthy > 3, || channel.agent.log());
    let reply = summary();
    assert!(reply.body.len() <= health::summary::SUMMARY_MAX, "{}", reply.body.len());
    let first = read(&reply);
    assert_eq!((first.node.as_str(), first.ready, first.version), ("node", true, 1), "{first:?}");
    // States may still change while the collectors run for the first time.
    let is_unchanged = || {
        let again = Request { if_none_match: summary().etag, ..Request::get("/v1/summary") };
        channel.request(&again).status == 304
    };
    wait_for("an unchanged summary", is_unchanged, || channel.agent.log());
    let node = channel.request(&Request::get("/v1/node"));
    let node: Value = serde_json::from_slice(&node.body).unwrap();
    assert_eq!((&node["status"]["ready"], node["signals"]["signals"].is_array()), (&Value::Bool(true), true), "{node}");
    assert_eq!(channel.request(&Request::get("/metrics")).status, 404);
    // A condition is a check of the summary.
    channel.scene.vnic_gone();
    let has_check = || read(&summary()).checks.iter().any(|check| check.name == "VnicNotListed");
    wait_for("the condition", has_check, || channel.agent.log());
}

/// That they hold after a start is shown below, and that the controller sends them in `controller/tests/cluster/fleet.rs`.
#[test]
fn agent_keeps_the_controllers_rules() {
    let channel = Channel::new(None);
    assert_eq!(channel.request(&Request::get(RULES_PATH)).status, 405);
    let rules = r#"{"rules": [{"name": "conntrack-nearly-full", "bound": 90}]}"#;
    assert_eq!(channel.request(&Request::post(RULES_PATH, rules)).status, 200);
    let refused = channel.request(&Request::post(RULES_PATH, "{}"));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(std::fs::read_to_string(received_rules(&channel.scene.cluster.node)).unwrap(), rules);
}

/// That the controller sends this request is shown in `controller/tests/cluster/fleet.rs`.
#[test]
fn agent_raises_a_limit_only_when_the_controller_permits() {
    let channel = Channel::new(Some(RAISES_LIMIT));
    let is_repair_due = || {
        let summary: Summary = serde_json::from_slice(&channel.request(&Request::get("/v1/summary")).body).unwrap();
        summary.checks.iter().any(|check| check.name == "conntrack_use" && check.action == Action::Repair)
    };
    wait_for("the problem", is_repair_due, || channel.agent.log());
    let summary: Summary = serde_json::from_slice(&channel.request(&Request::get("/v1/summary")).body).unwrap();
    assert_eq!(summary.controller_rules, Some(version(RAISES_LIMIT[0])));
    let limit = || std::fs::read_to_string(channel.scene.cluster.node.path("netfilter/nf_conntrack_max")).unwrap();
    assert_eq!(limit(), "1000\n");
    channel.request(&Request::get("/v1/summary?repairs=allow"));
    wait_for("the raised limit", || limit() == "2000", || channel.agent.log());
    channel.scene.wait_reported(&channel.agent, &["Warning LimitRaised ConditionRaised"]);
    let log = channel.agent.log();
    assert!(log.contains("raised net.netfilter.nf_conntrack_max from 1000 to 2000"), "{log}");
}

/// Its value is the user's choice, also in mode Report.
#[test]
fn limit_that_a_policy_names_is_not_raised() {
    let channel = Channel::new(Some(RAISES_LIMIT));
    let document = |revision: &str, policies: Value, sysctls: Value| json!({ "version": 1, "revision": revision, "cluster": "c", "policies": policies, "sysctls": sysctls });
    let policies = json!([{ "name": "web", "uid": "u", "revision": "r", "mode": "report" }]);
    let sysctls = json!([{ "key": "net.netfilter.nf_conntrack_max", "value": "65536", "policy": 0 }]);
    channel.send_policies(&document("a", policies, sysctls));
    channel.request(&Request::get("/v1/summary?repairs=allow"));
    let signals = || {
        let node: Value = serde_json::from_slice(&channel.request(&Request::get("/v1/node")).body).unwrap();
        node["signals"]["signals"].as_array().unwrap().clone()
    };
    let has_problem = || signals().iter().any(|it| it["signal"] == "conntrack_use" && it["verdict"] == "problem");
    wait_for("the problem", has_problem, || channel.agent.log());
    // The agent repairs after each sample of any signal.
    let sampled = || signals().iter().map(|it| it["sampledUnixMillis"].as_u64().unwrap()).max();
    for _ in 0..3 {
        let before = sampled();
        wait_for("a sample", || sampled() > before, || channel.agent.log());
    }
    let limit = || std::fs::read_to_string(channel.scene.cluster.node.path("netfilter/nf_conntrack_max")).unwrap();
    assert_eq!(limit(), "1000\n");
    channel.send_policies(&document("b", json!([]), json!([])));
    wait_for("the raised limit", || limit() == "2000", || channel.agent.log());
}
