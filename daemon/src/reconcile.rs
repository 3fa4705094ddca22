//! One reconcile: from what is known to a node in sync with it. Synchronous; all that the agent writes to the kernel and to disk
//! is written here.
//!
//! ```text
//!   facts ─┐                    host_network ─▶ pools ─▶ pods ─▶ remains (dead, orphans) ─▶ unreturned
//!   links ─┼─▶ Context ──▶       ─▶ interference ─▶ installation ─▶ pod_addresses ──▶ ReconcileReport
//!   files ─┘   (desired)
//! ```
//!
//! Every stage runs, even if one before it failed; a failure is a condition of the report. A preview runs the same stages and
//! changes nothing.

mod context;
pub(crate) mod dead;
pub mod drift_hints;
mod gone_links;
pub(crate) mod host;
mod host_network;
mod installation;
mod interference;
pub mod kernel_limits;
mod missing_links;
mod node_state;
mod orphans;
mod ownership;
mod pod_addresses;
pub(crate) mod pods;
mod pools;
mod remains;
mod sources;
mod stage;
mod tables;
mod unreturned;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cni::AttachmentKey;

use crate::decide::devices::Devices;
use crate::decide::new_vnics::NewVnics;
use crate::facts::node_facts::NodeFacts;
use crate::facts::reconcile_report::unix_millis;
use crate::facts::reconcile_report::{Cause, ReconcileReport};
use crate::lifecycle::directories::Directories;
use crate::reconcile::drift_hints::DriftHints;
use crate::settings::Settings;

use missing_links::Moment;
use node_state::NodeState;
use stage::StageReport;

/// Brings the node in sync with the facts. There is one per node.
#[derive(Debug)]
pub struct Reconciler {
    node: Arc<NodeState>,
    /// Those it works in, as they were at the start.
    directories: Directories,
    devices: Devices,
    tables: tables::VnicTables,
    new_vnics: NewVnics,
    created: Instant,
    host_network: host_network::HostNetworkStage,
    pods: pods::RunningPods,
    remains: remains::Remains,
    unreturned: unreturned::UnreturnedLinks,
    interference: interference::Interference,
    installation: installation::Installation,
    pod_addresses: pod_addresses::PodAddresses,
    missing_links: missing_links::MissingLinks,
}

impl Reconciler {
    /// An error if the boot id cannot be read.
    pub fn new(settings: Arc<Settings>) -> Result<Self, ipam::Error> {
        Ok(Self {
            directories: Directories::of(&settings),
            devices: Devices::default(),
            tables: tables::VnicTables::new(&settings.data_dir),
            new_vnics: NewVnics::default(),
            created: Instant::now(),
            host_network: host_network::HostNetworkStage::default(),
            pods: pods::RunningPods::default(),
            remains: remains::Remains::default(),
            unreturned: unreturned::UnreturnedLinks::default(),
            interference: interference::Interference::default(),
            installation: installation::Installation::new(),
            pod_addresses: pod_addresses::PodAddresses::default(),
            missing_links: missing_links::MissingLinks::default(),
            node: Arc::new(NodeState::new(settings)?),
        })
    }

    /// A directory of the agent or the runtime that was removed, moved away or replaced. The agent may have the old one mounted:
    /// then no other program sees what it writes. With the state directory the sockets went as well.
    pub(crate) fn lost(&self, cause: Cause) -> Option<&Path> {
        self.directories.lost(cause)
    }

    /// Brings the node in sync with the facts, as far as that can be done.
    pub fn reconcile(&mut self, facts: &NodeFacts, cause: Cause) -> ReconcileReport {
        let (begun, unix_millis) = (Instant::now(), unix_millis());
        let node = self.node.clone();
        let (facts, refused) = facts.admitted();
        let mut stages = StageReport::default();
        let context = self.context(&node, &facts, cause, &mut stages);
        stages.conditions.extend(crate::facts::refused::conditions(&refused));
        self.host_network.run(&context, &mut stages);
        pools::publish(&context, &mut stages);
        self.pods.run(&context, &mut stages);
        self.remains.run(&context, &mut stages);
        self.unreturned.run(&context, &mut stages);
        self.interference.run(&context, &mut stages);
        stages.pod_network = Some(self.installation.run(&context, &mut stages));
        // Last: the stages before it free addresses.
        self.pod_addresses.run(&context, &mut stages);
        let (vnics, usable) = (context.vnic_states(&stages), stages.is_usable());
        let StageReport { changes, mut conditions, pod_network, .. } = stages;
        let moment = Moment { cause, grace: node.settings.detach_grace, now: begun };
        self.missing_links.hold_back(&mut conditions, |vnic| !facts.is_missing(vnic), moment);
        conditions.sort_by_key(|condition| (condition.severity, condition.reason));
        conditions.dedup();
        let mut report = ReconcileReport {
            cause,
            unix_millis,
            micros: u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            changes,
            conditions,
            vnics,
            machine: (!facts.vnics().is_empty()).then(|| vcn::MachineKind::of(facts.vnics())),
            usable,
            pod_network,
        };
        report.note_pending();
        report
    }

    /// Whether something calls for a reconcile: drift of running pods, attachments that a DEL ended, or addresses that ran out or
    /// are free again. A VNIC's link that did not come back and a postponed check of routes count, too.
    pub fn needs_reconcile(&mut self, hints: DriftHints, deleted: &HashSet<AttachmentKey>) -> bool {
        self.pods.needs_reconcile(hints, deleted, &self.node.store)
            || self.pod_addresses.has_changed(&self.node, self.installation.is_ours())
            || self.unreturned.has_new(&self.node.store)
            || self.interference.is_check_due()
    }

    /// The time until a condition becomes due, if nothing happens before.
    pub(crate) fn due(&self) -> Option<Duration> {
        let now = Instant::now();
        self.missing_links.next(now).into_iter().chain(self.new_vnics.next(now)).min()
    }

    /// When to call [`Self::attention`] again although nothing happens.
    pub(crate) fn next_check(&self) -> Option<Duration> {
        self.pods.again().into_iter().chain(self.interference.again()).min()
    }
}
