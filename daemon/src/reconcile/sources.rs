//! Conditions of the sources: what they did not say, and what follows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use datapath::host::HostVnic;
use imds::UnusableVnic;
use vcn::{Family, Ocid, Vnic};

use crate::decide::desired::is_addressed;
use crate::decide::pools;
use crate::facts::condition::{Condition, Reason};
use crate::facts::node_facts::NodeFacts;

/// What is wrong with the sources.
pub(super) fn conditions(facts: &NodeFacts, now: Instant) -> Vec<Condition> {
    let unusable = facts.unusable.iter().map(|entry| unusable(entry, facts));
    let unusable = unusable.chain(incomplete(facts)).chain(without_address(facts));
    unusable.chain(stale_copies(facts)).chain(metadata(facts, now)).chain(attachments(facts)).collect()
}

fn attachments(facts: &NodeFacts) -> Option<Condition> {
    let error = facts.attachments.error.as_ref()?;
    let message =
        format!("the VnicAttachments of this instance cannot be read: {error}; what was known before is used");
    Some(Condition::degraded(Reason::VnicAttachmentsUnreadable, message))
}

fn metadata(facts: &NodeFacts, now: Instant) -> Option<Condition> {
    let age = |age: Option<Duration>| age.map_or_else(|| "none".to_owned(), |age| format!("{} s", age.as_secs()));
    let error = [&facts.instance.error, &facts.vnics.error].into_iter().flatten().next();
    let is_known = facts.instance.value.is_some() && facts.vnics.value.is_some();
    Some(match (error, is_known) {
        (None, true) => return None,
        (Some(error), true) => {
            let ages = format!("instance {}, VNICs {}", age(facts.instance.age(now)), age(facts.vnics.age(now)));
            let message = format!("{error}; the last good answers are used, of this age: {ages}");
            Condition::degraded(Reason::MetadataUnavailable, message)
        }
        (Some(error), false) => Condition::blocking(Reason::MetadataUnavailable, error.as_str()),
        (None, false) => Condition::blocking(Reason::MetadataUnavailable, "it has not answered yet"),
    })
}

/// VNICs that another pod network may own, as long as the NativePodNetwork is not finished.
pub(super) fn undecided(facts: &NodeFacts, vnics: &[HostVnic]) -> Vec<Condition> {
    let Some((reason, pending)) = pools::pending(facts) else { return Vec::new() };
    let condition = |host: &HostVnic| {
        let message = format!(
            "{pending}; until it is finished and does not name this VNIC, the VNIC may be for pods of OKE's own CNI and is not \
             changed"
        );
        Condition::degraded(reason, message).about(&host.vnic.id)
    };
    vnics.iter().map(condition).collect()
}

/// VNICs, and families of VNICs, that are kept although the metadata service no longer lists them. `hosted`: the VNICs of which
/// pods may get addresses.
pub(super) fn unlisted(facts: &NodeFacts, hosted: &[HostVnic], has_ipv6: bool) -> impl Iterator<Item = Condition> {
    let vnics = facts.held().map(|vnic| {
        let message = match pools::unlisted_serves_new_pods(vnic, facts, hosted) {
            None => {
                "the metadata service no longer lists it; it is kept, because its device is still here or the NativePodNetwork \
                 still names it"
            }
            Some(true) => {
                "the metadata service no longer lists it; it is kept, because the NativePodNetwork still names it, and new pods \
                 still get its addresses, because the node has no other VNIC for pods"
            }
            Some(false) => {
                "the metadata service no longer lists it: new pods get no address of it, because the node has another VNIC for \
                 pods. The network of running pods stays, because the NativePodNetwork still names the VNIC"
            }
        };
        Condition::degraded(Reason::VnicNotListed, message).about(vnic)
    });
    // Its incomplete entry is reported, too, and says what is missing.
    let is_incomplete = |vnic: &Ocid| facts.incomplete.iter().any(|part| part.id == *vnic);
    let families = facts
        .held_families()
        .filter(move |(vnic, family)| (*family == Family::Ipv4 || has_ipv6) && !is_incomplete(vnic));
    vnics.chain(families.map(|(vnic, family)| {
        let message = format!(
            "the metadata service lists it without {family} addresses; the agent uses the last known ones, because the \
             NativePodNetwork has {family} addresses of it for pods"
        );
        Condition::degraded(Reason::VnicFamilyNotListed, message).about(vnic)
    }))
}

fn stale_copies(facts: &NodeFacts) -> impl Iterator<Item = Condition> {
    facts.copy_errors.iter().map(|(copy, error)| {
        let message = format!(
            "{error}; the cached copy is out of date, and an agent that starts while its source does not answer uses it; the agent retries"
        );
        Condition::degraded(Reason::StateFailed, message).about(copy)
    })
}

/// One for each VNIC.
fn incomplete(facts: &NodeFacts) -> impl Iterator<Item = Condition> {
    let mut by_vnic: BTreeMap<&Ocid, Vec<&str>> = BTreeMap::new();
    for part in &facts.incomplete {
        by_vnic.entry(&part.id).or_default().push(&part.reason);
    }
    by_vnic.into_iter().map(|(id, reasons)| {
        let is_used = facts.vnics().iter().any(|vnic| vnic.id == *id && is_addressed(vnic, facts.npn()));
        let effect = if is_used { "the rest of it is used" } else { "it is not configured" };
        let reasons = reasons.join("; ");
        let message = format!("part of the metadata service's entry of it cannot be used: {reasons}; {effect}");
        Condition::degraded(Reason::VnicUnreadable, message).about(id)
    })
}

/// VNICs without any address, unless the incomplete entry says why.
fn without_address(facts: &NodeFacts) -> impl Iterator<Item = Condition> {
    let is_incomplete = |vnic: &Vnic| facts.incomplete.iter().any(|part| part.id == vnic.id);
    let secondary = facts.vnics().iter().skip(1);
    secondary.filter(move |vnic| !is_addressed(vnic, facts.npn()) && !is_incomplete(vnic)).map(|vnic| {
        let message = "the metadata service lists no address of it, as of a VNIC in an OCI VLAN; it is not configured";
        Condition::degraded(Reason::VnicUnreadable, message).about(&vnic.id)
    })
}

fn unusable(entry: &UnusableVnic, facts: &NodeFacts) -> Condition {
    let is_known = entry.id.as_ref().is_some_and(|id| facts.vnics().iter().any(|vnic| vnic.id == *id));
    let effect = if is_known { "the agent uses what was known of it before" } else { "it is not configured" };
    let message = format!("the metadata service's entry of it cannot be used: {}; {effect}", entry.reason);
    let condition = match entry.place {
        // Without the primary VNIC nothing is configured.
        0 if facts.primary().is_none() => Condition::blocking(Reason::VnicUnreadable, message),
        _ => Condition::degraded(Reason::VnicUnreadable, message),
    };
    match &entry.id {
        Some(id) => condition.about(id),
        None => condition.about(format!("entry {}", entry.place)),
    }
}
