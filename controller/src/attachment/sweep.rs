//! Lists of whole compartments: a thousand attachments in a call. They tell which VNICs are missing, hence which instances
//! are worth a look; what is done about it, the look decides. And they tell which VNICs may be ours and nobody's (`strays`).

mod rounds;
mod strays;
mod trouble;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use oci::{AttachmentState, CloudView, Error, VnicAttachment as Listed};
use vcn::Ocid;

use super::mark::{Mark, Uid};
pub use strays::Strays;
pub use trouble::Trouble;

/// What is believed of an object: its instance and its VNIC.
pub type Believed = (Ocid, Ocid);

/// The attachments that are there or on their way, by compartment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept(BTreeMap<Ocid, Arc<Compartment>>);

/// Those of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Compartment {
    instances: HashSet<Ocid>,
    vnics: HashSet<Ocid>,
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
pub async fn sweep<C: CloudView>(
    cloud: &C,
    compartments: &BTreeSet<Ocid>,
    before: &Swept,
    trouble: &mut Trouble,
) -> Swept {
    let mut swept = Swept::default();
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

/// Lists the compartments, all of them.
///
/// # Errors
/// When one is not listed: then nothing is known of what is nowhere.
pub(super) async fn whole<C: CloudView>(cloud: &C, compartments: &BTreeSet<Ocid>) -> Result<Swept, Error> {
    let mut swept = Swept::default();
    for compartment in compartments {
        let listed = cloud.vnic_attachments(compartment, None).await?;
        swept.0.insert(compartment.clone(), Arc::new(Compartment::of(listed)));
    }
    Ok(swept)
}

impl Swept {
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

    /// The first VNICs that are listed, by their OCIDs; those in the list of this compartment before others.
    pub(super) fn first_vnics(&self, compartment: &Ocid, most: usize) -> Vec<Ocid> {
        let sorted = |vnics: BTreeSet<&Ocid>| vnics.into_iter().take(most).cloned().collect::<Vec<Ocid>>();
        let mut first = sorted(self.0.get(compartment).into_iter().flat_map(|own| &own.vnics).collect());
        let others = self.0.iter().filter(|(id, _)| *id != compartment);
        first.append(&mut sorted(others.flat_map(|(_, other)| &other.vnics).collect()));
        first.truncate(most);
        first
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
            all.vnics.extend(attachment.vnic_id);
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
        let swept =
            |all| Swept([("ocid1.compartment.oc1..one".parse().unwrap(), Arc::new(Compartment::of(all)))].into());
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
