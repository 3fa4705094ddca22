//! Writes what this node reports of its VNICs into their VnicAttachments: `status.node`, and nothing else. The controller derives
//! conditions from it, and waits with a detachment while pods use the VNIC. Nothing on the node waits for a write.
//!
//! ```text
//!   reconcile reports, VnicAttachments, allocations ─▶ plan (pure) ─▶ one patch after the other, each with a deadline
//! ```

mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Received, VnicAttachment};
use backoff::Backoff;
use ipam::Store;
use kube::Api;
use kube::api::{Patch, PatchParams};
use resident::api_server::{client, in_cluster};
use resident::logging::chain;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use vcn::Ocid;

use crate::facts::node_facts::NodeFacts;
use crate::facts::reconcile_report::CompletedReconcile;
use crate::lifecycle::agent::Agent;
use crate::sources::backoff::chance;
use plan::{Report, WrittenReport};

/// The interval at which the pods of a VNIC are counted: plugins tell the agent of it, but not this task.
const LOOK: Duration = Duration::from_secs(5);

const DEADLINE: Duration = Duration::from_secs(20);

/// Between failures. All nodes of a cluster fail together when its API server does.
const RETRY: Backoff = Backoff { first: Duration::from_secs(2), cap: Duration::from_mins(5) };

/// The name of the agent's writes.
const FIELD_MANAGER: &str = "oke-node-agent";

#[derive(Debug)]
struct VnicReporter {
    agent: Arc<Agent>,
    /// Its own receivers, which note what it has seen.
    facts: watch::Receiver<NodeFacts>,
    reports: watch::Receiver<Option<CompletedReconcile>>,
}

/// Reports until the agent ends.
pub(crate) async fn run(agent: Arc<Agent>) {
    if in_cluster() {
        let (facts, reports) = (agent.facts.clone(), agent.reports.clone());
        VnicReporter { agent, facts, reports }.run().await;
    }
    std::future::pending().await
}

impl VnicReporter {
    async fn run(mut self) {
        let (mut written, mut failures) = (HashMap::new(), 0_u32);
        loop {
            let mut has_failed = false;
            for report in self.due(&written) {
                match self.write(&report).await {
                    Ok(()) => {
                        drop(written.insert(report.uid, WrittenReport { report: report.node, at: Instant::now() }))
                    }
                    Err(why) => {
                        if failures == 0 {
                            tracing::warn!(event = "vnic_report.not_written", object = report.object, "{why}; retried");
                        }
                        has_failed = true;
                    }
                }
            }
            failures = if has_failed { failures.saturating_add(1) } else { 0 };
            if has_failed {
                sleep(RETRY.delay(failures, chance())).await;
                continue;
            }
            let is_used_by_name = self.attachments().iter().any(|it| it.spec.vnic.purpose == api::Purpose::Attach);
            // Cancel-safe: a timer, and flags that `borrow_and_update` clears.
            tokio::select! {
                () = sleep(LOOK), if is_used_by_name => {}
                () = changed(&mut self.reports) => {}
                () = changed(&mut self.facts) => {}
            }
        }
    }

    /// What is to be written now.
    fn due(&mut self, written: &HashMap<String, WrittenReport>) -> Vec<Report> {
        let attachments = self.attachments();
        let report = self.reports.borrow_and_update().as_ref().map(|completed| completed.report.clone());
        let Some(report) = report.filter(|_| !attachments.is_empty()) else { return Vec::new() };
        let of = |attachment: &VnicAttachment| {
            let known = attachment.metadata.uid.as_ref().and_then(|uid| written.get(uid));
            plan::due(attachment, &report, |vnic| self.pods(vnic), known, Instant::now())
        };
        attachments.iter().filter_map(of).collect()
    }

    fn attachments(&mut self) -> Vec<VnicAttachment> {
        self.facts.borrow_and_update().attachments.value.clone().unwrap_or_default()
    }

    /// How many pods have the VNIC or an address of it; `None` if that cannot be read.
    fn pods(&self, vnic: &Ocid) -> Option<u32> {
        let (allocations, damage) =
            Store::new(&self.agent.settings.state_dir, self.agent.boot.clone()).read_sound().ok()?;
        let has = |held: &&ipam::Allocation| held.addresses.iter().any(|address| address.vnic_id == *vnic);
        let count = allocations.allocations.iter().filter(has).count();
        // A record that cannot be read may be one of this VNIC's.
        damage.is_none().then(|| u32::try_from(count).unwrap_or(u32::MAX))
    }

    async fn write(&self, report: &Report) -> Result<(), String> {
        let (client, _) = client()?;
        let objects: Api<Received<VnicAttachment>> = Api::all(client);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(report.patch());
        let answer = timeout(DEADLINE, objects.patch_status(&report.object, &params, &patch)).await;
        let result = match answer {
            Ok(Ok(_)) => Ok(()),
            // Deleted since, or another of the same name.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(()),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err(format!("the API server does not answer within {} s", DEADLINE.as_secs())),
        };
        self.agent.metrics.vnic_reported(result.is_ok());
        result
    }
}

/// Waits for another value; forever if there is none.
async fn changed<T>(channel: &mut watch::Receiver<T>) {
    if channel.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Report {
    /// The patch of the status: nothing but the report of the node, and only of the very object.
    fn patch(&self) -> serde_json::Value {
        let api::NodeReport { configured, reason, in_use, generation } = &self.node;
        let reason = (!reason.is_empty()).then_some(reason);
        let node = json!({ "configured": configured, "reason": reason, "inUse": in_use, "generation": generation });
        json!({ "metadata": { "uid": self.uid }, "status": { "node": node } })
    }
}
