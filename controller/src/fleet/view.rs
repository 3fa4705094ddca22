//! What `kubectl oke-node` reads by port-forward: the fleet, and one node with its agent's details. HTTP on loopback; there
//! are no secrets in it, and nothing can be changed through it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use api::bundle::VIEW_BUNDLE_PATH;
use api::capture::VIEW_CAPTURE_PATH;
use channel::Client;
use health::Fleet;
use health::fleet::{FleetNode, NodeDetails};
use resident::logging::chain;
use resident::server::{Answer, Caller, Handler, StreamRequest};
use stream::Chunks;
use tokio::time::Instant;
use tunables::view::{POLICIES_PATH, PoliciesView, PolicyView};

use crate::cluster::store::{NodeView, Store};
use crate::fleet::answer::details;
use crate::fleet::bundle::Bundles;
use crate::fleet::capture::CaptureDownloads;
use crate::fleet::roster::Roster;
use crate::fleet::shared::SharedRoster;
use crate::malloc;

pub(crate) struct FleetView {
    name: String,
    /// The leader, as long as it is another one.
    leader: Mutex<Option<String>>,
    fleet: OnceLock<LeaderView>,
    /// One answer with all nodes is built at a time: it may take many MiB.
    whole: tokio::sync::Mutex<()>,
}

/// What the leader shows.
pub(crate) struct LeaderView {
    pub roster: Arc<SharedRoster>,
    pub store: Arc<Store>,
    /// Requests details from an agent.
    pub client: Client,
    /// For those with a token.
    pub bundles: Bundles,
    pub captures: CaptureDownloads,
    /// The policies of the nodes.
    pub policies: Arc<dyn PolicyViews>,
}

/// What is shown of NodePolicies.
pub(crate) trait PolicyViews: std::fmt::Debug + Send + Sync {
    /// All, without their nodes.
    fn all(&self) -> PoliciesView;

    /// One with its nodes.
    fn one(&self, name: &str) -> Option<PolicyView>;
}

impl FleetView {
    /// Of a replica that is not the leader yet.
    pub(crate) fn new(name: String) -> Self {
        Self { name, leader: Mutex::default(), fleet: OnceLock::new(), whole: tokio::sync::Mutex::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn set_leader(&self, leader: Option<&str>) {
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = leader.map(str::to_owned);
    }

    /// This replica is the leader, until the process ends.
    pub(crate) fn lead(&self, fleet: LeaderView) {
        let _ = self.fleet.set(fleet);
    }

    fn not_leader(&self) -> Answer {
        let other = self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let other = other.unwrap_or_else(|| "not known yet".to_owned());
        Answer::text(503, &format!("not the leader; the leader is {other}\n"))
    }

    async fn whole(&self, leader: &LeaderView) -> Answer {
        let _one = self.whole.lock().await;
        let answer = Answer::json(200, &self.fleet(leader));
        malloc::trim();
        answer
    }

    fn fleet(&self, LeaderView { roster, store, .. }: &LeaderView) -> Fleet {
        let (nodes, now) = (store.nodes(), Instant::now());
        let roster = roster.lock();
        let mut nodes: Vec<FleetNode> = nodes.iter().map(|node| shown(&roster, node, now)).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Fleet {
            controller: env!("CARGO_PKG_VERSION").to_owned(),
            leader: self.name.clone(),
            leader_seconds: now.saturating_duration_since(roster.began()).as_secs(),
            nodes,
        }
    }

    async fn node(&self, leader: &LeaderView, name: &str) -> Answer {
        let found = leader.store.nodes().named(name).cloned();
        let Some(node) = found else { return Answer::text(404, &format!("there is no Node {name:?}\n")) };
        let (node, peer) = {
            let roster = leader.roster.lock();
            (shown(&roster, &node, Instant::now()), roster.peer(name))
        };
        let answer = match peer {
            Ok(peer) => details(&leader.client, peer).await.map_err(|error| chain(&error)),
            Err(error) => Err(error.to_string()),
        };
        let (details, error) = match answer {
            Ok(details) => (Some(details), None),
            Err(error) => (None, Some(error)),
        };
        Answer::json(200, &NodeDetails { node, details, error })
    }
}

impl Handler for FleetView {
    async fn answer(&self, path: &str, _: Caller) -> Answer {
        let Some(leader) = self.fleet.get() else {
            return self.not_leader();
        };
        if let Some(name) = path.strip_prefix(POLICIES_PATH) {
            return match name.strip_prefix('/') {
                None if name.is_empty() => Answer::json(200, &leader.policies.all()),
                Some(name) => match leader.policies.one(name) {
                    Some(policy) => Answer::json(200, &policy),
                    None => Answer::text(404, &format!("there is no NodePolicy {name:?}\n")),
                },
                None => Answer::text(404, "not found\n"),
            };
        }
        match path.strip_prefix("/fleet") {
            Some("") => self.whole(leader).await,
            Some(name) if name.len() > 1 => self.node(leader, name.trim_start_matches('/')).await,
            _ => Answer::text(404, "not found\n"),
        }
    }

    async fn stream(&self, request: &StreamRequest<'_>) -> Option<Result<Chunks, Answer>> {
        if ![VIEW_BUNDLE_PATH, VIEW_CAPTURE_PATH].contains(&request.path) {
            return None;
        }
        Some(match self.fleet.get() {
            Some(leader) if request.path == VIEW_BUNDLE_PATH => leader.bundles.open(request).await,
            Some(leader) => leader.captures.open(request).await,
            None => Err(self.not_leader()),
        })
    }
}

fn shown(roster: &Roster, node: &NodeView, now: Instant) -> FleetNode {
    FleetNode { instance: node.instance.as_ref().map(ToString::to_string), ..roster.node(&node.name, now) }
}
