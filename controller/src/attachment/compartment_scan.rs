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
use crate::cluster::store::Believed;

pub use failed_lists::FailedLists;
pub use listings::Listings;
pub use orphaned_vnics::{ConsecutiveScans, OrphanedVnics};

/// So many VNICs of each subnet are kept by it.
const FEW: usize = 5;

/// The attachments that are there or on their way, by compartment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompartmentScan(BTreeMap<Ocid, Arc<Compartment>>);

/// Those of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Compartment {
    instances: HashSet<Ocid>,
    vnics: HashSet<Ocid>,
    /// The first few of each subnet, by their OCIDs; of those whose subnet is not told, too.
    of_subnets: BTreeMap<Option<Ocid>, BTreeSet<Ocid>>,
    /// Those that are attached and named for an object, of whatever cluster.
    named: BTreeMap<Ocid, Named>,
}

/// An attachment that is named for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    uid: Uid,
    instance: Ocid,
    vnic: Ocid,
}

/// Lists the compartments. Of one that cannot be listed, what was known `before` stays: nothing of it is missing.
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
    /// Whether something of this is listed: of the instance, for the object, or the VNIC.
    pub(super) fn shows(&self, instance: &Ocid, uid: &str, vnic: Option<&Ocid>) -> bool {
        self.has(instance)
            || self.named().any(|(_, named)| named.uid == uid)
            || vnic.is_some_and(|vnic| self.has_vnic(vnic))
    }

    /// Whether this VNIC is listed.
    pub(super) fn has_vnic(&self, vnic: &Ocid) -> bool {
        self.0.values().any(|compartment| compartment.vnics.contains(vnic))
    }

    /// Some VNICs that are listed, always the same: a few of this subnet, then one of each other subnet (all of a subnet are in
    /// its compartment) in the list of this compartment, then in others.
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
        // Of those whose subnet is not told, each may be in another.
        let others =
            others.flat_map(|(subnet, vnics)| vnics.iter().take(if subnet.is_some() { 1 } else { vnics.len() }));
        let mut some: Vec<Ocid> = same.take(most.div_ceil(2)).cloned().collect();
        some.extend(others.cloned());
        some.truncate(most);
        some
    }

    /// The instances of VNICs that are believed in and not listed. An instance of which nothing is listed may be in a
    /// compartment that is not known: it counts only if something of it was listed `before`.
    #[must_use]
    pub fn missing(&self, believed: impl IntoIterator<Item = Believed>, before: &Self) -> BTreeSet<Ocid> {
        let missing =
            |(instance, vnic): &Believed| !self.has_vnic(vnic) && (self.has(instance) || before.has(instance));
        believed.into_iter().filter(missing).map(|(instance, _)| instance).collect()
    }

    fn has(&self, instance: &Ocid) -> bool {
        self.0.values().any(|compartment| compartment.instances.contains(instance))
    }

    fn named(&self) -> impl Iterator<Item = (&Ocid, &Named)> {
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
                let named = Named { uid, instance: attachment.instance_id.clone(), vnic: vnic.clone() };
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
    fn what_is_not_listed_any_more_is_missing_and_unknown_compartments_prove_nothing() {
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
