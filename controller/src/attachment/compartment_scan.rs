//! Lists of whole compartments: a thousand attachments in a call. The lists show which VNICs are missing; the
//! instances of those are reconciled early. They also show VNICs with our tags and no VnicAttachment (`orphaned_vnics`).

mod failed_lists;
mod listings;
mod orphaned_vnics;
mod rounds;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use oci::{AttachmentState, CloudView, VnicAttachment as Listed};
use vcn::Ocid;

use crate::attachment::mark::{Mark, Uid};
use crate::cluster::store::StatedVnic;

pub use failed_lists::FailedLists;
pub use listings::Listings;
pub use orphaned_vnics::{ConsecutiveScans, OrphanedVnics};

/// How many VNICs of each subnet are kept.
const FEW: usize = 5;

/// The attachments that exist or are in progress, by compartment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompartmentScan(BTreeMap<Ocid, Arc<Compartment>>);

/// Those of one compartment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Compartment {
    instances: HashSet<Ocid>,
    vnics: HashSet<Ocid>,
    /// The first few of each subnet, by their OCIDs; also of those without a subnet in the list.
    of_subnets: BTreeMap<Option<Ocid>, BTreeSet<Ocid>>,
    /// Those that are attached and named for an object of any cluster.
    named: BTreeMap<Ocid, NamedAttachment>,
}

/// An attachment that is named for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedAttachment {
    uid: Uid,
    instance: Ocid,
    vnic: Ocid,
}

/// Lists the compartments. If one cannot be listed, its earlier state (`before`) stays, so nothing of it counts as missing.
pub async fn scan<C: CloudView>(
    cloud: &C,
    compartments: &BTreeSet<Ocid>,
    before: &CompartmentScan,
    trouble: &mut FailedLists,
) -> CompartmentScan {
    let mut swept = CompartmentScan::default();
    for compartment in compartments {
        let listed = cloud.vnic_attachments(compartment, None).await;
        trouble.note(compartment, listed.as_ref().err());
        match listed {
            Ok(listed) => drop(swept.0.insert(compartment.clone(), Arc::new(Compartment::of(listed)))),
            Err(_) => swept.0.extend(before.0.get(compartment).map(|known| (compartment.clone(), known.clone()))),
        }
    }
    swept
}

impl CompartmentScan {
    /// Whether something of this is listed: the instance, the object or the VNIC.
    pub(super) fn shows(&self, instance: &Ocid, uid: &str, vnic: Option<&Ocid>) -> bool {
        self.has(instance)
            || self.named().any(|(_, named)| named.uid == uid)
            || vnic.is_some_and(|vnic| self.has_vnic(vnic))
    }

    /// Whether this VNIC is listed.
    pub(super) fn has_vnic(&self, vnic: &Ocid) -> bool {
        self.0.values().any(|compartment| compartment.vnics.contains(vnic))
    }

    /// Some listed VNICs, always the same: a few of this subnet, then one of each other subnet (all VNICs of a subnet are in
    /// its compartment) in this compartment's list, then in others.
    pub(super) fn some_vnics(&self, subnet: &Ocid, compartment: &Ocid, most: usize) -> Vec<Ocid> {
        let lists = || {
            let own = self.0.get(compartment);
            own.into_iter().chain(self.0.iter().filter(|(id, _)| *id != compartment).map(|(_, other)| other))
        };
        let here = Some(subnet.clone());
        let same = lists().filter_map(|list| list.of_subnets.get(&here)).flatten();
        let mut seen = BTreeSet::new();
        let others = lists().flat_map(|list| &list.of_subnets);
        let others = others.filter(|(subnet, _)| **subnet != here && (subnet.is_none() || seen.insert(*subnet)));
        // Without a subnet in the list, each may be in another one.
        let others =
            others.flat_map(|(subnet, vnics)| vnics.iter().take(if subnet.is_some() { 1 } else { vnics.len() }));
        let mut some: Vec<Ocid> = same.take(most.div_ceil(2)).cloned().collect();
        some.extend(others.cloned());
        some.truncate(most);
        some
    }

    /// The instances of expected VNICs that are not listed. An instance without any listed attachment may be in an unknown
    /// compartment: it counts only if it was listed `before`.
    #[must_use]
    pub fn missing(&self, believed: impl IntoIterator<Item = StatedVnic>, before: &Self) -> BTreeSet<Ocid> {
        let missing =
            |(instance, vnic): &StatedVnic| !self.has_vnic(vnic) && (self.has(instance) || before.has(instance));
        believed.into_iter().filter(missing).map(|(instance, _)| instance).collect()
    }

    fn has(&self, instance: &Ocid) -> bool {
        self.0.values().any(|compartment| compartment.instances.contains(instance))
    }

    fn named(&self) -> impl Iterator<Item = (&Ocid, &NamedAttachment)> {
        self.0.values().flat_map(|compartment| &compartment.named)
    }

    fn is_named(&self, attachment: &Ocid) -> bool {
        self.0.values().any(|compartment| compartment.named.contains_key(attachment))
    }
}

impl Compartment {
    fn of(listed: Vec<Listed>) -> Self {
        let mut all = Self::default();
        for attachment in listed.into_iter().filter(|attachment| attachment.lifecycle_state.counts()) {
            let uid = Mark::named(attachment.display_name.as_deref());
            if let (Some(uid), Some(vnic)) = (uid, &attachment.vnic_id)
                && attachment.lifecycle_state == AttachmentState::Attached
            {
                let named = NamedAttachment { uid, instance: attachment.instance_id.clone(), vnic: vnic.clone() };
                all.named.insert(attachment.id, named);
            }
            all.instances.insert(attachment.instance_id);
            if let Some(vnic) = attachment.vnic_id {
                let few = all.of_subnets.entry(attachment.subnet_id).or_default();
                few.insert(vnic.clone());
                if few.len() > FEW {
                    few.pop_last();
                }
                all.vnics.insert(vnic);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::sample::instance;

    fn vnic(number: u32) -> Ocid {
        format!("ocid1.vnic.oc1.iad.v{number}").parse().unwrap()
    }

    fn listed(on: u32, number: u32, state: AttachmentState) -> Listed {
        Listed {
            id: format!("ocid1.vnicattachment.oc1.iad.a{number}").parse().unwrap(),
            compartment_id: "ocid1.compartment.oc1..one".parse().unwrap(),
            instance_id: instance(on),
            lifecycle_state: state,
            availability_domain: None,
            display_name: None,
            subnet_id: None,
            vnic_id: Some(vnic(number)),
            vlan_tag: None,
            nic_index: None,
            time_created: None,
        }
    }

    #[test]
    fn a_vnic_is_missing_only_if_it_was_listed_before() {
        let swept = |all| {
            CompartmentScan([("ocid1.compartment.oc1..one".parse().unwrap(), Arc::new(Compartment::of(all)))].into())
        };
        let before = swept(vec![listed(3, 30, AttachmentState::Attached)]);
        let now = swept(vec![
            listed(1, 10, AttachmentState::Attached),
            listed(1, 11, AttachmentState::Attached),
            listed(2, 20, AttachmentState::Attached),
            listed(2, 21, AttachmentState::Detached),
        ]);
        let believed = [(1, 11), (2, 21), (3, 31), (4, 41)].map(|(on, number)| (instance(on), vnic(number)));
        assert_eq!(now.missing(believed, &before), BTreeSet::from([instance(2), instance(3)]));
    }
}
