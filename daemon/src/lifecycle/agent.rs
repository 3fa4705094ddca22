//! What the tasks of a running agent share.

use std::sync::Arc;
use std::time::Instant;

use ipam::BootId;
use tokio::sync::{Notify, watch};

use crate::facts::deleted_attachments::DeletedAttachments;
use crate::facts::follow_ups::FollowUps;
use crate::facts::node_facts::NodeFacts;
use crate::facts::recent_runs::RecentRuns;
use crate::facts::reconcile_report::unix_millis;
use crate::facts::reconcile_report::{CompletedReconcile, ReconcileReport};
use crate::metrics::Metrics;
use crate::node_policy::NodePolicies;
use crate::settings::Settings;

#[derive(Debug)]
pub struct Agent {
    pub settings: Arc<Settings>,
    /// The boot that files are of.
    pub boot: BootId,
    pub started: Instant,
    pub started_unix_millis: u64,
    pub metrics: Metrics,
    /// What is known from outside.
    pub facts: watch::Receiver<NodeFacts>,
    /// The last completed reconcile.
    pub reports: watch::Receiver<Option<CompletedReconcile>>,
    pub follow_ups: FollowUps,
    pub recent: RecentRuns,
    pub deleted: DeletedAttachments,
    /// Notified of each run of a plugin: it may have taken the last address, or freed one.
    pub plugin_ran: Notify,
    /// Notified when links come, go or change.
    pub links_changed: Notify,
    /// What NodePolicies set on this node.
    pub policies: Arc<NodePolicies>,
    /// Notified when an object of the API server, or the file of the NativePodNetwork, changes.
    pub npn_changed: Arc<Notify>,
}

impl Agent {
    pub fn new(
        settings: Arc<Settings>,
        facts: watch::Receiver<NodeFacts>,
        reports: watch::Receiver<Option<CompletedReconcile>>,
    ) -> Result<Self, ipam::Error> {
        let (metrics, follow_ups, recent, deleted, plugin_ran, links_changed, npn_changed) = Default::default();
        let boot = BootId::current()?;
        Ok(Self {
            policies: Arc::new(NodePolicies::new(&settings.data_dir, &boot)),
            settings,
            boot,
            started: Instant::now(),
            started_unix_millis: unix_millis(),
            metrics,
            facts,
            reports,
            follow_ups,
            recent,
            deleted,
            plugin_ran,
            links_changed,
            npn_changed,
        })
    }

    /// Links came, went or changed.
    pub(crate) fn note_links(&self) {
        self.links_changed.notify_one();
        self.policies.note_links();
    }

    pub fn report(&self) -> Option<Arc<ReconcileReport>> {
        self.reports.borrow().as_ref().map(|completed| completed.report.clone())
    }
}
