//! Asks the sources for as long as the agent lives and publishes what is known. A source that does not answer delays
//! nobody: whoever needs the world takes it as it is.

#[cfg(test)]
mod tests;

use std::cell::{Cell, LazyCell};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use imds::{Metadata, VnicList};
use installer::METADATA_KEY;
use ipam::BootId;
use resident::logging::chain;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, sleep_until};
use vcn::Ocid;

use crate::decide::desired::npn_vnic;
use crate::lifecycle::reload::{self, Configuration};
use crate::reconcile::host::Host;
use crate::report::metrics::Metrics;
use crate::settings::Settings;
use crate::sources::backoff::{UNSETTLED, chance, jittered};
use crate::sources::facts::{Lacking, Unkept, World, lacks_primary};
use crate::sources::npn::{Answer, NPN_AWAITED, NativePodNetworks};
use crate::sources::oke_cni;
use crate::sources::vnic_cache::{Last, VnicsSeen};

/// The instance itself hardly changes: its shape and its custom metadata are asked for this rarely, once known: at the
/// first look after it, so that an age of three times as much says that something is wrong.
const INSTANCE_AGE: Duration = Duration::from_secs(300);

/// How often it hurries, some five minutes long; on a Flannel node there is nothing to hurry for.
const HURRY: u32 = 30;

/// How often it asks soon again after a link came or went: a hot-plugged VNIC and its addresses are published some seconds
/// before or after its link appears, by services that do not know of each other.
const EAGER: u32 = 6;

/// The least time between two questions of which the later one is for a link's events: a link that flaps, or many at once,
/// must not use up what the metadata service allows this instance, from which others have their credentials.
const APART: Duration = Duration::from_secs(2);

/// How long the sources may be silent before something is published without them, so that the first pass does not report what
/// is known a moment later. What an agent before this one knew is published by then.
const WORLD_AWAITED: Duration = Duration::from_secs(2);

/// How long the first world waits for whether OKE's own CNI is in the cluster.
const OKE_CNI_AWAITED: Duration = Duration::from_secs(1);

/// The same where no agent is known to have worked before: until the question has ended, however that was. Nothing there is
/// ours yet, and OKE's pod takes most of a minute to leave anything on a new node by which it would be found.
const FIRST_ON_A_NODE: Duration = oke_cni::ANSWER.saturating_add(Duration::from_secs(1));

/// After what time of silence an agent that starts goes by what the one before it knew.
const SILENCE: Duration = Duration::from_millis(300);

/// What is left of that patience when the world is published that the one before knew, however silent all are.
const AT_LEAST_LEFT: Duration = Duration::from_millis(200);

/// What is told of nothing but OKE's own CNI is told so much later: answers of sources that waited for the same come before it.
const BEHIND_ANSWERS: Duration = Duration::from_millis(200);

/// By when something is published, however silent all are, and how long the first pass waits for it.
pub(crate) const PUBLISHED: Duration = FIRST_ON_A_NODE.saturating_add(WORLD_AWAITED);

const _: () = {
    let known = SILENCE.saturating_add(NPN_AWAITED).saturating_add(AT_LEAST_LEFT);
    assert!(known.as_millis() <= WORLD_AWAITED.as_millis(), "what is known from before would be late");
    let oke_cni = OKE_CNI_AWAITED.saturating_add(AT_LEAST_LEFT);
    assert!(oke_cni.as_millis() <= WORLD_AWAITED.as_millis(), "what is known from before would be late");
    assert!(BEHIND_ANSWERS.as_millis() < WORLD_AWAITED.as_millis(), "the first pass would not wait for it");
};

/// Where news goes, and where they come from besides the sources.
#[derive(Debug)]
pub struct Outlets {
    /// Where the world is published.
    pub worlds: watch::Sender<World>,
    /// Told when links come, go or change.
    pub plugged: Arc<Notify>,
    /// Told when the NativePodNetwork or its file changed.
    pub published: Arc<Notify>,
    /// Whether OKE's own CNI is in the cluster.
    pub oke_cni: watch::Receiver<oke_cni::Found>,
}

/// Asks, publishes, waits; for ever. Ends when nobody listens any more.
pub async fn run<M: Metadata, N: NativePodNetworks>(
    metadata: M,
    npns: N,
    mut configurations: watch::Receiver<Configuration>,
    metrics: Arc<Metrics>,
    outlets: Outlets,
) {
    let Outlets { worlds, plugged, published, mut oke_cni } = outlets;
    let mut seen = VnicsSeen::new(&configurations.borrow().settings.data_dir);
    let mut world = remembered(&mut seen);
    let mut eager = 0u32;
    let mut unsettled = 0u32;
    // At the start, whose the pod network is shall not be decided without it.
    let mut patience = if world.is_recalled() { OKE_CNI_AWAITED } else { FIRST_ON_A_NODE };
    while !worlds.is_closed() {
        let settings = configurations.borrow_and_update().settings.clone();
        let found = oke_cni.clone();
        let known = tokio::time::timeout(patience, oke_cni.wait_for(Option::is_some));
        let asked = tokio::time::Instant::now();
        let first = (!patience.is_zero()).then(|| world.clone());
        let answers = async {
            let asked = ask(&mut world, &metadata, &npns, &settings, &metrics);
            // What is in there is let go at once: whoever holds it keeps others from writing it.
            tokio::join!(asked, async { drop(known.await) })
        };
        tokio::select! {
            _ = answers => {}
            never = meanwhile(first, &npns, found, &worlds) => match never {},
        }
        patience = Duration::ZERO;
        // As it is by now: the sources may have taken far longer than its answer was waited for.
        world.oke_daemonset = oke_cni.borrow_and_update().unwrap_or(world.oke_daemonset);
        unsettled = if world.is_settled() { 0 } else { unsettled.saturating_add(1) };
        world.unkept = Unkept { npn: npns.keep().await.err(), vnics: remember(&mut seen, &world).err() };
        worlds.send_replace(world.clone());
        let pause = match unsettled {
            0 => jittered(settings.resync, chance()),
            attempt if attempt <= HURRY => UNSETTLED.pause(attempt, chance()).min(settings.resync),
            _ => jittered(settings.resync, chance()),
        };
        let pause = match eager {
            0 => pause,
            left => pause.min(UNSETTLED.pause(EAGER - left, chance())),
        };
        let heard = Cell::new(false);
        let link = async {
            plugged.notified().await;
            heard.set(true);
            sleep_until(asked + APART).await;
        };
        tokio::select! {
            () = sleep(pause) => eager = eager.saturating_sub(1),
            () = link => {}
            () = published.notified() => {}
            () = reload::changed(&mut configurations) => {}
        }
        // Whatever came first: what is asked now is asked for the link, too.
        if heard.get() {
            eager = EAGER - 1;
        }
    }
}

/// Publishes what an agent before this one knew: silence may last half a minute before it is an error, and things may be
/// broken that were repaired within a second all the time. Whether OKE's own CNI is in the cluster was not kept, so it is
/// waited for here, too, and published whenever it is learnt. Where nothing was known, that alone is waited for, and told.
async fn meanwhile<N: NativePodNetworks>(
    first: Option<World>,
    npns: &N,
    mut oke_cni: watch::Receiver<oke_cni::Found>,
    worlds: &watch::Sender<World>,
) -> Infallible {
    let Some(mut world) = first else { return std::future::pending().await };
    if world.is_recalled() {
        let silence = async {
            sleep(SILENCE).await;
            ask_npn(&mut world, npns).await;
        };
        // Together: the first pass does not wait for both.
        let known = tokio::time::timeout(OKE_CNI_AWAITED, oke_cni.wait_for(Option::is_some));
        tokio::join!(silence, async { drop(known.await) });
    } else {
        let known = tokio::time::timeout(FIRST_ON_A_NODE, oke_cni.wait_for(Option::is_some));
        tokio::join!(sleep(WORLD_AWAITED), async { drop(known.await) });
        sleep(BEHIND_ANSWERS).await;
    }
    loop {
        world.oke_daemonset = oke_cni.borrow_and_update().unwrap_or(world.oke_daemonset);
        worlds.send_replace(world.clone());
        if oke_cni.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// The world as an agent before this one left it. Where that is of another machine, perhaps, little of it counts: which
/// VNICs there were, should they be here.
pub(crate) fn remembered(seen: &mut VnicsSeen) -> World {
    let last = seen.read().unwrap_or_else(|error| {
        tracing::warn!(event = "vnics_seen.failed", path = %seen.path().display(), error = %chain(&error));
        Last::default()
    });
    let is_ours = BootId::current().is_ok_and(|boot| last.is_of(&boot, &Host::macs().unwrap_or_default()));
    let age = last.age(SystemTime::now());
    match last {
        Last { vnics, instance, primary: Some(primary), .. } if is_ours => {
            World::recalling(instance, std::iter::once(primary).chain(vnics).collect(), age, Instant::now())
        }
        Last { vnics, .. } => World::remembering(vnics),
    }
}

fn remember(seen: &mut VnicsSeen, world: &World) -> Result<(), String> {
    // Until the first list, what is on disk is all that is known.
    let known = world.vnics().split_first().filter(|_| !world.is_recalled());
    let Some((primary, secondary)) = known else { return Ok(()) };
    let now = Instant::now();
    let age = [world.instance.age(now), world.vnics.age(now)].into_iter().flatten().max().unwrap_or_default();
    let asked = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(age);
    let mut instance = world.instance.value.clone();
    if let Some(instance) = &mut instance {
        // Among the rest are keys and scripts, which are nobody's who reads our files.
        instance.metadata.retain(|key, _| key == METADATA_KEY);
    }
    let last = Last {
        vnics: secondary.to_vec(),
        primary: Some(primary.clone()),
        instance,
        boot_id: BootId::current().ok(),
        asked_unix_millis: u64::try_from(asked.as_millis()).unwrap_or(u64::MAX),
    };
    seen.note(last).map_err(|error| format!("writing {}: {}", seen.path().display(), chain(&error)))
}

/// A list without the primary VNIC is no answer: every instance has one. The first list decides for good which it is.
fn whole(list: VnicList, world: &World) -> Result<VnicList, String> {
    let listed = &list.vnics;
    let count = listed.len() + list.unusable.len();
    let short =
        |which: String| Err(format!("the metadata service lists {count} VNIC(s), but not {which}; asked again"));
    match world.primary() {
        Some(primary) if !listed.iter().any(|vnic| vnic.id == *primary) => {
            short(format!("the primary one ({primary})"))
        }
        Some(_) => Ok(list),
        None if listed.is_empty() => short("the primary one".into()),
        None => match Host::way_out() {
            Ok(Some((way_out, links))) if lacks_primary(listed, way_out, &links) => {
                short(format!("the one of this host's default route ({way_out})"))
            }
            // The kernel's troubles are the reconciler's to report.
            _ => Ok(list),
        },
    }
}

/// Asks each source once.
pub async fn ask<M: Metadata, N: NativePodNetworks>(
    world: &mut World,
    metadata: &M,
    npns: &N,
    settings: &Settings,
    metrics: &Metrics,
) {
    let old = world.instance.age(Instant::now()).is_none_or(|age| age >= INSTANCE_AGE);
    let due = old || world.instance.error.is_some();
    let instance = async {
        match due {
            true => Some(metadata.instance().await),
            false => None,
        }
    };
    // Together: each may take its whole deadline.
    let (instance, vnics) = tokio::join!(instance, metadata.vnics());
    if let Some(answer) = instance {
        metrics.metadata_answered("instance", answer.is_ok());
        world.instance.absorb(answer.map_err(|error| chain(&error)), Instant::now());
    }
    metrics.metadata_answered("vnics", vnics.is_ok());
    ask_npn(world, npns).await;
    // Last, for the NativePodNetwork may name a VNIC that is not listed.
    let vnics = vnics.map_err(|error| chain(&error)).and_then(|listed| whole(listed, world));
    let macs = LazyCell::new(Host::macs);
    let npn = world.npn.value.clone().flatten();
    // With a virtual machine's VNIC its device goes. On bare metal nothing goes by itself; there two must agree. What cannot
    // be told is no reason to take a VNIC down.
    let named = |id: &Ocid| npn_vnic(npn.as_ref(), id);
    let is_held = |lacking: Lacking<'_>| match lacking {
        Lacking::Vnic(vnic) if vnic.nic_index.is_none() => macs.as_ref().map_or(true, |macs| macs.contains(&vnic.mac)),
        Lacking::Vnic(vnic) => named(&vnic.id).is_some(),
        Lacking::Family(id, family) => {
            named(id).and_then(|vnic| vnic.addressing.of(family)).is_some_and(|offered| !offered.pods.is_empty())
        }
    };
    world.absorb_vnics(vnics, settings.detach_grace, Instant::now(), is_held);
}

/// Asks for the NativePodNetwork, which is found by the instance.
async fn ask_npn<N: NativePodNetworks>(world: &mut World, npns: &N) {
    let Some(instance) = &world.instance.value else { return };
    match npns.mine(&instance.id).await {
        Ok(Answer { npn, age, trouble }) => world.npn.absorb_aged(npn, age, trouble, Instant::now()),
        Err(error) => world.npn.absorb(Err(chain(&error)), Instant::now()),
    }
}
