//! How the metadata service's list of VNICs changes what is known of them. A list may be incomplete, for a moment or for long,
//! and removing a VNIC cuts off its pods; its order changes from answer to answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use imds::{IncompleteVnic, VnicList};
use vcn::{Family, Instance, Ocid, SubnetAddressing, Vnic};

use super::NodeFacts;
use super::absences::{AbsenceGrace, Absences};
use crate::facts::refused;

/// What a list of VNICs lacks of what was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedItem<'a> {
    /// A VNIC of the metadata's list.
    Vnic(&'a Vnic),
    /// A family of a VNIC that is listed.
    Family(&'a Ocid, Family),
}

impl NodeFacts {
    /// Takes in the metadata service's list of VNICs, in its order, and what is kept although it is not listed:
    ///
    /// - the primary VNIC, always and first: with a list that lacks it, the operating system's own VNIC would be taken for a
    ///   secondary one;
    /// - another VNIC, or a family of a VNIC, for the `grace` period and then for as long as it `is_held`;
    /// - an IPv6 address of a VNIC that has others, for the `grace` period;
    /// - a VNIC whose entry cannot be used, as it was known before. While the primary VNIC is unknown and has such an entry,
    ///   nothing is taken in.
    pub fn absorb_vnics(
        &mut self,
        answer: Result<VnicList, String>,
        grace: Duration,
        now: Instant,
        is_held: impl Fn(ExpectedItem<'_>) -> bool,
    ) {
        let grace = AbsenceGrace { now, period: grace };
        let answer = answer.map(|list| self.merge(list, grace, is_held));
        self.vnics.absorb(answer, now);
    }

    fn merge(&mut self, list: VnicList, grace: AbsenceGrace, is_held: impl Fn(ExpectedItem<'_>) -> bool) -> Vec<Vnic> {
        let VnicList { vnics: mut listed, unusable, incomplete } = list;
        (self.unusable, self.incomplete) = (unusable, incomplete);
        if self.primary.is_none() && self.unusable.iter().any(|entry| entry.place == 0) {
            // Another one must not be taken for the primary one.
            return Vec::new();
        }
        self.incomplete.extend(listed.iter_mut().filter_map(|vnic| without_port(vnic, self.instance.value.as_ref()?)));
        let primary = self.primary.clone().or_else(|| listed.first().map(|vnic| vnic.id.clone()));
        // A family without any other address is then one that the entry lacks: what was known of it may stay.
        self.refused = refused::vnics(&mut listed, primary.as_ref());
        let mut before = self.vnics.value.take().unwrap_or_default();
        if std::mem::take(&mut self.is_recalled) {
            // What an earlier agent knew counts only where it is held.
            keep_order(&mut listed, before.iter());
            before.clear();
        } else {
            self.keep_addresses(&mut listed, &before, grace);
            keep_order(&mut listed, before.iter().chain(&self.remembered));
        }
        self.keep_families(&mut listed, &before, grace, &is_held);
        let is_listed = |vnic: &Vnic| listed.iter().any(|new| new.id == vnic.id);
        // The facts of an earlier agent may be old.
        self.remembered.retain(|old| !listed.iter().chain(&before).any(|new| has_all_of(new, old)));
        let is_here = |old: &Vnic| !is_listed(old) && is_held(ExpectedItem::Vnic(old));
        let (here, gone) = std::mem::take(&mut self.remembered).into_iter().partition(is_here);
        self.remembered = gone;
        before.extend::<Vec<Vnic>>(here);
        let missing = before.into_iter().filter(|old| !is_listed(old)).collect();
        listed.extend(self.keep_vnics(missing, primary.as_ref(), grace, &is_held));
        self.primary = primary.or_else(|| listed.first().map(|vnic| vnic.id.clone()));
        // Stable: the others stay in order.
        listed.sort_by_key(|vnic| self.primary.as_ref() != Some(&vnic.id));
        listed
    }

    /// Those of the missing VNICs that are kept.
    fn keep_vnics(
        &mut self,
        mut missing: Vec<Vnic>,
        primary: Option<&Ocid>,
        grace: AbsenceGrace,
        is_held: &impl Fn(ExpectedItem<'_>) -> bool,
    ) -> Vec<Vnic> {
        let before = std::mem::take(&mut self.missing);
        let mut absences = Absences::default();
        missing.retain(|vnic| {
            let is_held = || primary == Some(&vnic.id) || is_held(ExpectedItem::Vnic(vnic));
            let is_first = || primary == Some(&vnic.id) && self.unusable.iter().any(|entry| entry.place == 0);
            self.is_unusable(vnic.id.as_str()) || is_first() || absences.keep(&before, vnic.id.clone(), grace, is_held)
        });
        self.missing = absences;
        missing
    }

    /// Adds to listed VNICs the families that their entries lack and that this agent, or the one before it, knew.
    fn keep_families(
        &mut self,
        listed: &mut [Vnic],
        before: &[Vnic],
        grace: AbsenceGrace,
        is_held: &impl Fn(ExpectedItem<'_>) -> bool,
    ) {
        let mut absences = Absences::default();
        for vnic in listed {
            for family in
                Family::ALL.into_iter().filter(|family| vnic.addressing.of(*family).is_none()).collect::<Vec<_>>()
            {
                let of = |vnics: &[Vnic]| vnics.iter().find(|old| old.id == vnic.id)?.addressing.of(family).cloned();
                let is_held = || is_held(ExpectedItem::Family(&vnic.id, family));
                let known = of(before).or_else(|| of(&self.remembered).filter(|_| is_held()));
                let key = (vnic.id.clone(), family);
                if let Some(known) = known
                    && absences.keep(&self.lacked_families, key, grace, is_held)
                {
                    *vnic.addressing.slot(family) = Some(known);
                }
            }
        }
        self.lacked_families = absences;
    }

    /// Adds to listed VNICs the IPv6 addresses that they had before in the same subnet: if the host's own were believed to be
    /// gone, another would replace it for good.
    fn keep_addresses(&mut self, listed: &mut [Vnic], before: &[Vnic], grace: AbsenceGrace) {
        let mut absences = Absences::default();
        for vnic in listed {
            let Some(at) = &mut vnic.addressing.ipv6 else { continue };
            let old = before.iter().find(|old| old.id == vnic.id).and_then(|old| old.addressing.ipv6.as_ref());
            let Some(old) = old.filter(|old| is_same_subnet(old, at)) else { continue };
            let listed = all(at);
            for address in old.listed().filter(|address| !listed.contains(address)) {
                if absences.keep(&self.lacked_addresses, (vnic.id.clone(), address), grace, || false) {
                    at.others.push(address);
                }
            }
        }
        self.lacked_addresses = absences;
    }
}

/// Puts IPv6 addresses in the order in which they were known, if they are the same. Otherwise each answer would be news, and
/// the cached copy would be written each time.
fn keep_order<'a>(listed: &mut [Vnic], known: impl Iterator<Item = &'a Vnic> + Clone) {
    for vnic in listed {
        let Some(at) = &mut vnic.addressing.ipv6 else { continue };
        let mut known = known.clone().filter(|old| old.id == vnic.id).filter_map(|old| old.addressing.ipv6.as_ref());
        if let Some(old) = known.find(|old| is_same_subnet(old, at) && all(old) == all(at)) {
            *at = old.clone();
        }
    }
}

/// Ignores the port of a virtual machine's VNIC: other agents and hypervisors add one, and bare metal is recognized by it.
fn without_port(vnic: &mut Vnic, instance: &Instance) -> Option<IncompleteVnic> {
    let index = vnic.nic_index.filter(|_| instance.shape.starts_with("VM."))?;
    (vnic.nic_index, vnic.vlan_tag) = (None, None);
    let shape = &instance.shape;
    let reason = format!("nicIndex {index} is ignored, because {shape} is the shape of a virtual machine");
    Some(IncompleteVnic { id: vnic.id.clone(), reason })
}

fn is_same_subnet(old: &SubnetAddressing, new: &SubnetAddressing) -> bool {
    (old.subnet, old.router) == (new.subnet, new.router)
}

fn all(at: &SubnetAddressing) -> BTreeSet<IpAddr> {
    at.listed().collect()
}

/// Whether it is the same VNIC with all families of before, or more.
fn has_all_of(new: &Vnic, old: &Vnic) -> bool {
    new.id == old.id && old.addressing.iter().all(|(family, _)| new.addressing.of(family).is_some())
}
