//! Growths of root disks that the engine requests: a NodeTask for each, which carries it out and proves it.

use api::NodeTask;
use kube::Api;
use kube::api::PostParams;
use resident::logging::chain;
use tokio::time::Instant;

use super::NodePolicies;
use crate::cluster::request::send;
use crate::node_policy::engine::GrowthRequest;

impl NodePolicies {
    /// Creates the tasks. One that is there already stays.
    pub(super) async fn write_growths(&self, requests: &[GrowthRequest]) {
        let tasks: Api<NodeTask> = Api::all(self.client.clone());
        for request in requests {
            let key = request.key();
            let created = send(tasks.create(&PostParams::default(), &key.task(&request.node))).await;
            self.metrics.wrote("node_task", created.is_ok());
            let (node, policy) = (&request.node, &request.policy);
            match created {
                Ok(_) => tracing::info!(event = "node_policy.grows", node, policy, task = key.task_name()),
                Err(error) if error.code() == Some(409) => {}
                Err(error) => {
                    tracing::warn!(event = "node_policy.grow", node, policy, error = chain(&error), "retried");
                    continue;
                }
            }
            self.shared.lock().note_growth_requested(key.task_name(), Instant::now());
        }
    }
}
