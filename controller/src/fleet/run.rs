//! The leader's tasks for the fleet.

use std::sync::Arc;
use std::time::Duration;

use channel::{Client as ChannelClient, Identity};
use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::store::{Store, Watches};
use crate::fleet::agents::follow_agents;
use crate::fleet::keys::KeyEntry;
use crate::fleet::shared::SharedRoster;
use crate::fleet::sweep::Sweeper;
use crate::fleet::view::{FleetView, LeaderView};
use crate::fleet::writer::ConditionWriter;
use crate::report::metrics::Metrics;
use crate::report::status_server::StatusServer;

/// What a replica has before it is the leader.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct FleetMember {
    /// Its key.
    pub identity: Identity,
    /// Its entry in the ConfigMap.
    pub entry: KeyEntry,
    /// What it shows.
    pub view: Arc<FleetView>,
    /// The namespace of the agents.
    pub namespace: String,
}

/// What the tasks share.
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct FleetTasks {
    member: FleetMember,
    client: Client,
    store: Arc<Store>,
    watches: Arc<Watches>,
    roster: Arc<SharedRoster>,
    metrics: Arc<Metrics>,
}

impl FleetTasks {
    /// Of a leader that begins now, with a client that retries. Each agent is asked once in `interval`.
    pub fn new(
        member: FleetMember,
        client: Client,
        store: Arc<Store>,
        status_server: &StatusServer,
        interval: Duration,
    ) -> Self {
        let (watches, metrics) = (status_server.watches.clone(), status_server.metrics.clone());
        Self { member, client, store, watches, roster: Arc::new(SharedRoster::new(interval)), metrics }
    }

    /// What is known of the agents.
    pub fn roster(&self) -> Arc<SharedRoster> {
        self.roster.clone()
    }
}

/// Asks, judges, writes and shows; never returns. `nodes` becomes true when all Nodes are known.
pub async fn run(tasks: FleetTasks, mut nodes: watch::Receiver<bool>) {
    let FleetTasks { member, client, store, watches, roster, metrics } = tasks;
    let FleetMember { identity, entry, view, namespace } = member;
    let channel = ChannelClient::new(identity);
    view.lead(LeaderView { roster: roster.clone(), store: store.clone(), client: channel.clone() });
    let (read, mut agents) = watch::channel(false);
    let follow = follow_agents(client.clone(), &namespace, &watches, read, |peers| {
        let mut all = roster.lock();
        peers.into_iter().for_each(|(node, peer)| all.set_peer(&node, peer, Instant::now()));
        drop(all);
        roster.changed().notify_one();
    });
    let sweeper =
        Sweeper { client: channel, roster: roster.clone(), metrics: metrics.clone(), chance: backoff::chance };
    let writer = ConditionWriter::new(client, roster.clone(), store, metrics);
    let judging = async {
        // Of an incomplete list, too large a part may seem to fail.
        for known in [&mut nodes, &mut agents] {
            if known.wait_for(|known| *known).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        writer.run().await;
    };
    // None of them ends.
    tokio::join!(follow, sweeper.run(), judging, entry.keep());
}
