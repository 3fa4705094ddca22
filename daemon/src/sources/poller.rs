//! Polls the sources for as long as the agent lives and publishes what is known. A source that does not answer delays no other:
//! the facts are published without it.

mod pace;
#[cfg(test)]
mod tests;

use std::cell::{Cell, LazyCell};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use imds::{Metadata, VnicList};
use resident::logging::chain;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};
use vcn::Ocid;

use crate::decide::requests::needs_attachments;
use crate::facts::node_facts::{ExpectedItem, NodeFacts, npn_vnic};
use crate::lifecycle::agent::Agent;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::sources::attachments::{AttachmentSource, Need};
use crate::sources::host_links;
use crate::sources::machine_copy;
use crate::sources::npn::{FIRST_ANSWER, NpnSource};
use crate::sources::oke_cni;

use pace::Pace;

/// The instance itself hardly changes: once its shape and custom metadata are known, they are polled this rarely.
const INSTANCE_AGE: Duration = Duration::from_mins(5);

/// The least time between a question and a later one that link events cause. A flapping link must not use up the rate limit of
/// the metadata service, from which other programs get their credentials.
const APART: Duration = Duration::from_secs(2);

/// How long the sources may be silent before facts are published without them, so that the first reconcile does not report
/// what is known a moment later. The cached copy is published by then.
const FACTS_AWAITED: Duration = Duration::from_secs(2);

/// How long the first facts wait for whether OKE's own CNI is in the cluster.
const OKE_CNI_AWAITED: Duration = Duration::from_secs(1);

/// The same on a node without a cached copy: until the question has ended. No object of the agent is there yet, and OKE's pod takes
/// most of a minute to leave anything on a new node that would show it.
const FIRST_ON_A_NODE: Duration = oke_cni::ANSWER.saturating_add(Duration::from_secs(1));

/// The silence after which an agent that starts uses the cached copy.
const SILENCE: Duration = Duration::from_millis(300);

/// What is left of [`FACTS_AWAITED`] when the cached copy is published, however silent all sources are.
const AT_LEAST_LEFT: Duration = Duration::from_millis(200);

/// Facts that hold nothing but OKE's own CNI are published so much later: answers that waited for the same come first.
const BEHIND_ANSWERS: Duration = Duration::from_millis(200);

/// By when something is published, however silent all sources are; the first reconcile waits for it.
pub(crate) const PUBLISHED: Duration = FIRST_ON_A_NODE.saturating_add(FACTS_AWAITED);

const _: () = {
    let copy = SILENCE.saturating_add(FIRST_ANSWER).saturating_add(AT_LEAST_LEFT);
    assert!(copy.as_millis() <= FACTS_AWAITED.as_millis(), "the cached copy would be late");
    let oke_cni = OKE_CNI_AWAITED.saturating_add(AT_LEAST_LEFT);
    assert!(oke_cni.as_millis() <= FACTS_AWAITED.as_millis(), "the cached copy would be late");
    assert!(BEHIND_ANSWERS.as_millis() < FACTS_AWAITED.as_millis(), "the first reconcile would not wait for it");
};

/// What the API server, or a file in its place, serves.
#[derive(Debug)]
pub struct ClusterSources {
    pub(crate) npn: NpnSource,
    pub(crate) attachments: AttachmentSource,
}

impl ClusterSources {
    /// For tests of the code, outside a cluster: files in place of the API server.
    pub fn files(settings: &Settings) -> Self {
        let (npn, _) = NpnSource::watched(settings, Arc::default());
        let (attachments, _) = AttachmentSource::watched(settings, Arc::default());
        Self { npn, attachments }
    }
}

/// Polls, publishes, waits; ends when the facts have no reader. `oke_cni` is whether OKE's own CNI is in the cluster.
pub async fn run<M: Metadata>(
    metadata: M,
    mut cluster: ClusterSources,
    agent: &Agent,
    published: watch::Sender<NodeFacts>,
    mut oke_cni: watch::Receiver<oke_cni::DaemonSetAnswer>,
) {
    let Agent { settings, metrics, links_changed, npn_changed, .. } = agent;
    let mut copy = machine_copy::open(settings);
    let mut facts = machine_copy::recall(&copy);
    let mut pace = Pace::default();
    // At the start, the owner of the pod network is not decided without it.
    let mut patience = if facts.is_recalled() { OKE_CNI_AWAITED } else { FIRST_ON_A_NODE };
    while !published.is_closed() {
        let found = oke_cni.clone();
        let known = tokio::time::timeout(patience, oke_cni.wait_for(Option::is_some));
        let requested_at = tokio::time::Instant::now();
        let first = (!patience.is_zero()).then(|| facts.clone());
        let answers = async {
            let requests = poll(&mut facts, &metadata, &cluster, settings, metrics);
            // The guard is dropped at once: it blocks the writer.
            tokio::join!(requests, async { drop(known.await) })
        };
        // Cancel-safe: the answers end in `facts`, and the other branch never ends.
        tokio::select! {
            _ = answers => {}
            never = publish_first(first, &cluster, found, &published) => match never {},
        }
        patience = Duration::ZERO;
        // As it is by now: the sources may have taken far longer than its answer was waited for.
        facts.oke_daemonset = oke_cni.borrow_and_update().unwrap_or(facts.oke_daemonset);
        pace.note(facts.is_settled());
        let stored = [
            ("native-pod-network copy", cluster.npn.store_copy()),
            ("instance and VNICs copy", machine_copy::store(&mut copy, &facts)),
            ("VnicAttachments copy", cluster.attachments.store_copy()),
        ];
        facts.copy_errors = stored.into_iter().filter_map(|(copy, stored)| Some((copy, stored.err()?))).collect();
        published.send_replace(facts.clone());
        let was_link = Cell::new(false);
        let link = async {
            links_changed.notified().await;
            was_link.set(true);
            sleep_until(requested_at + APART).await;
        };
        // Cancel-safe: each branch only wakes; a link's notification is noted in `was_link` before its second wait.
        tokio::select! {
            () = sleep(pace.pause(settings.resync)) => pace.note_timer(),
            () = link => {}
            () = npn_changed.notified() => {}
        }
        // Whatever came first: the next poll is for the link, too.
        if was_link.get() {
            pace.note_link();
        }
    }
}

/// Publishes facts before the sources have answered: one may be silent for a quarter of a minute before that is an error, and
/// until then the agent would repair nothing. With a cached copy that is published soon; without one, what is known of OKE's own
/// CNI, as soon as that is known. OKE's own CNI has no copy, so later answers about it are published as well.
async fn publish_first(
    first: Option<NodeFacts>,
    cluster: &ClusterSources,
    mut oke_cni: watch::Receiver<oke_cni::DaemonSetAnswer>,
    published: &watch::Sender<NodeFacts>,
) -> Infallible {
    let Some(mut facts) = first else { return std::future::pending().await };
    if facts.is_recalled() {
        let silence = async {
            sleep(SILENCE).await;
            refresh_npn(&mut facts, &cluster.npn).await;
            refresh_attachments(&mut facts, &cluster.attachments).await;
        };
        // Together: the first reconcile does not wait for both.
        let known = tokio::time::timeout(OKE_CNI_AWAITED, oke_cni.wait_for(Option::is_some));
        tokio::join!(silence, async { drop(known.await) });
    } else {
        let known = tokio::time::timeout(FIRST_ON_A_NODE, oke_cni.wait_for(Option::is_some));
        tokio::join!(sleep(FACTS_AWAITED), async { drop(known.await) });
        sleep(BEHIND_ANSWERS).await;
    }
    loop {
        facts.oke_daemonset = oke_cni.borrow_and_update().unwrap_or(facts.oke_daemonset);
        published.send_replace(facts.clone());
        if oke_cni.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// A list without the primary VNIC is an error: every instance has one. The first list decides for good which it is.
fn complete(list: VnicList, facts: &NodeFacts) -> Result<VnicList, String> {
    let listed = &list.vnics;
    let count = listed.len() + list.unusable.len();
    let lacks =
        |which: String| Err(format!("the metadata service lists {count} VNIC(s), but not {which}; the agent retries"));
    match facts.primary() {
        // Its entry cannot be used.
        _ if list.unusable.iter().any(|entry| entry.place == 0) => Ok(list),
        Some(primary) if !listed.iter().any(|vnic| vnic.id == *primary) => {
            lacks(format!("the primary one ({primary})"))
        }
        Some(_) => Ok(list),
        None if listed.is_empty() => lacks("the primary one".into()),
        // Errors of the kernel are reported by the reconciler.
        None => match host_links::lacks_primary(listed, &host_links::uplinks().unwrap_or_default()) {
            Some(uplink) => lacks(format!("the one of this host's default route ({}): {}", uplink.mac, uplink.route)),
            None => Ok(list),
        },
    }
}

/// Polls each source once.
pub async fn poll<M: Metadata>(
    facts: &mut NodeFacts,
    metadata: &M,
    cluster: &ClusterSources,
    settings: &Settings,
    metrics: &Metrics,
) {
    let is_old = facts.instance.age(Instant::now()).is_none_or(|age| age >= INSTANCE_AGE);
    let is_due = is_old || facts.instance.error.is_some();
    let instance = async { if is_due { Some(metadata.instance().await) } else { None } };
    // Together: each may take its whole deadline.
    let (instance, vnics) = tokio::join!(instance, metadata.vnics());
    if let Some(answer) = instance {
        metrics.metadata_answered("instance", answer.is_ok());
        facts.instance.absorb(answer.map_err(|error| chain(&error)), Instant::now());
    }
    metrics.metadata_answered("vnics", vnics.is_ok());
    refresh_npn(facts, &cluster.npn).await;
    // Behind it, because the NativePodNetwork may name a VNIC that is not listed.
    let vnics = vnics.map_err(|error| chain(&error)).and_then(|listed| complete(listed, facts));
    let macs = LazyCell::new(host_links::macs);
    let npn = facts.npn().cloned();
    let named = |id: &Ocid| npn_vnic(npn.as_ref(), id);
    // A virtual machine loses the device with the VNIC. On bare metal nothing disappears, so the NativePodNetwork decides. Without an
    // answer, the VNIC stays.
    let is_held = |item: ExpectedItem<'_>| match item {
        ExpectedItem::Vnic(vnic) if vnic.nic_index.is_none() => {
            macs.as_ref().map_or(true, |macs| macs.contains(&vnic.mac))
        }
        ExpectedItem::Vnic(vnic) => named(&vnic.id).is_some(),
        ExpectedItem::Family(id, family) => {
            named(id).and_then(|vnic| vnic.addressing.of(family)).is_some_and(|offered| !offered.pods.is_empty())
        }
    };
    facts.absorb_vnics(vnics, settings.detach_grace, Instant::now(), is_held);
    refresh_attachments(facts, &cluster.attachments).await;
}

/// Reads the VnicAttachments, which are found by the instance, if they matter.
async fn refresh_attachments(facts: &mut NodeFacts, attachments: &AttachmentSource) {
    // A server that is silent to one question is silent to the next one, and the facts are awaited.
    let within = if facts.npn.error.is_none() { FIRST_ANSWER } else { Duration::ZERO };
    let need = if needs_attachments(facts) { Need::Some { within } } else { Need::None };
    if let Some(instance) = &facts.instance.value {
        attachments.refresh(&instance.id, need, &mut facts.attachments).await;
    }
}

/// Reads the NativePodNetwork, which is found by the instance.
async fn refresh_npn(facts: &mut NodeFacts, npn: &NpnSource) {
    if let Some(instance) = &facts.instance.value {
        npn.refresh(&instance.id, &mut facts.npn).await;
    }
}
