//! A leader behind the gateway: it polls the agent each second, as the controller does, and sends documents.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use channel::{Client, Fingerprint, Identity, Peer, Reply, Request};
use netlink::Netns;
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use tunables::document::POLICY_PATH;

use crate::node::Node;
use crate::node_policies::INSTANCE;
use crate::running::{Agent, wait_for};

const ADDRESS: ([u8; 4], u16) = ([10, 0, 10, 7], 9810);
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Leader {
    fabric: Arc<Netns>,
    identity: Identity,
    /// The agent's key, of the last one that started.
    key: Mutex<Option<Fingerprint>>,
    answer: Arc<Mutex<Value>>,
    is_paused: Arc<AtomicBool>,
    revision: Mutex<u32>,
}

/// A document with one policy of the primary link.
pub(crate) fn policy(mode: &str, options: Value) -> Value {
    let mut link = options;
    link["select"] = json!({"primary": true});
    let policy = json!({"name": "web", "uid": "web", "revision": link.to_string(), "priority": 100, "mode": mode.to_lowercase()});
    json!({"policies": [policy], "links": [{"link": link, "policy": 0}]})
}

impl Leader {
    pub(crate) fn new(node: &Node) -> Self {
        let identity = Identity::generate().unwrap();
        std::fs::create_dir(node.path("keys")).unwrap();
        std::fs::write(node.path("keys/leader"), identity.fingerprint().to_string()).unwrap();
        let (key, revision) = Default::default();
        Self {
            fabric: Arc::new(node.fabric()),
            identity,
            key,
            answer: Arc::new(Mutex::new(Value::Null)),
            is_paused: Arc::new(AtomicBool::new(true)),
            revision,
        }
    }

    /// Starts an agent that trusts this leader, waits until it is ready, and polls it from now on unless polling is paused.
    pub(crate) fn agent(&self, node: &Node) -> Agent {
        let container = node.container().with_config_map(api::CONTROLLER_KEYS, &node.path("keys"));
        let agent = node.start(container, &["--node-ip", "10.0.10.7"]);
        node.wait_ready(&agent);
        wait_for("the channel", || !agent.events("channel.listening").is_empty(), || agent.log());
        let key = agent.events("channel.listening")[0]["key"].as_str().unwrap().parse().unwrap();
        let is_first = self.key.lock().unwrap().replace(key).is_none();
        if is_first {
            self.resume();
        }
        agent
    }

    /// Stops polling, as a leader that is gone.
    pub(crate) fn pause(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
    }

    /// Polls each second.
    pub(crate) fn resume(&self) {
        self.is_paused.store(false, Ordering::Relaxed);
        let (netns, peer, client) = (self.fabric.clone(), self.peer(), Client::new(self.identity.clone()));
        let (answer, is_paused) = (self.answer.clone(), self.is_paused.clone());
        let poll = async move || {
            while !is_paused.load(Ordering::Relaxed) {
                for path in ["/v1/summary", POLICY_PATH] {
                    let reply = timeout(LIMIT, client.send(peer, Request::get(path), LIMIT)).await;
                    if let (POLICY_PATH, Ok(Ok(Reply { status: 200, body, .. }))) = (path, reply) {
                        *answer.lock().unwrap() = serde_json::from_slice(&body).unwrap();
                    }
                }
                sleep(Duration::from_secs(1)).await;
            }
        };
        thread::spawn(move || {
            netns.run(|| Builder::new_current_thread().enable_all().build().unwrap().block_on(poll())).unwrap();
        });
    }

    /// The agent's last answer, if it is about the last document.
    pub(crate) fn answer(&self) -> Value {
        let answer = self.answer.lock().unwrap().clone();
        let is_current = answer["document"] == self.revision.lock().unwrap().to_string();
        if is_current { answer } else { Value::Null }
    }

    /// Sends a document, until the agent has it.
    pub(crate) fn send(&self, document: &Value) {
        self.send_while(document, || {});
    }

    /// Sends a document, and does something at once, without waiting for the agent's answer.
    pub(crate) fn send_while(&self, document: &Value, work: impl FnOnce()) {
        let mut document = document.clone();
        *self.revision.lock().unwrap() += 1;
        (document["version"], document["cluster"], document["instance"]) =
            (json!(1), json!("cluster"), json!(INSTANCE));
        document["revision"] = json!(self.revision.lock().unwrap().to_string());
        let (peer, client, body) = (self.peer(), Client::new(self.identity.clone()), document.to_string());
        let is_taken = || {
            let send = async || client.send(peer, Request::post(POLICY_PATH, body.clone()), LIMIT).await;
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let reply = self.fabric.run(|| runtime.block_on(send())).unwrap();
            reply.is_ok_and(|reply| reply.status == 200)
        };
        wait_for("the document to be taken", is_taken, || format!("{body}\n{}", self.answer()));
        work();
    }

    fn peer(&self) -> Peer {
        Peer { address: ADDRESS.into(), key: self.key.lock().unwrap().unwrap() }
    }
}
