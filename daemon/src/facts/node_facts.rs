//! What the sources say about this node. Pure: answers and the time are parameters.

mod absences;
#[cfg(test)]
mod tests;
mod vnic_list;

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use api::npn::{NpnState, NpnVnic};
use api::{NativePodNetwork, VnicAttachment};
use imds::{IncompleteVnic, UnusableVnic};
use installer::{METADATA_KEY, Presence, Signals};
use vcn::{Family, Instance, Ocid, Vnic};

use crate::facts::refused::{self, RefusedAddress};
use crate::facts::source::Source;

use absences::Absences;
pub use vnic_list::ExpectedItem;

/// Metadata of OKE's instances: the address of the API server, and that of the cluster's DNS Service.
pub(crate) const API_SERVER_KEY: &str = "apiserver_host";
pub(crate) const DNS_SERVICE_KEY: &str = "kubedns_svc_ip";

/// What is known of this instance's NativePodNetwork; the inner `None` is the answer that there is none.
pub(crate) type KnownNpn = Source<Option<NativePodNetwork>>;

/// What is known of this instance's VnicAttachments.
pub(crate) type KnownAttachments = Source<Vec<VnicAttachment>>;

/// Everything known from outside the node.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// The instance, as the metadata describes it.
    pub instance: Source<Instance>,
    /// Its VNICs, the primary one first.
    pub vnics: Source<Vec<Vnic>>,
    /// The NativePodNetwork of this node.
    pub npn: KnownNpn,
    /// Its VnicAttachments; empty while no VNIC needs them.
    pub attachments: KnownAttachments,
    /// The DaemonSet of OKE's own CNI.
    pub oke_daemonset: Presence,
    /// Entries of the last list of VNICs that cannot be used.
    pub unusable: Vec<UnusableVnic>,
    /// What cannot be used of the others.
    pub incomplete: Vec<IncompleteVnic>,
    /// Addresses of the last list of VNICs that were removed from it.
    pub refused: Vec<RefusedAddress>,
    /// Cached copies that are out of date, and why.
    pub copy_errors: Vec<(&'static str, String)>,
    /// VNICs that are kept although the last list lacks them.
    missing: Absences<Ocid>,
    /// Families that are kept although the entries of their VNICs lack them.
    lacked_families: Absences<(Ocid, Family)>,
    /// IPv6 addresses that are kept although the entries of their VNICs lack them.
    lacked_addresses: Absences<(Ocid, IpAddr)>,
    /// Secondary VNICs of the cached copy that no list has had yet.
    remembered: Vec<Vnic>,
    /// The VNICs are those of the cached copy: no list has come yet.
    is_recalled: bool,
    /// The primary VNIC, fixed by the first list: an instance has the same one for its whole life.
    primary: Option<Ocid>,
}

/// What the NativePodNetwork says about a VNIC.
pub(crate) fn npn_vnic<'a>(npn: Option<&'a NativePodNetwork>, id: &Ocid) -> Option<&'a NpnVnic> {
    npn?.vnics.iter().find(|vnic| vnic.vnic_id == *id)
}

impl NodeFacts {
    /// What an earlier agent knew of this machine, of that age; the primary VNIC first. The first list replaces it; a VNIC or
    /// family that this list lacks is then kept only if it is held.
    pub fn recall(instance: Option<Instance>, mut vnics: Vec<Vnic>, age: Duration, now: Instant) -> Self {
        const SILENT: &str = "the metadata service has not answered yet";
        let primary = vnics.first().map(|vnic| vnic.id.clone());
        let refused = refused::vnics(&mut vnics, primary.as_ref());
        let remembered = vnics.iter().skip(1).cloned().collect();
        let mut facts = Self { primary, refused, remembered, is_recalled: true, ..Self::default() };
        if let Some(instance) = instance {
            facts.instance.recall(instance, age, Some(SILENT.to_owned()), now);
        }
        facts.vnics.recall(vnics, age, Some(SILENT.to_owned()), now);
        facts
    }

    /// Whether no list of VNICs has come yet, and those of the cached copy count.
    pub const fn is_recalled(&self) -> bool {
        self.is_recalled
    }

    /// Whether the VNIC is listed, by an entry that cannot be used.
    pub fn is_unusable(&self, id: &str) -> bool {
        self.unusable.iter().any(|entry| entry.id.as_ref().is_some_and(|listed| listed.as_str() == id))
    }

    /// Whether the VNIC is kept although the last list lacks it.
    pub fn is_missing(&self, id: &str) -> bool {
        self.missing.keys().any(|missing| missing.as_str() == id)
    }

    /// The VNICs that are kept although they have not been listed for longer than the grace period.
    pub fn held(&self) -> impl Iterator<Item = &Ocid> {
        self.missing.overdue()
    }

    /// The families that are kept although entries of their VNICs have lacked them for longer than the grace period.
    pub fn held_families(&self) -> impl Iterator<Item = &(Ocid, Family)> {
        self.lacked_families.overdue()
    }

    /// The primary VNIC, once it was listed.
    pub const fn primary(&self) -> Option<&Ocid> {
        self.primary.as_ref()
    }

    /// The VNICs known, the primary one first.
    pub fn vnics(&self) -> &[Vnic] {
        self.vnics.value.as_deref().unwrap_or_default()
    }

    pub(crate) fn npn(&self) -> Option<&NativePodNetwork> {
        self.npn.value.as_ref().and_then(Option::as_ref)
    }

    /// The same without the refused addresses of the NativePodNetwork, and all refused addresses.
    pub fn admitted(&self) -> (Cow<'_, Self>, Vec<RefusedAddress>) {
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

    /// Whether everything is known and nothing is about to change, so that the next question can wait.
    pub fn is_settled(&self) -> bool {
        let errors = [&self.instance.error, &self.vnics.error, &self.npn.error];
        let is_listed = |id: &Ocid| self.vnics().iter().any(|vnic| vnic.id == *id);
        errors.iter().all(|error| error.is_none())
            && self.missing.is_empty()
            && self.lacked_families.is_empty()
            && self.lacked_addresses.is_empty()
            && self.unusable.is_empty()
            && self.npn().is_some_and(|npn| {
                npn.state == NpnState::Success && npn.vnics.iter().all(|vnic| is_listed(&vnic.vnic_id))
            })
    }

    /// Whether the two differ in nothing but ages.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.instance.says_the_same(&other.instance)
            && self.vnics.says_the_same(&other.vnics)
            && self.npn.says_the_same(&other.npn)
            && self.attachments.says_the_same(&other.attachments)
            && self.unusable == other.unusable
            && self.incomplete == other.incomplete
            && self.refused == other.refused
            && self.copy_errors == other.copy_errors
            && self.oke_daemonset == other.oke_daemonset
            && self.held().eq(other.held())
            && self.held_families().eq(other.held_families())
    }

    /// What the facts say about the owner of the cluster's pod network, in addition to what is `set`.
    pub fn signals(&self, set: &Signals) -> Signals {
        let mut signals = set.clone();
        if let Some(instance) = &self.instance.value {
            signals.instance_metadata = instance.metadata.get(METADATA_KEY).cloned();
        }
        let native_pod_network = self.npn.value.as_ref().map_or(Presence::Unknown, |npn| Presence::from(npn.is_some()));
        // As long as no VNIC has one, OKE may still attach it.
        let application_resources = match self.npn() {
            Some(npn) if !npn.vnics.iter().all(NpnVnic::serves_all_pods) => Presence::Present,
            _ => signals.application_resources,
        };
        if set.set.oke_daemonset == Presence::Unknown {
            signals.set.oke_daemonset = self.oke_daemonset;
        }
        Signals { native_pod_network, application_resources, ..signals }
    }
}
