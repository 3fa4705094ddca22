//! Writes conditions of Nodes as judged: at most five Nodes per second, and each Node at most once until the watch
//! delivered the write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::FIELD_MANAGER;
use backoff::Backoff;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use resident::logging::chain;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::store::{NodeObject, NodeView, Store};
use crate::fleet::condition::patch;
use crate::fleet::judge::{ConditionWrite, Judgement, NodeFacts, judge};
use crate::fleet::shared::SharedRoster;
use crate::report::metrics::Metrics;

/// Between two judgements.
const ROUND: Duration = Duration::from_secs(5);
/// Between two writes.
const PACE: Duration = Duration::from_millis(200);
/// Writes of one judgement: then the facts are read again.
const BATCH: usize = 25;
/// The deadline of a write.
const DEADLINE: Duration = Duration::from_secs(20);
/// After failures.
const RETRY: Backoff = Backoff { first: ROUND, cap: Duration::from_mins(2) };
/// The watch may deliver a change from before a write after its answer.
const SETTLING: Duration = Duration::from_secs(15);

/// What it needs.
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct ConditionWriter {
    api: Api<NodeObject>,
    roster: Arc<SharedRoster>,
    store: Arc<Store>,
    metrics: Arc<Metrics>,
    chance: fn() -> f64,
    written: HashMap<String, Instant>,
    is_holding: bool,
}

impl ConditionWriter {
    /// Uses a client that retries what the API server has no time for.
    #[must_use]
    pub fn new(client: Client, roster: Arc<SharedRoster>, store: Arc<Store>, metrics: Arc<Metrics>) -> Self {
        Self {
            api: Api::all_with(client, &ApiResource::erase::<Node>(&())),
            roster,
            store,
            metrics,
            chance: backoff::chance,
            written: HashMap::new(),
            is_holding: false,
        }
    }

    /// Judges and writes; never returns. All Nodes and agents must be known.
    pub async fn run(mut self) {
        let mut failures = 0;
        loop {
            sleep(if failures == 0 { ROUND } else { RETRY.delay(failures, (self.chance)()) }).await;
            match self.round().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(
                            event = "condition.unwritten",
                            error = chain(error.as_ref()),
                            "retried with backoff"
                        );
                    }
                    failures += 1;
                }
            }
        }
    }

    async fn round(&mut self) -> anyhow::Result<()> {
        let Judgement { writes, held } = self.judge();
        self.report(held);
        self.written.retain(|_, at| at.elapsed() < SETTLING);
        let writes: Vec<_> = writes.into_iter().filter(|write| !self.written.contains_key(&write.node)).collect();
        for write in writes.into_iter().take(BATCH) {
            let result = self.write(&write).await;
            self.metrics.wrote("condition", result.is_ok());
            result?;
            sleep(PACE).await;
        }
        Ok(())
    }

    fn judge(&self) -> Judgement {
        let (nodes, now) = (self.store.nodes(), Instant::now());
        let mut roster = self.roster.lock();
        roster.track(nodes.iter().map(|node| node.name.as_str()), now);
        let facts = nodes.iter().map(|node| NodeFacts {
            name: &node.name,
            conditions: &node.conditions,
            agent: roster.facts(&node.name, now),
        });
        judge(facts, Timestamp::now())
    }

    fn report(&mut self, held: Option<usize>) {
        self.metrics.fleet().holds(held.is_some());
        if let Some(nodes) = held
            && !self.is_holding
        {
            tracing::error!(
                event = "fleet.unreachable",
                nodes,
                "so many agents do not answer at once that no condition is set to Unknown: \
                 check the network between the controller and the nodes"
            );
        }
        if self.is_holding && held.is_none() {
            tracing::info!(event = "fleet.reachable");
        }
        self.is_holding = held.is_some();
    }

    async fn write(&mut self, write: &ConditionWrite) -> anyhow::Result<()> {
        let ConditionWrite { node, conditions } = write;
        let patch = Patch::Strategic(patch(conditions, Timestamp::now()));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let answer = timeout(DEADLINE, self.api.patch_status(node, &params, &patch)).await;
        let operation = || format!("write conditions of Node {node}");
        match answer.with_context(|| format!("{}: no answer within {DEADLINE:?}", operation()))? {
            Ok(object) => {
                self.store.nodes_mut().set_conditions(node, NodeView::of(object).conditions);
                self.written.insert(node.clone(), Instant::now());
                for new in conditions {
                    let (kind, status) = (new.condition.area.condition(), new.condition.status.as_str());
                    tracing::info!(event = "condition.written", node, kind, status, reason = new.condition.reason);
                }
                Ok(())
            }
            // The watch will deliver that.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).with_context(operation),
        }
    }
}
