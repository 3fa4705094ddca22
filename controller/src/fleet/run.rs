//! The leader's tasks for the fleet.

use std::path::PathBuf;
use std::sync::Arc;

use channel::{Client as ChannelClient, Identity};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::fleet::account;
use crate::fleet::agents::follow_agents;
use crate::fleet::bundle::{BundleSources, Bundles};
use crate::fleet::capture::CaptureDownloads;
use crate::fleet::keys::KeyEntry;
use crate::fleet::rules_file::follow as follow_rules;
use crate::fleet::shared::SharedRoster;
use crate::fleet::sweep::Sweeper;
use crate::fleet::view::{FleetView, LeaderView, PolicyViews};
use crate::fleet::writer::ConditionWriter;
use crate::leader_context::LeaderContext;

/// What a replica has before it is the leader.
#[derive(Clone)]
pub(crate) struct FleetMember {
    pub identity: Identity,
    /// Its entry in the ConfigMap.
    pub entry: KeyEntry,
    pub view: Arc<FleetView>,
    /// The namespace of the agents.
    pub namespace: String,
    /// The file of rules for all agents.
    pub rules: PathBuf,
    /// The settings that are set, as JSON.
    pub configuration: String,
}

/// Polls, judges, writes and shows; never returns. `nodes` becomes true when all Nodes are known.
pub(crate) async fn run(
    member: FleetMember,
    context: LeaderContext,
    roster: Arc<SharedRoster>,
    mut nodes: watch::Receiver<bool>,
    policies: Arc<dyn PolicyViews>,
) {
    let LeaderContext { client, store, metrics, .. } = context;
    let FleetMember { identity, entry, view, namespace, rules, configuration } = member;
    let channel = ChannelClient::new(identity);
    let sources = BundleSources {
        name: view.name().to_owned(),
        configuration,
        roster: roster.clone(),
        store: store.clone(),
        metrics: metrics.clone(),
        channel: channel.clone(),
    };
    let bundles = Bundles::new(client.clone(), &namespace, sources);
    let captures = CaptureDownloads::new(client.clone(), channel.clone(), roster.clone());
    let (roster_shown, client_shown) = (roster.clone(), channel.clone());
    view.lead(LeaderView {
        roster: roster_shown,
        store: store.clone(),
        client: client_shown,
        bundles,
        captures,
        policies,
    });
    let (read, mut agents) = watch::channel(false);
    let follow = follow_agents(client.clone(), &namespace, store.watches(), read, |peers| {
        let mut all = roster.lock();
        peers.into_iter().for_each(|(node, peer)| all.set_peer(&node, peer, Instant::now()));
        drop(all);
        roster.changed().notify_one();
    });
    let sweeper =
        Sweeper { client: channel, roster: roster.clone(), metrics: metrics.clone(), chance: backoff::chance };
    let (account_in, no_account) = watch::channel(None);
    let follow_account = account::follow(client.clone(), &namespace, account_in);
    let writer = ConditionWriter::new(client, roster.clone(), store.clone(), no_account, metrics.clone());
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
    let rules = follow_rules(&rules, roster.clone(), &metrics.fleet.rules_invalid);
    tokio::join!(follow, follow_account, rules, sweeper.run(), judging, entry.keep());
}
