//! Writes conditions of Nodes as judged: at most five Nodes per second. Each Node is written at most once in 15 s,
//! because the watch may deliver an older state after a write. A write names the version that was judged, so that none is
//! repeated by mistake.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::Received;
use backoff::Backoff;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use kube::core::ApiResource;
use kube::{Api, Client};
use resident::logging::chain;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cluster::request::{params, send};
use crate::cluster::store::{NodeObject, NodeView, Store};
use crate::fleet::condition::patch;
use crate::fleet::findings::{Known, findings};
use crate::fleet::judge::{ConditionWrite, Judgement, NodeFacts, UnknownHold, judge};
use crate::fleet::roster::TrackedNode;
use crate::fleet::shared::SharedRoster;
use crate::report::metrics::Metrics;

/// Between two checks for news, and between two judgements without news.
const NEWS_INTERVAL: Duration = Duration::from_secs(1);
const JUDGEMENT_INTERVAL: Duration = Duration::from_secs(5);
const WRITE_INTERVAL: Duration = Duration::from_millis(200);
/// Writes of one judgement: then the facts are read again.
const BATCH: usize = 25;
const RETRY: Backoff = Backoff { first: JUDGEMENT_INTERVAL, cap: Duration::from_mins(2) };
/// Between two writes of one Node.
const NODE_WRITE_INTERVAL: Duration = Duration::from_secs(15);

pub(crate) struct ConditionWriter {
    api: Api<Received<NodeObject>>,
    roster: Arc<SharedRoster>,
    store: Arc<Store>,
    /// Since when the ServiceAccount of the agents is missing.
    no_account: watch::Receiver<Option<Timestamp>>,
    metrics: Arc<Metrics>,
    chance: fn() -> f64,
    attempted: HashMap<String, Instant>,
    hold: UnknownHold,
    is_holding: bool,
}

impl ConditionWriter {
    /// Uses a client that retries what the API server has no time for.
    pub(crate) fn new(
        client: Client,
        roster: Arc<SharedRoster>,
        store: Arc<Store>,
        no_account: watch::Receiver<Option<Timestamp>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            api: Api::all_with(client, &ApiResource::erase::<Node>(&())),
            roster,
            store,
            no_account,
            metrics,
            chance: backoff::chance,
            attempted: HashMap::new(),
            hold: UnknownHold::default(),
            is_holding: false,
        }
    }

    /// Judges and writes; never returns. All Nodes and agents must be known.
    pub(crate) async fn run(mut self) {
        let (mut failures, mut judged) = (0, Instant::now());
        loop {
            sleep(if failures == 0 { NEWS_INTERVAL } else { RETRY.delay(failures, (self.chance)()) }).await;
            if !self.roster.lock().take_news() && judged.elapsed() < JUDGEMENT_INTERVAL {
                continue;
            }
            match self.round().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    if failures == 0 {
                        let error = chain(error.as_ref());
                        tracing::warn!(event = "condition.unwritten", error, "retried with backoff");
                    }
                    failures += 1;
                }
            }
            judged = Instant::now();
        }
    }

    /// Judges and writes until nothing is left to write.
    async fn round(&mut self) -> anyhow::Result<()> {
        loop {
            let Judgement { mut writes, held } = self.judge();
            self.report(held);
            self.attempted.retain(|_, at| at.elapsed() < NODE_WRITE_INTERVAL);
            writes.retain(|write| !self.attempted.contains_key(&write.node));
            if writes.is_empty() {
                return Ok(());
            }
            for write in writes.iter().take(BATCH) {
                self.write(write).await.inspect_err(|_| self.metrics.wrote("condition", false))?;
                sleep(WRITE_INTERVAL).await;
            }
        }
    }

    fn judge(&mut self) -> Judgement {
        let (nodes, attachments, now) = (self.store.nodes(), self.store.attachments(), Instant::now());
        let (issues, no_account, wall) = (self.store.issues(), *self.no_account.borrow(), Timestamp::now());
        let mut roster = self.roster.lock();
        let tracked = nodes.iter().map(|node| TrackedNode {
            name: &node.name,
            report: node.report.clone(),
            findings: findings(node, Known { attachments: &attachments, issues: &issues, no_account }, wall),
        });
        roster.track(tracked, now);
        drop((attachments, issues));
        let facts = nodes.iter().map(|node| NodeFacts {
            name: &node.name,
            version: node.version.as_deref(),
            conditions: &node.conditions,
            agent: roster.facts(&node.name, now),
            is_in_sample: roster.is_in_sample(&node.name, now),
        });
        let mut judgement = judge(facts, wall);
        self.hold.apply(&mut judgement, now, roster.bound());
        judgement
    }

    fn report(&mut self, held: Option<usize>) {
        self.metrics.fleet.holds.set(i64::from(held.is_some()));
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
        let ConditionWrite { node, version, conditions } = write;
        // A Node that cannot be written must not delay the others.
        self.attempted.insert(node.clone(), Instant::now());
        let patch = Patch::Strategic(patch(version.as_deref(), conditions, Timestamp::now()));
        match send(self.api.patch_status(node, &params(), &patch)).await {
            Ok(object) => {
                self.metrics.wrote("condition", true);
                self.store.nodes_mut().set_conditions(NodeView::received(object));
                for new in conditions {
                    let (kind, status) = (new.condition.area.condition(), new.condition.status.as_str());
                    tracing::info!(event = "condition.written", node, kind, status, reason = new.condition.reason);
                }
                Ok(())
            }
            // Gone, or changed since it was judged: the watch will deliver that.
            Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("write conditions of Node {node}")),
        }
    }
}
