//! The scan's loop: all compartments, as often as instances should be reconciled.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use oci::Cloud;
use resident::logging::chain;
use tokio::time::sleep;
use vcn::Ocid;

use super::{CompartmentScan, ConsecutiveScans, FailedLists, OrphanedVnics, scan};
use crate::attachment::apply::objects::Objects;
use crate::attachment::observe::pod_network::PodNetworks;
use crate::attachment::worker::AttachmentWorker;

impl<C: Cloud + 'static, O: Objects + PodNetworks> AttachmentWorker<C, O> {
    /// Lists whole compartments, as often as instances should be reconciled, and reports orphaned VNICs; never returns. Calls
    /// `missed` with each instance that lost a VNIC.
    pub async fn scan_compartments(&self, chance: impl Fn() -> f64, missed: impl Fn(Ocid)) {
        let (mut before, mut orphaned, mut trouble) =
            (CompartmentScan::default(), OrphanedVnics::default(), FailedLists::default());
        loop {
            let resync = self.pace.resync;
            sleep(resync.mul_f64(0.9 + chance() / 10.0)).await;
            let compartments = self.compartments.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let swept = scan(&self.cloud, &compartments, &before, &mut trouble).await;
            self.metrics.unlisted(trouble.count());
            let given_up = trouble.take_given_up();
            self.compartments.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| !given_up.contains(id));
            // Whatever the interval is now: the next reconcile may have been delayed while the budget was smaller.
            let missing = swept.missing(self.store.attachments().believed(), &before);
            missing.into_iter().for_each(&missed);
            match orphaned
                .count(&self.cloud, &self.mark, &self.store, ConsecutiveScans { before: &before, now: &swept })
                .await
            {
                Ok(count) => {
                    self.orphaned.store(count, Ordering::Relaxed);
                    self.count_unclaimed(&self.memories.lock().unwrap_or_else(PoisonError::into_inner));
                }
                Err(error) => tracing::warn!(event = "orphaned_vnics.unknown", error = chain(&error)),
            }
            before = swept;
        }
    }
}
