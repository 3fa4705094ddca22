//! Carries out what the engine decided about Pods that apply files.

use channel::Peer;
use tokio::time::Instant;

use super::{NodePolicies, Outcome};
use crate::node_policy::agents;
use crate::node_policy::files::{Confirmation, FileActions, FilePod};

impl NodePolicies {
    /// The Pods that apply files, if the next step may depend on them.
    pub(super) async fn list_pods(&self) -> Option<Vec<FilePod>> {
        if self.file_pods.grants.is_empty() || !self.shared.lock().needs_pods() {
            return None;
        }
        let listed = self.file_pods.list().await;
        listed.inspect_err(|error| tracing::warn!(event = "files_pod.list", error, "retried")).ok()
    }

    pub(super) async fn write_pods(&self, files: &FileActions) {
        for end in &files.delete {
            if let Some(failure) = &end.failure {
                tracing::warn!(event = "files_pod.failed", node = end.node, order = end.order, error = failure);
            }
            let deleted = self.file_pods.delete(end).await;
            self.metrics.wrote("files_pod_delete", deleted.is_ok());
            match deleted {
                Ok(()) => self.shared.lock().note_pod_deleted(end, Instant::now()),
                Err(error) => tracing::warn!(event = "files_pod.delete", node = end.node, error, "retried"),
            }
        }
        for request in &files.create {
            let created = self.file_pods.create(request).await;
            self.metrics.wrote("files_pod", created.is_ok());
            match created {
                Ok(()) => tracing::info!(event = "files_pod.created", node = request.node, order = request.order),
                Err(error) => tracing::warn!(event = "files_pod.create", node = request.node, error, "retried"),
            }
        }
    }

    /// Confirms a change if the node is Ready after it.
    pub(super) async fn confirm(&self, confirmation: Confirmation, peer: Result<Peer, String>) -> Outcome {
        let Confirmation { node, order, .. } = &confirmation;
        let confirmed = match self.file_pods.is_ready_since(&confirmation).await {
            Ok(true) => agents::confirm(&self.channel, peer, order).await,
            Ok(false) => Err("the node is not Ready yet".to_owned()),
            Err(error) => Err(error),
        };
        match confirmed {
            Ok(answer) => {
                tracing::info!(event = "files.confirmed", node, order);
                Outcome::Read(confirmation.node, Ok(answer))
            }
            Err(error) => {
                tracing::debug!(event = "files.not_confirmed", node, order, error, "retried");
                Outcome::Unconfirmed(confirmation.node)
            }
        }
    }
}
