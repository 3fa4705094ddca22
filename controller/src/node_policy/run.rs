//! The leader's task for NodePolicies: steps the engine, and carries out what it says.
//!
//! ```text
//!   every few seconds, and on changes: step ─▶ requests to agents (bounded) ─▶ what they answered ─▶ next step
//!                                        └──▶ statuses and finalizers, one after the other
//! ```

mod file_pods;
mod growths;
mod objects;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{NodePolicy, POLICY_FINALIZER, Received};
use channel::Client as ChannelClient;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use kube::{Api, Client, ResourceExt as _};
use resident::logging::chain;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tunables::view::{PoliciesView, PolicyView};
use tunables::{LeaderTerm, NodeAnswer, NodeDocument};

use super::engine::{
    Actions, Engine, FinalizerUpdate, GrowthWorld, POLL, PolicyObjects, SendProblem, StatusUpdate, World,
};
use super::files::{Confirmation, FilePod, FilePods};
use super::node_input::NodeInput;
use super::status_clock::StatusClock;
use super::{agents, events};
use crate::cluster::events::Events;
use crate::cluster::object_writes::{write_finalizer, write_status};
use crate::cluster::stop_switch::StopSwitch;
use crate::cluster::store::{NodeView, Store, WatchedKind, follow};
use crate::fleet::shared::SharedRoster;
use crate::fleet::view::PolicyViews;
use crate::operations::PolicyGrowths;
use crate::report::metrics::Metrics;

/// The least time between two steps, and the most while no policy changes anything.
const PACE: Duration = Duration::from_secs(1);
const ACTIVE_INTERVAL: Duration = Duration::from_secs(3);
const IDLE_INTERVAL: Duration = Duration::from_secs(15);
/// Requests to agents at once.
const AT_ONCE: usize = 64;
/// Between two writes of a status that differs in counts and words only.
const COUNTS_EVERY: Duration = Duration::from_secs(30);
/// The HTTP status of an answer that refuses a write by rights or policies.
const FORBIDDEN: u16 = 403;
/// Policies per page of a list.
const PAGE: u32 = 100;

/// What the task needs.
pub(crate) struct NodePolicies {
    pub client: Client,
    pub channel: ChannelClient,
    pub store: Arc<Store>,
    pub roster: Arc<SharedRoster>,
    pub events: Events,
    pub metrics: Arc<Metrics>,
    pub shared: Arc<SharedEngine>,
    pub file_pods: FilePods,
    pub growths: Growths,
    pub origin: DocumentOrigin,
}

/// The growths of root disks.
pub(crate) struct Growths {
    /// Whether tasks are enabled.
    pub is_enabled: bool,
    pub tasks: Arc<PolicyGrowths>,
}

/// Whose documents they are.
pub(crate) struct DocumentOrigin {
    pub cluster: String,
    pub term: LeaderTerm,
}

/// The engine, which the view shows. The lock is never held across an await.
#[derive(Debug, Default)]
pub(crate) struct SharedEngine(Mutex<Engine>);

/// A request to an agent.
enum AgentRequest {
    Send(String, Box<NodeDocument>),
    Read(String),
    /// Confirms a change of files, if the node is Ready after it.
    Confirm(Confirmation),
}

/// What became of a request.
enum Outcome {
    Sent(String, Result<NodeAnswer, SendProblem>),
    Read(String, Result<NodeAnswer, String>),
    /// The node is not Ready yet, or the agent refused the confirmation.
    Unconfirmed(String),
}

impl AgentRequest {
    fn node(&self) -> &str {
        match self {
            Self::Send(node, _) | Self::Read(node) | Self::Confirm(Confirmation { node, .. }) => node,
        }
    }

    const fn is_document(&self) -> bool {
        matches!(self, Self::Send(..))
    }
}

impl SharedEngine {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        // A step that panicked leaves what the agents answered.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PolicyViews for SharedEngine {
    fn all(&self) -> PoliciesView {
        self.lock().all()
    }

    fn one(&self, name: &str) -> Option<PolicyView> {
        self.lock().one(name)
    }
}

impl NodePolicies {
    /// Works until dropped. `nodes` becomes true when all Nodes are known.
    pub(crate) async fn run(self, mut nodes: watch::Receiver<bool>, stopped: watch::Receiver<StopSwitch>) {
        let objects: Mutex<PolicyObjects> = Mutex::default();
        let (changed, (read, mut is_read)) = (Notify::new(), watch::channel(false));
        let watched = WatchedKind {
            client: self.client.clone(),
            api: Api::<Received<NodePolicy>>::all,
            page: PAGE,
            labels: None,
            what: "NodePolicies",
            watches: self.store.watches(),
        };
        let take = |news| {
            objects.lock().unwrap_or_else(PoisonError::into_inner).take(news);
            changed.notify_one();
        };
        let working = async {
            for known in [&mut nodes, &mut is_read] {
                if known.wait_for(|known| *known).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            self.work(&objects, &changed, stopped).await;
        };
        // Neither of them ends.
        tokio::join!(follow(watched, read, |object| object, take), working);
    }

    async fn work(&self, objects: &Mutex<PolicyObjects>, changed: &Notify, mut stopped: watch::Receiver<StopSwitch>) {
        let mut requests: FuturesUnordered<BoxFuture<'_, Outcome>> = FuturesUnordered::new();
        let mut clock = StatusClock::default();
        loop {
            let policies = objects.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let switch = stopped.borrow_and_update().clone();
            let pods = self.list_pods().await;
            let Actions { send, read, due_summaries, files, grow, statuses, finalizers } =
                self.step(&policies, &switch, pods.as_deref());
            let is_moving = !due_summaries.is_empty() || !requests.is_empty();
            self.poll_changing(&due_summaries);
            let sends = send.into_iter().map(|(node, document)| AgentRequest::Send(node, Box::new(document)));
            let confirmations = files.confirm.iter().cloned().map(AgentRequest::Confirm);
            let reads = read.into_iter().map(AgentRequest::Read);
            let mut queued: VecDeque<AgentRequest> = confirmations.chain(sends).chain(reads).collect();
            self.write_finalizers(&finalizers).await;
            self.write_pods(&files).await;
            self.write_growths(&grow).await;
            let is_urgent = self.write(&statuses, &mut clock).await;
            let earliest = Instant::now() + PACE;
            let mut next =
                Instant::now() + if is_moving || !queued.is_empty() { ACTIVE_INTERVAL } else { IDLE_INTERVAL };
            if is_urgent {
                next = earliest;
            }
            // Until the next step: requests, at most so many at once.
            loop {
                while let Some(request) = take_next(&mut queued, requests.len(), &stopped) {
                    requests.push(self.request(request).boxed());
                }
                // Cancel-safe: a request stays in its set, notification and switch are stored, and the time is absolute.
                tokio::select! {
                    Some(outcome) = requests.next() => self.note(outcome),
                    () = changed.notified() => next = next.min(earliest),
                    Ok(()) = stopped.changed() => break,
                    () = sleep_until(next), if queued.is_empty() => break,
                }
            }
            // The switch stops what was not sent yet.
            let mut engine = self.shared.lock();
            queued.iter().for_each(|request| engine.note_dropped(request.node(), request.is_document()));
        }
    }

    async fn write_finalizers(&self, updates: &[FinalizerUpdate]) {
        for update in updates {
            let written = write_finalizer(&self.client, &*update.object, POLICY_FINALIZER, update.is_removed).await;
            self.metrics.wrote("node_policy_finalizer", written.is_ok());
            if let Err(error) = written {
                let name = update.object.name_any();
                tracing::warn!(event = "node_policy.finalizer", name, error = chain(&error), "retried");
            }
        }
    }

    fn step(&self, policies: &PolicyObjects, switch: &StopSwitch, pods: Option<&[FilePod]>) -> Actions {
        let (nodes, now) = (self.store.nodes(), Instant::now());
        let roster = self.roster.lock();
        let inputs = nodes.iter().map(|view: &Arc<NodeView>| NodeInput {
            view,
            agent: roster.facts(&view.name, now),
            answered: roster.last_answer(&view.name),
        });
        let inputs: Vec<NodeInput<'_>> = inputs.collect();
        let Self { origin: DocumentOrigin { cluster, term }, file_pods: FilePods { grants, .. }, .. } = self;
        let tasks = self.growths.tasks.get();
        let growth = GrowthWorld { is_enabled: self.growths.is_enabled, tasks: tasks.as_ref() };
        let stopped = switch.reason();
        let world = World { policies, nodes: &inputs, stopped, cluster, term, grants, pods, now, growth };
        let mut engine = self.shared.lock();
        let actions = engine.step(&world);
        self.metrics.policies.set(engine.census(), switch.reason().is_some());
        actions
    }

    /// Polls agents whose nodes change sooner.
    fn poll_changing(&self, nodes: &[String]) {
        let (mut roster, now) = (self.roster.lock(), Instant::now());
        let is_any = nodes.iter().filter(|node| roster.poll_within(node, POLL, now)).count() > 0;
        drop(roster);
        if is_any {
            self.roster.changed().notify_one();
        }
    }

    async fn request(&self, request: AgentRequest) -> Outcome {
        let peer = self.roster.lock().peer(request.node());
        match request {
            AgentRequest::Send(node, document) => {
                let result = match peer {
                    Ok(peer) => agents::send(&self.channel, peer, &document).await,
                    Err(error) => Err(SendProblem { is_refused: true, message: error.to_string() }),
                };
                if let Err(problem) = &result {
                    tracing::debug!(event = "node_policy.not_sent", node, error = problem.message, "retried");
                }
                Outcome::Sent(node, result)
            }
            AgentRequest::Read(node) => {
                let result = match peer {
                    Ok(peer) => agents::read(&self.channel, peer).await,
                    Err(error) => Err(error.to_string()),
                };
                Outcome::Read(node, result)
            }
            AgentRequest::Confirm(confirmation) => {
                self.confirm(confirmation, peer.map_err(|error| error.to_string())).await
            }
        }
    }

    fn note(&self, outcome: Outcome) {
        let (mut engine, now) = (self.shared.lock(), Instant::now());
        match outcome {
            Outcome::Sent(node, result) => engine.note_sent(&node, result, now),
            Outcome::Read(node, result) => engine.note_read(&node, result, now),
            Outcome::Unconfirmed(node) => engine.note_unconfirmed(&node),
        }
    }

    /// Writes the statuses that are due. Whether one was written on which the next step depends.
    async fn write(&self, statuses: &[StatusUpdate], clock: &mut StatusClock) -> bool {
        let mut is_any_urgent = false;
        for StatusUpdate { object, status, is_urgent } in statuses {
            let uid = object.uid().unwrap_or_default();
            let since = clock.age(&uid);
            if !is_urgent && since.is_some_and(|since| since < COUNTS_EVERY) {
                continue;
            }
            let version = clock.version(object);
            let written = write_status(&self.client, &**object, status, version.as_deref()).await;
            self.metrics.wrote("node_policy_status", written.is_ok());
            match written {
                Ok(version) => {
                    clock.note(object, version);
                    let stored = object.status.clone().unwrap_or_default();
                    let before = self.shared.lock().note_written(&uid, &stored, status.clone()).unwrap_or(stored);
                    events::event(object, &before, status).map(|event| self.events.report(event));
                    is_any_urgent |= *is_urgent;
                }
                Err(error) if error.is_conflict() => {
                    clock.forget(&uid);
                    self.shared.lock().note_conflict(object);
                }
                Err(error) => {
                    if error.code() == Some(FORBIDDEN) {
                        // Without the own version, a write before the watch delivers that one is a conflict.
                        clock.forget(&uid);
                        self.shared.lock().note_refused(&uid);
                    }
                    let name = object.name_any();
                    tracing::warn!(event = "node_policy.status", name, error = chain(&error), "retried");
                }
            }
        }
        is_any_urgent
    }
}

/// The next request that may be sent, while so many are under way: none after the switch changed, because what is queued was
/// decided before.
fn take_next<T>(queued: &mut VecDeque<T>, in_flight: usize, stopped: &watch::Receiver<StopSwitch>) -> Option<T> {
    let may_send = in_flight < AT_ONCE && !stopped.has_changed().unwrap_or(false);
    may_send.then(|| queued.pop_front()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_switch_holds_back_what_is_queued() {
        let (switch, mut stopped) = watch::channel(StopSwitch::default());
        stopped.borrow_and_update();
        let mut queued: VecDeque<u32> = (0..100).collect();
        assert_eq!(take_next(&mut queued, 0, &stopped), Some(0));
        assert_eq!(take_next(&mut queued, AT_ONCE, &stopped), None, "as many as may be are under way");
        switch.send(StopSwitch::default()).unwrap();
        assert_eq!(take_next(&mut queued, 1, &stopped), None, "the switch changed since the step");
        assert_eq!(queued.len(), 99);
    }
}
