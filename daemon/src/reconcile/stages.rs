//! The stages of a pass that need nothing of the reconciler's own.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use api::npn::NpnVnic;
use datapath::host::{self, HostNetwork, HostVnic};
use datapath::{Change, LinkKind, Object, Step};
use imds::Unusable;
use installer::SettingChange;
use ipam::{BootId, Pools, Store};
use resident::logging::chain;
use vcn::{Family, IfName, Ocid, Vnic};

use super::Findings;
use super::installation::Whose;
use crate::decide::desired::npn_vnic;
use crate::decide::pools;
use crate::decide::slots::Referred;
use crate::decide::usage::{Usage, size};
use crate::reconcile::host::{Batch, Host, Own, Part, Tried};
use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::{Cause, Changed, LeftAlone, VnicState};
use crate::settings::Settings;
use crate::sources::node_facts::{CopyErrors, NodeFacts};

/// What the sources do not say.
pub(super) fn sources(world: &NodeFacts, now: Instant, findings: &mut Findings) {
    findings.conditions.extend(world.unusable.iter().map(|entry| unusable(entry, world)));
    findings.conditions.extend(stale_copies(&world.copy_errors));
    let age = |age: Option<Duration>| age.map_or_else(|| "none".to_owned(), |age| format!("{} s", age.as_secs()));
    let ages = format!("instance {}, VNICs {}", age(world.instance.age(now)), age(world.vnics.age(now)));
    let metadata = [&world.instance.error, &world.vnics.error].into_iter().flatten().next();
    let known = world.instance.value.is_some() && world.vnics.value.is_some();
    let condition = match (metadata, known) {
        (Some(error), true) => {
            let message = format!("{error}; the last good answers are used, of this age: {ages}");
            Condition::degraded(Reason::MetadataUnavailable, message)
        }
        (Some(error), false) => Condition::blocking(Reason::MetadataUnavailable, error.as_str()),
        (None, false) => Condition::blocking(Reason::MetadataUnavailable, "it has not answered yet"),
        (None, true) => return,
    };
    findings.conditions.push(condition);
}

/// VNICs, and families of VNICs that the kernel speaks, that are kept although they are not listed.
pub(super) fn unlisted(world: &NodeFacts, silent: &[Ocid], ipv6: bool, findings: &mut Findings) {
    let message = |vnic: &Ocid| match silent.contains(vnic) {
        false => {
            "the metadata service no longer lists it; it is kept, for its device is still here, or the NativePodNetwork \
             still names it"
        }
        true => {
            "the metadata service no longer lists it, and its subnet's router does not answer on its link: no new pod gets \
             its addresses. What is set up for pods that run stays, for the NativePodNetwork still names it"
        }
    };
    let held = world.held().map(|vnic| Condition::degraded(Reason::VnicNotListed, message(vnic)).about(vnic));
    findings.conditions.extend(held);
    let spoken = world.held_families().filter(|(_, family)| *family == Family::Ipv4 || ipv6);
    findings.conditions.extend(spoken.map(|(vnic, family)| {
        let message = format!(
            "the metadata service lists it without {family} addresses; what was known of them is used, for the \
             NativePodNetwork has {family} addresses of it for pods"
        );
        Condition::degraded(Reason::VnicFamilyNotListed, message).about(vnic)
    }));
}

/// VNICs that wait for somebody to say whose they are.
pub(super) fn undecided(world: &NodeFacts, vnics: &[HostVnic], findings: &mut Findings) {
    let Some((reason, pending)) = pools::pending(world) else { return };
    findings.conditions.extend(vnics.iter().map(|host| {
        let message = format!(
            "{pending}; until it is finished and does not name this VNIC, that may be for pods of OKE's own CNI, and is left as \
             it is found"
        );
        Condition::degraded(reason, message).about(&host.vnic.id)
    }));
}

/// Whether pods may live by what we made in this boot, on a node that is another network's: there are some, or addresses
/// for some are published.
pub(super) fn lived(settings: &Settings, boot: &BootId) -> bool {
    let published = match Pools::read(&settings.state_dir, boot) {
        Ok(pools) => Usage::offers_any(&pools),
        Err(error) => !matches!(error, ipam::Error::NoPools { .. }),
    };
    published || !installer::pods(&settings.installer).is_empty()
}

fn stale_copies(errors: &CopyErrors) -> impl Iterator<Item = Condition> {
    let copies = [
        ("native-pod-network copy", &errors.npn, "the API server"),
        ("instance and VNICs copy", &errors.machine, "the metadata service"),
    ];
    copies.into_iter().filter_map(|(copy, why, source)| {
        let why = why.as_ref()?;
        let message = format!(
            "{why}; as long as that is so, an agent that starts while {source} does not answer goes by older news; it is \
             tried again"
        );
        Some(Condition::degraded(Reason::StateFailed, message).about(copy))
    })
}

fn unusable(entry: &Unusable, world: &NodeFacts) -> Condition {
    let known = entry.id.as_ref().is_some_and(|id| world.vnics().iter().any(|vnic| vnic.id == *id));
    let then = if known { "what was known of it before is used" } else { "nothing is set up for it" };
    let message = format!("the metadata service's entry of it cannot be used: {}; {then}", entry.reason);
    let condition = Condition::degraded(Reason::VnicUnreadable, message);
    match &entry.id {
        Some(id) => condition.about(id),
        None => condition.about(format!("entry {}", entry.place)),
    }
}

/// How the host's network is made as it should be.
pub(super) struct Attempt<'a> {
    /// Why.
    pub(super) cause: Cause,
    /// Whose the pod network is.
    pub(super) whose: Whose,
    /// Whether what is no longer wanted is removed.
    pub(super) clean: bool,
    /// What is not removed either way.
    pub(super) spared: Vec<Object>,
    /// Addresses that somebody has: never the host's.
    pub(super) held: &'a HashSet<IpAddr>,
    /// VNICs of which another condition says why what is of them stays.
    pub(super) undecided: Vec<HostVnic>,
    /// Remembers what settings are before they are changed, for uninstalling to give back.
    pub(super) note: &'a dyn Fn(&[SettingChange]) -> Result<(), installer::Error>,
    /// What failed in the pass before, and after: in this one.
    pub(super) failed: &'a mut Vec<Failed>,
}

/// Steps that failed, and what is said of it.
#[derive(Debug)]
pub(super) struct Failed {
    batch: Batch,
    condition: Condition,
}

/// The host's network as it should be. Answers the VNICs that are in order, or nothing when the host could not be looked
/// at or something that all pods need failed.
///
/// A kernel event does not repeat what failed before: trying and undoing makes events of its own, and they would never
/// end. Every other cause does.
pub(super) fn host(
    host: &Host,
    network: &HostNetwork,
    Attempt { cause, whose, clean, spared, held, undecided, note, failed }: Attempt<'_>,
    findings: &mut Findings,
) -> Option<Vec<HostVnic>> {
    let unreachable = |error: &datapath::Error| Condition::blocking(Reason::HostNetworkFailed, chain(error));
    let mut batches = match host.plan(network, &spared, held) {
        Ok(mut planned) => {
            if !undecided.is_empty() {
                let told = host::desired(&HostNetwork { vnics: undecided, ..network.clone() });
                planned.left.retain(|object| !told.iter().any(|told| told.same_slot(object)));
            }
            findings.conditions.extend(planned.conditions);
            findings.conditions.extend(left_in_place(&planned.left, whose));
            planned.batches
        }
        Err(error) => {
            findings.conditions.push(unreachable(&error));
            return None;
        }
    };
    batches.retain(|batch| clean || batch.part != Part::Stale);
    let before = match cause {
        Cause::Preview => Vec::new(),
        _ => std::mem::take(failed),
    };
    if cause == Cause::Kernel {
        let again: Vec<Failed> = before.into_iter().filter(|known| batches.contains(&known.batch)).collect();
        batches.retain(|batch| !again.iter().any(|known| known.batch == *batch));
        failed.extend(again);
    }
    if cause != Cause::Preview {
        let changes: Vec<SettingChange> = batches.iter().flat_map(|batch| &batch.steps).flat_map(settings).collect();
        if let Err(error) = note(&changes) {
            findings.conditions.push(Condition::degraded(Reason::StateFailed, chain(&error)).about("sysctls.json"));
        }
    }
    let tried = match cause {
        Cause::Preview => batches.into_iter().map(|batch| Tried { batch, result: Ok(()) }).collect(),
        _ if batches.is_empty() => Vec::new(),
        _ => match host.apply(batches) {
            Ok(tried) => tried,
            Err(error) => {
                findings.conditions.push(unreachable(&error));
                return None;
            }
        },
    };
    for Tried { batch, result } in tried {
        match result {
            Ok(()) => {
                findings.changes.extend(batch.steps.iter().map(changed));
            }
            Err(error) => failed.push(Failed { condition: condition(&batch.part, &error), batch }),
        }
    }
    // What a preview would try again is not known to be broken.
    let broken: &[Failed] = if cause == Cause::Preview { &[] } else { failed };
    findings.conditions.extend(broken.iter().map(|failed| failed.condition.clone()));
    let is_broken = |part: &Part| broken.iter().any(|failed| failed.batch.part == *part);
    let fine = |vnic: &&HostVnic| !is_broken(&Part::Vnic(vnic.vnic.id.clone()));
    (!is_broken(&Part::Base)).then(|| network.vnics.iter().filter(fine).cloned().collect())
}

/// What settings are before the step changes them: to be given back one day. Of links, only those that are not ours.
fn settings(step: &Step) -> Vec<SettingChange> {
    match &step.change {
        Change::Replace { from: Object::Sysctl(from), to: Object::Sysctl(to) } => {
            vec![SettingChange { key: to.key.join("/"), before: from.value.clone(), set: to.value.clone() }]
        }
        Change::Replace { from: Object::Link(from), to: Object::Link(to) } if to.kind == LinkKind::Device => {
            let mtu = from.mtu.zip(to.mtu).filter(|(before, set)| before != set);
            let mtu = mtu.map(|(before, set)| SettingChange::mtu(&to.name, before, set));
            mtu.into_iter().chain((to.up && !from.up).then(|| SettingChange::raised(&to.name))).collect()
        }
        _ => Vec::new(),
    }
}

fn left_in_place(left: &[Object], whose: Whose) -> Option<Condition> {
    // On a VLAN's link others may stand, and it stays for them: nobody has to do anything about it.
    let left: Vec<&Object> = left.iter().filter(|object| !object.is_vlan()).collect();
    let first = left.first()?;
    let (why, until) = match whose {
        Whose::Ours | Whose::Others => (
            "the pod network of this node is no longer ours (see podNetwork)",
            "until the node is drained and rebooted",
        ),
        Whose::Unknown => (
            "whose the pod network of this node is, is not known at the moment (see podNetwork)",
            "until it is: nothing has been handed over, and there is no need to drain the node",
        ),
    };
    let message = format!(
        "{why}; {} object(s) made for its pods before, such as {first}, stay for those that still run, {until}",
        left.len()
    );
    Some(Condition::degraded(Reason::LeftInPlace, message))
}

fn condition(part: &Part, error: &datapath::Error) -> Condition {
    let unsupported = matches!(error, datapath::Error::Apply { source, .. } if source.is_unsupported());
    let message = chain(error);
    match part {
        Part::Nft if unsupported => Condition::degraded(
            Reason::KernelLacksNft,
            format!("{message}; pods cannot reach 169.254.169.254 (DNS, time, metadata) from secondary VNICs"),
        ),
        Part::Nft => Condition::degraded(Reason::NftFailed, message),
        Part::Base => Condition::blocking(Reason::HostNetworkFailed, message).about(part),
        Part::Stale | Part::Vnic(_) => Condition::degraded(Reason::HostNetworkFailed, message).about(part),
    }
}

pub(super) fn changed(step: &Step) -> Changed {
    let object = match &step.change {
        Change::Add(object) | Change::Delete(object) | Change::Replace { to: object, .. } => object,
    };
    let noun = match object {
        Object::Link(_) => "link",
        Object::Address(_) => "address",
        Object::Route(_) => "route",
        Object::Rule(_) => "rule",
        Object::Neighbour(_) => "neighbour",
        Object::Sysctl(_) => "sysctl",
        Object::NftTable(_) => "nft",
    };
    Changed::new(noun, step)
}

/// What refers to our tables: routes and rules in the kernel, allocations and pools on disk.
pub(super) fn referred(host: &Host, state_dir: &Path, boot: &BootId, vnics: &[Vnic]) -> Result<Referred, String> {
    let mut referred = host.referred(vnics).map_err(|error| chain(&error))?;
    if let Ok(pools) = Pools::read(state_dir, boot) {
        referred.owners.extend(pools.vnics.into_iter().map(|vnic| (vnic.vnic_id, vnic.table)));
    }
    // Pods' tables must be known: without them a slot could be reused under a pod. The records say it without the index; of
    // what cannot be read, the rule in the kernel does. That must not keep the host from being repaired.
    let recorded = Store::new(state_dir, boot.clone()).recorded().unwrap_or_default();
    for held in recorded.into_iter().flat_map(|allocation| allocation.addresses) {
        referred.tables.insert(held.table);
        referred.owners.insert(held.vnic_id, held.table);
    }
    Ok(referred)
}

/// The host's own addresses until now, with their VNICs' tables, and those that somebody has. An index that cannot be read, is
/// a later version's or is lost says of nobody: then those count that routes lead to pods. Who cannot be asked is told of
/// elsewhere: the plan asks the kernel, too, and what becomes of pods is looked at by their records.
pub(super) fn addresses(host: &Host, state_dir: &Path, boot: &BootId) -> (Vec<Own>, HashSet<IpAddr>) {
    let held = Store::new(state_dir, boot.clone()).held().ok().filter(|held| !held.is_empty());
    let held = held.unwrap_or_else(|| host.pods().unwrap_or_default());
    (host.own().unwrap_or_default(), held)
}

/// The writing of pools.json in words.
pub(super) fn published(state_dir: &Path, pools: &Pools) -> Changed {
    let addresses = pools.vnics.iter().flat_map(|vnic| vnic.families.iter()).map(|(_, pool)| size(pool));
    let addresses = addresses.fold(0, u64::saturating_add);
    let path = state_dir.join("pools.json");
    let mut text = format!("write {}: {} VNIC(s), {addresses} address(es)", path.display(), pools.vnics.len());
    if let Some(reason) = &pools.reason {
        text.push_str("; ");
        text.push_str(reason);
    }
    Changed::new("pools", text)
}

/// What pods lack, on a node whose pod network is ours.
pub(super) fn pods(world: &NodeFacts, offers: bool, usable: bool, conditions: &mut Vec<Condition>) {
    let severity = |reason, message| {
        if offers { Condition::degraded(reason, message) } else { Condition::blocking(reason, message) }
    };
    match pools::pending(world) {
        Some((reason, message)) => conditions.push(severity(reason, message)),
        // What keeps the addresses from being published is said already.
        None if !offers && !conditions.iter().any(Condition::blocks) => {
            let condition = kept_for_resources(world).unwrap_or_else(|| {
                let message = "no VNIC of the NativePodNetwork that is in order has addresses for pods";
                Condition::blocking(Reason::NoUsableAddress, message)
            });
            conditions.push(condition);
        }
        None => {}
    }
    if offers && !usable && !conditions.iter().any(Condition::blocks) {
        let message = "there are addresses, but the host's network is not in order";
        conditions.push(Condition::blocking(Reason::NoUsableAddress, message));
    }
}

/// Why no pod can start although OKE has finished: all VNICs are for pods that request an application resource.
fn kept_for_resources(world: &NodeFacts) -> Option<Condition> {
    let vnics = &world.npn()?.vnics;
    if vnics.iter().any(NpnVnic::serves_all_pods) {
        return None;
    }
    let resources: BTreeSet<&str> =
        vnics.iter().flat_map(|vnic| &vnic.application_resources).map(String::as_str).collect();
    let resources: Vec<&str> = resources.into_iter().collect();
    let message = format!(
        "all {} VNIC(s) of the NativePodNetwork are kept for application resources ({}); no pod gets their addresses",
        vnics.len(),
        resources.join(", ")
    );
    Some(Condition::blocking(Reason::ApplicationResourcesOnly, message))
}

/// The VNICs as they are reported.
pub(super) fn states(
    world: &NodeFacts,
    (wanted, left_alone): (&[HostVnic], &BTreeMap<Ocid, LeftAlone>),
    primary: Option<&IfName>,
    conditions: &[Condition],
) -> Vec<VnicState> {
    let state = |(at, vnic): (usize, &Vnic)| {
        let host = wanted.iter().find(|host| host.vnic.id == vnic.id);
        let of_vnic = |condition: &&Condition| condition.subject.as_deref() == Some(vnic.id.as_str());
        let addressing = host.map_or(&vnic.addressing, |host| &host.vnic.addressing);
        let entry = npn_vnic(world.npn(), &vnic.id);
        VnicState {
            id: vnic.id.clone(),
            mac: vnic.mac,
            primary: at == 0,
            link: if at == 0 { primary.cloned() } else { host.map(|host| host.placement.link().clone()) },
            table: host.map(|host| host.table),
            addresses: addressing.iter().map(|(_, at)| at.address).collect(),
            application_resources: entry.map(|entry| entry.application_resources.clone()).unwrap_or_default(),
            left_alone: left_alone.get(&vnic.id).copied(),
            trouble: conditions.iter().find(of_vnic).map(|condition| condition.reason),
        }
    };
    world.vnics().iter().enumerate().map(state).collect()
}
