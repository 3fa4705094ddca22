//! Lists of whole compartments: a thousand attachments in a call. The lists show which VNICs are missing; the
//! instances of those are reconciled early. They also show VNICs with our tags and no VnicAttachment (`orphaned_vnics`).

mod orphaned_vnics;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, PoisonError};

use oci::{AttachmentState, VnicAttachment as AddressList};
use resident::logging::chain;
use tokio::time::sleep;
use vcn::Ocid;

use crate::attachment::apply::objects::Objects;
use crate::attachment::mark::{Mark, Uid};
use crate::attachment::worker::AttachmentWorker;
use crate::cluster::store::StatedVnic;
use orphaned_vnics::{ConsecutiveScans, OrphanedVnics};

/// The attachments that exist or are in progress, by compartment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CompartmentScan(BTreeMap<Ocid, Arc<Compartment>>);

/// Those of one compartment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Compartment {
    instances: HashSet<Ocid>,
    vnics: HashSet<Ocid>,
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

impl<O: Objects> AttachmentWorker<O> {
    /// Lists whole compartments, as often as instances should be reconciled, and reports orphaned VNICs; never returns. Calls
    /// `missed` with each instance that lost a VNIC.
    pub(crate) async fn scan_compartments(&self, chance: impl Fn() -> f64, missed: impl Fn(Ocid)) {
        let (mut before, mut orphaned) = (CompartmentScan::default(), OrphanedVnics::default());
        loop {
            let resync = self.context.pace.resync;
            sleep(resync.mul_f64(0.9 + chance() / 10.0)).await;
            let now = self.scan(&before).await;
            // Whatever the interval is now: the next reconcile may have been delayed while the budget was smaller.
            let missing = now.missing(self.context.store.attachments().believed(), &before);
            missing.into_iter().for_each(&missed);
            let scans = ConsecutiveScans { before: &before, now: &now };
            match orphaned.count(&self.cloud, &self.context.mark, &self.context.store, scans).await {
                Ok(count) => self.set_orphaned(count),
                Err(error) => tracing::warn!(event = "orphaned_vnics.unknown", error = chain(&error)),
            }
            before = now;
        }
    }

    /// Lists the compartments. If one cannot be listed, its earlier state stays, so nothing of it counts as missing. After a 404
    /// it is not listed again until an instance is found in it: it is gone, or a policy is missing.
    async fn scan(&self, before: &CompartmentScan) -> CompartmentScan {
        let (mut scan, mut failed) = (CompartmentScan::default(), 0);
        let compartments = self.compartments.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for compartment in compartments {
            let error = match self.cloud.vnic_attachments(&compartment, None).await {
                Ok(listed) => {
                    scan.0.insert(compartment, Arc::new(Compartment::of(listed)));
                    continue;
                }
                Err(error) => error,
            };
            failed += 1;
            let (cause, request_id) = (chain(&error), error.request_id());
            tracing::warn!(event = "compartment_scan.failed", %compartment, error = cause, request_id, "the other compartments are listed");
            if error.is_not_found_or_forbidden() {
                self.compartments.lock().unwrap_or_else(PoisonError::into_inner).remove(&compartment);
            }
            scan.0.extend(before.0.get(&compartment).map(|known| (compartment, known.clone())));
        }
        self.context.metrics.unlisted(failed);
        scan
    }
}

impl CompartmentScan {
    fn has_vnic(&self, vnic: &Ocid) -> bool {
        self.0.values().any(|compartment| compartment.vnics.contains(vnic))
    }

    /// The instances of expected VNICs that are not listed. An instance without any listed attachment may be in an unknown
    /// compartment: it counts only if it was listed `before`, in a compartment that is listed now.
    fn missing(&self, believed: impl IntoIterator<Item = StatedVnic>, before: &Self) -> BTreeSet<Ocid> {
        let has = |(id, compartment): (&Ocid, &Arc<Compartment>), instance: &Ocid| {
            self.0.contains_key(id) && compartment.instances.contains(instance)
        };
        let is_known = |instance: &Ocid| self.0.iter().chain(&before.0).any(|compartment| has(compartment, instance));
        let is_missing = |(instance, vnic): &StatedVnic| !self.has_vnic(vnic) && is_known(instance);
        believed.into_iter().filter(is_missing).map(|(instance, _)| instance).collect()
    }

    fn named(&self) -> impl Iterator<Item = (&Ocid, &NamedAttachment)> {
        self.0.values().flat_map(|compartment| &compartment.named)
    }

    fn is_named(&self, attachment: &Ocid) -> bool {
        self.0.values().any(|compartment| compartment.named.contains_key(attachment))
    }
}

impl Compartment {
    fn of(listed: Vec<AddressList>) -> Self {
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
            all.vnics.extend(attachment.vnic_id);
        }
        all
    }
}
