//! The fingerprint of this replica's key in the ConfigMap that agents trust. Each replica writes its own entry; the leader
//! removes those of Pods that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::{CONTROLLER_KEYS, Received};
use backoff::Backoff;
use channel::Fingerprint;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use resident::logging::chain;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use crate::cluster::replicas::LABEL;
use crate::cluster::request::{params, send};
use crate::fleet::agents::PodObject;
use crate::report::metrics::Metrics;

/// Between two comparisons of keys and Pods. They change nothing unless a Pod was replaced.
const ROUND: Duration = Duration::from_mins(10);
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(1) };

#[derive(Clone)]
pub(crate) struct KeyEntry {
    keys: Api<ConfigMap>,
    pods: Api<Received<PodObject>>,
    pod: String,
    fingerprint: Fingerprint,
    metrics: Arc<Metrics>,
    chance: fn() -> f64,
}

impl KeyEntry {
    /// The entry of a replica with this name and key.
    pub(crate) fn new(
        client: &Client,
        namespace: &str,
        pod: String,
        fingerprint: Fingerprint,
        metrics: Arc<Metrics>,
    ) -> Self {
        let keys = Api::namespaced(client.clone(), namespace);
        let pods = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
        Self { keys, pods, pod, fingerprint, metrics, chance: backoff::chance }
    }

    /// Publishes the key, until that succeeds. Without a published key, agents refuse this replica.
    pub(crate) async fn publish(&self) {
        self.until_done(async || self.write(&BTreeSet::new()).await.map(drop)).await;
    }

    /// Publishes the key and removes those of missing Pods, again and again; never returns. Only the leader does this.
    pub(crate) async fn keep(&self) {
        loop {
            self.until_done(async || self.clean().await).await;
            sleep(ROUND).await;
        }
    }

    async fn until_done(&self, attempt: impl AsyncFn() -> anyhow::Result<()>) {
        let mut failures = 0;
        while let Err(error) = attempt().await {
            if failures == 0 {
                tracing::warn!(event = "key.unpublished", error = chain(error.as_ref()), "retried with backoff");
            }
            failures += 1;
            sleep(RETRY.delay(failures, (self.chance)())).await;
        }
    }

    async fn clean(&self) -> anyhow::Result<()> {
        let keys = self.write(&BTreeSet::new()).await?;
        let ours = ListParams::default().labels(LABEL);
        let pods = send(self.pods.list(&ours)).await;
        let pods = pods.context("list the controller's Pods")?.into_iter().map(|pod| pod.name_any()).collect();
        let gone = orphaned(&keys, &pods, &self.pod);
        if !gone.is_empty() {
            self.write(&gone).await?;
            tracing::info!(event = "key.removed", pods = ?gone);
        }
        Ok(())
    }

    /// Writes the own entry and removes others. Writing what is there already changes nothing.
    async fn write(&self, gone: &BTreeSet<String>) -> anyhow::Result<BTreeMap<String, String>> {
        let mut data: Map<String, Value> = gone.iter().map(|pod| (pod.clone(), Value::Null)).collect();
        data.insert(self.pod.clone(), json!(self.fingerprint));
        let patch = Patch::Merge(json!({ "data": data }));
        let written = send(self.keys.patch(CONTROLLER_KEYS, &params(), &patch)).await;
        self.metrics.wrote("key", written.is_ok());
        let written = written.with_context(|| format!("write ConfigMap {CONTROLLER_KEYS}"))?;
        Ok(written.data.unwrap_or_default())
    }
}

/// The entries without a Pod. A list without the own Pod is not the list of the controller's Pods, and proves nothing.
fn orphaned(keys: &BTreeMap<String, String>, pods: &BTreeSet<String>, own: &str) -> BTreeSet<String> {
    match pods.contains(own) {
        true => keys.keys().filter(|pod| !pods.contains(*pod)).cloned().collect(),
        false => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_without_a_pod_are_orphaned() {
        let keys = ["own", "other", "gone"].map(|pod| (pod.to_owned(), "sha256:".to_owned())).into();
        let pods = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(orphaned(&keys, &pods(&["own", "other"]), "own"), pods(&["gone"]));
        assert_eq!(orphaned(&keys, &pods(&["other"]), "own"), pods(&[]), "another label, or no cluster");
    }
}
