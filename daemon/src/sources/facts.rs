//! What the outside says about this instance, as far as it is known: the last good answer stays when a source fails, and
//! its age is reported. Pure: answers and the time are handed in.

mod addresses;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use api::NativePodNetwork;
use api::npn::{NpnState, NpnVnic};
use imds::{Unusable, VnicList};
use installer::{Seen, Signals};
use vcn::{Family, Instance, MacAddr, Ocid, Vnic};

use crate::decide::refused::{self, Refused};

/// Everything known from outside.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// This instance.
    pub instance: Known<Instance>,
    /// Its VNICs, the primary one first.
    pub vnics: Known<Vec<Vnic>>,
    /// Its NativePodNetwork; the inner `None` is the answer "there is none".
    pub npn: Known<Option<NativePodNetwork>>,
    /// The DaemonSet of OKE's own CNI.
    pub oke_daemonset: Seen,
    /// Entries of the last list of VNICs that cannot be used.
    pub unusable: Vec<Unusable>,
    /// Addresses of the last list of VNICs that are taken out of it.
    pub refused: Vec<Refused>,
    /// What an agent that starts next could not go by.
    pub unkept: Unkept,
    /// VNICs that are kept although the last answer lacks them, and since when it does.
    missing: BTreeMap<Ocid, Instant>,
    /// Those of them that are kept beyond the grace.
    held: BTreeSet<Ocid>,
    /// Families of listed VNICs that are kept although their entries in the last answer lack them, and since when they do.
    lacked: BTreeMap<(Ocid, Family), Instant>,
    /// Those of them that are kept beyond the grace.
    held_families: BTreeSet<(Ocid, Family)>,
    /// IPv6 addresses that are kept although their VNICs' entries lack them.
    lacked_addresses: addresses::Lacked,
    /// Secondary VNICs that an agent before this one knew, and that this one has not seen yet.
    remembered: Vec<Vnic>,
    /// The VNICs are as an agent before this one knew them: no list has come yet.
    recalled: bool,
    /// The primary VNIC, pinned when first seen: it stays for as long as the instance exists.
    primary: Option<Ocid>,
}

/// Why the copies on disk are not what is known; `None` where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unkept {
    /// That of the NativePodNetwork.
    pub npn: Option<String>,
    /// That of the instance and its VNICs.
    pub vnics: Option<String>,
}

/// What a list of VNICs lacks of what was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking<'a> {
    /// A VNIC.
    Vnic(&'a Vnic),
    /// A family of a VNIC that is listed.
    Family(&'a Ocid, Family),
}

/// A thing known by asking.
#[derive(Clone, Debug)]
pub struct Known<T> {
    /// The last good answer.
    pub value: Option<T>,
    /// When it came.
    pub answered: Option<Instant>,
    /// Why the last question was not answered; `None` when it was.
    pub error: Option<String>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { value: None, answered: None, error: None }
    }
}

impl<T> Known<T> {
    /// Takes in an answer: a failure leaves the last good one.
    pub fn absorb(&mut self, answer: Result<T, String>, now: Instant) {
        match answer {
            Ok(value) => *self = Self { value: Some(value), answered: Some(now), error: None },
            Err(error) => self.error = Some(error),
        }
    }

    /// Takes in what a source knew for sure some time ago, and why it does not know better.
    pub fn absorb_aged(&mut self, value: T, age: Duration, trouble: Option<String>, now: Instant) {
        *self = Self { value: Some(value), answered: now.checked_sub(age), error: trouble };
    }

    /// Whether no question has ended yet.
    #[must_use]
    pub const fn is_unasked(&self) -> bool {
        self.value.is_none() && self.error.is_none()
    }

    /// How old the last good answer is.
    #[must_use]
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.answered.map(|then| now.saturating_duration_since(then))
    }
}

impl<T: PartialEq> Known<T> {
    fn says_the_same(&self, other: &Self) -> bool {
        self.value == other.value && self.error == other.error
    }
}

/// Whether a list of VNICs lacks the primary one, as far as the host can tell: its default route leaves by a link (of
/// Ethernet address `way_out`) that no VNIC of the list is, although the first of them is here, at another link. On a
/// machine whose links have other addresses than its VNICs (bifurcated ports) the host cannot tell.
#[must_use]
pub fn lacks_primary(listed: &[Vnic], way_out: MacAddr, links: &[MacAddr]) -> bool {
    listed.first().is_some_and(|first| links.contains(&first.mac)) && !listed.iter().any(|vnic| vnic.mac == way_out)
}

impl World {
    /// Nothing yet but the secondary VNICs that an agent before this one knew: where they are `held`, they are known again
    /// although the first lists are short.
    #[must_use]
    pub fn remembering(mut vnics: Vec<Vnic>) -> Self {
        // An older agent kept refused addresses, too.
        refused::vnics(&mut vnics, None);
        Self { remembered: vnics, ..Self::default() }
    }

    /// As an agent before this one knew this machine, that long ago; the primary VNIC first. The first list counts for more:
    /// with it, what this one lacks is as it is with [`Self::remembering`].
    #[must_use]
    pub fn recalling(instance: Option<Instance>, mut vnics: Vec<Vnic>, age: Duration, now: Instant) -> Self {
        const SILENT: &str = "the metadata service has not answered yet";
        let primary = vnics.first().map(|vnic| vnic.id.clone());
        let refused = refused::vnics(&mut vnics, primary.as_ref());
        let mut world = Self::remembering(vnics.iter().skip(1).cloned().collect());
        if let Some(instance) = instance {
            world.instance.absorb_aged(instance, age, Some(SILENT.to_owned()), now);
        }
        (world.primary, world.refused) = (primary, refused);
        world.vnics.absorb_aged(vnics, age, Some(SILENT.to_owned()), now);
        world.recalled = true;
        world
    }

    /// Whether no list of VNICs has come yet, and those of before count.
    #[must_use]
    pub const fn is_recalled(&self) -> bool {
        self.recalled
    }

    /// Takes in the metadata service's list of VNICs. One that is no longer listed is kept for `grace`, because a list
    /// may be short for a moment and taking a VNIC down takes its pods' network down; and after it for as long as it is
    /// `held`, for a list may be short for long, too. Its order is the service's; those kept come last. The primary VNIC is
    /// kept for ever, and first: were a list without it believed, the operating system's own VNIC would be taken for one of
    /// ours. One whose entry cannot be used is listed: what was known of it stays. A family that the entry of a VNIC lacks is
    /// kept as a VNIC that the list lacks. An IPv6 address that it lacks beside others is kept for the
    /// grace, and those that it has in another order than before are no news.
    pub fn absorb_vnics(
        &mut self,
        answer: Result<VnicList, String>,
        grace: Duration,
        now: Instant,
        is_held: impl Fn(Lacking<'_>) -> bool,
    ) {
        let answer = answer.map(|VnicList { vnics: mut listed, unusable }| {
            self.unusable = unusable;
            let primary = self.primary.clone().or_else(|| listed.first().map(|vnic| vnic.id.clone()));
            // A family without any other address is then one that the entry lacks: what was known of it may stay.
            self.refused = refused::vnics(&mut listed, primary.as_ref());
            let before = self.vnics.value.take().unwrap_or_default();
            if !self.recalled {
                self.lacked_addresses.keep(&mut listed, &before, grace, now);
            }
            addresses::keep_order(&mut listed, before.iter().chain(&self.remembered));
            let mut before = if std::mem::take(&mut self.recalled) { Vec::new() } else { before };
            self.keep_families(&mut listed, &before, (grace, now), &is_held);
            // What was remembered may be of another year.
            let remembered = std::mem::take(&mut self.remembered).into_iter();
            let remembered = remembered.filter(|old| !listed.iter().chain(&before).any(|new| has_all_of(new, old)));
            let is_here = |old: &Vnic| !listed.iter().any(|new| new.id == old.id) && is_held(Lacking::Vnic(old));
            let (here, gone) = remembered.partition::<Vec<_>, _>(is_here);
            self.remembered = gone;
            before.extend(here);
            let (mut missing, mut held) = (BTreeMap::new(), BTreeSet::new());
            for vnic in before.into_iter().filter(|old| !listed.iter().any(|new| new.id == old.id)).collect::<Vec<_>>()
            {
                if self.is_unusable(vnic.id.as_str()) {
                    listed.push(vnic);
                    continue;
                }
                let since = self.missing.get(&vnic.id).copied().unwrap_or(now);
                let in_grace = now.saturating_duration_since(since) < grace;
                if in_grace || self.primary.as_ref() == Some(&vnic.id) || is_held(Lacking::Vnic(&vnic)) {
                    missing.insert(vnic.id.clone(), since);
                    held.extend((!in_grace).then(|| vnic.id.clone()));
                    listed.push(vnic);
                }
            }
            (self.missing, self.held) = (missing, held);
            self.primary = self.primary.take().or_else(|| listed.first().map(|vnic| vnic.id.clone()));
            // Stable: the others stay in order.
            listed.sort_by_key(|vnic| self.primary.as_ref() != Some(&vnic.id));
            listed
        });
        self.vnics.absorb(answer, now);
    }

    /// Gives listed VNICs what their entries lack, by what they were `before` in the eyes of this agent, or one before it.
    fn keep_families(
        &mut self,
        listed: &mut [Vnic],
        before: &[Vnic],
        (grace, now): (Duration, Instant),
        is_held: &impl Fn(Lacking<'_>) -> bool,
    ) {
        let (mut lacked, mut held) = (BTreeMap::new(), BTreeSet::new());
        for vnic in listed {
            let of =
                |vnics: &[Vnic], family| vnics.iter().find(|old| old.id == vnic.id)?.addressing.of(family).cloned();
            for family in Family::ALL {
                if vnic.addressing.of(family).is_some() {
                    continue;
                }
                let seen = of(before, family);
                let which = (vnic.id.clone(), family);
                let since = self.lacked.get(&which).copied().unwrap_or(now);
                let in_grace = now.saturating_duration_since(since) < grace;
                let is_kept = seen.is_some() && in_grace || is_held(Lacking::Family(&vnic.id, family));
                if let Some(known) = seen.or_else(|| of(&self.remembered, family)).filter(|_| is_kept) {
                    *vnic.addressing.slot(family) = Some(known);
                    held.extend((!in_grace).then(|| which.clone()));
                    lacked.insert(which, since);
                }
            }
        }
        (self.lacked, self.held_families) = (lacked, held);
    }

    /// Whether the VNIC is listed, by an entry that cannot be used.
    #[must_use]
    pub fn is_unusable(&self, id: &str) -> bool {
        self.unusable.iter().any(|entry| entry.id.as_ref().is_some_and(|listed| listed.as_str() == id))
    }

    /// Whether the VNIC is kept although the last list lacks it.
    #[must_use]
    pub fn is_missing(&self, id: &str) -> bool {
        self.missing.keys().any(|missing| missing.as_str() == id)
    }

    /// The VNICs that have not been listed for longer than the grace, and are kept nevertheless.
    pub fn held(&self) -> impl Iterator<Item = &Ocid> {
        self.held.iter()
    }

    /// The families that entries of VNICs have lacked for longer than the grace, and that are kept nevertheless.
    pub fn held_families(&self) -> impl Iterator<Item = &(Ocid, Family)> {
        self.held_families.iter()
    }

    /// The primary VNIC, once it was listed.
    #[must_use]
    pub const fn primary(&self) -> Option<&Ocid> {
        self.primary.as_ref()
    }

    /// The VNICs known, the primary one first.
    #[must_use]
    pub fn vnics(&self) -> &[Vnic] {
        self.vnics.value.as_deref().unwrap_or_default()
    }

    /// The NativePodNetwork, where there is one.
    #[must_use]
    pub fn npn(&self) -> Option<&NativePodNetwork> {
        self.npn.value.as_ref().and_then(Option::as_ref)
    }

    /// The same without the addresses of the NativePodNetwork that are refused, and all that are.
    #[must_use]
    pub fn admitted(&self) -> (Cow<'_, Self>, Vec<Refused>) {
        let mut refused = self.refused.clone();
        let Some(npn) = self.npn() else { return (Cow::Borrowed(self), refused) };
        let (usable, of_npn) = refused::pod_network(npn, self.vnics());
        if of_npn.is_empty() {
            return (Cow::Borrowed(self), refused);
        }
        refused.extend(of_npn);
        let mut admitted = self.clone();
        admitted.npn.value = Some(Some(usable));
        (Cow::Owned(admitted), refused)
    }

    /// Whether everything is known and nothing is about to change, so that asking again can wait.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let errors = [&self.instance.error, &self.vnics.error, &self.npn.error];
        let listed = |id: &Ocid| self.vnics().iter().any(|vnic| vnic.id == *id);
        errors.iter().all(|error| error.is_none())
            && self.missing.is_empty()
            && self.lacked.is_empty()
            && self.lacked_addresses.is_empty()
            && self.unusable.is_empty()
            && self
                .npn()
                .is_some_and(|npn| npn.state == NpnState::Success && npn.vnics.iter().all(|vnic| listed(&vnic.vnic_id)))
    }

    /// Whether the two differ in nothing but ages.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.instance.says_the_same(&other.instance)
            && self.vnics.says_the_same(&other.vnics)
            && self.npn.says_the_same(&other.npn)
            && self.unusable == other.unusable
            && self.refused == other.refused
            && self.unkept == other.unkept
            && self.oke_daemonset == other.oke_daemonset
            && self.held == other.held
            && self.held_families == other.held_families
    }

    /// What it says about whose the cluster's pod network is, added to what was set.
    #[must_use]
    pub fn signals(&self, set: &Signals) -> Signals {
        let signals = match &self.instance.value {
            Some(instance) => set.clone().with_metadata(&instance.metadata),
            None => set.clone(),
        };
        let native_pod_network = match &self.npn.value {
            None => Seen::Unknown,
            Some(npn) => Seen::from(npn.is_some()),
        };
        // Who knows it otherwise says so.
        let oke_daemonset = match set.oke_daemonset {
            Seen::Unknown => self.oke_daemonset,
            said => said,
        };
        let kept = self.npn().is_some_and(|npn| !npn.vnics.iter().all(NpnVnic::serves_all_pods));
        // As long as no VNIC shows one, OKE may still attach it.
        let application_resources = if kept { Seen::Present } else { signals.application_resources };
        Signals { native_pod_network, oke_daemonset, application_resources, ..signals }
    }
}

/// Whether it is the same VNIC with all families of before, or more.
fn has_all_of(new: &Vnic, old: &Vnic) -> bool {
    new.id == old.id && old.addressing.iter().all(|(family, _)| new.addressing.of(family).is_some())
}
