//! The objects of a bundle, page by page, reduced to what support needs. A kind that cannot be read is a line, and ends nothing.

use anyhow::Context as _;
use command::chain;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};

use super::file::TarFile;
use super::progress::Progress;
use super::reduced::reduced;
use crate::cluster::Cluster;

/// The objects of a page, and so of a file.
const PAGE: u32 = 500;
/// The most pages of a kind: 20,000 objects.
const PAGES_MAX: usize = 40;
/// What the reporter of our Events begins with.
const REPORTER: &str = "oke.oraclecloud.com/";

/// A kind of objects.
struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    scope: Scope,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Cluster,
    Ours,
    /// Where Events about objects without a namespace are.
    Default,
}

const KINDS: [Kind; 8] = [
    kind("", "v1", "Node", "nodes", Scope::Cluster),
    kind("oke.oraclecloud.com", "v1alpha1", "VnicAttachment", "vnicattachments", Scope::Cluster),
    kind("oke.oraclecloud.com", "v1alpha1", "VnicProfile", "vnicprofiles", Scope::Cluster),
    kind("oke.oraclecloud.com", "v1alpha1", "NetworkTest", "networktests", Scope::Cluster),
    kind("", "v1", "Pod", "pods", Scope::Ours),
    kind("apps", "v1", "DaemonSet", "daemonsets", Scope::Ours),
    kind("apps", "v1", "Deployment", "deployments", Scope::Ours),
    kind("events.k8s.io", "v1", "Event", "events", Scope::Default),
];

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    scope: Scope,
) -> Kind {
    Kind { group, version, kind, plural, scope }
}

/// Writes all kinds; returns what is missing.
pub(crate) async fn write(
    cluster: &Cluster,
    progress: &Progress,
    file: &mut TarFile,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut missing = Vec::new();
    for kind in &KINDS {
        progress.set(format!("reading {}", kind.plural));
        let api = kind.api(cluster).await?;
        if let Err(why) = kind.write(&api, file).await? {
            missing.push((format!("objects/{}", kind.plural), why));
        }
    }
    Ok(missing)
}

impl Kind {
    async fn api(&self, cluster: &Cluster) -> anyhow::Result<Api<DynamicObject>> {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.kind);
        let (client, resource) = (cluster.client().await?, ApiResource::from_gvk_with_plural(&kind, self.plural));
        Ok(match self.scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Ours => Api::namespaced_with(client, &cluster.target.namespace, &resource),
            Scope::Default => Api::namespaced_with(client, "default", &resource),
        })
    }

    /// The inner error: why some are missing.
    async fn write(&self, api: &Api<DynamicObject>, file: &mut TarFile) -> anyhow::Result<Result<(), String>> {
        let mut params = ListParams::default().limit(PAGE);
        for page in 1..=PAGES_MAX {
            let list = match api.list(&params).await {
                Ok(list) => list,
                Err(error) => return Ok(Err(chain(&error))),
            };
            let objects: Vec<Value> = list.items.into_iter().map(|object| json!(object)).collect();
            let ours = objects.iter().filter(|object| self.is_ours(object));
            let objects: Vec<Value> = ours.map(|object| reduced(self.kind, object)).collect();
            let text = serde_json::to_vec_pretty(&objects).context("writing JSON")?;
            if page == 1 || !objects.is_empty() {
                file.entry(&format!("objects/{}-{page}.json", self.plural), &text)?;
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(Ok(())),
            }
        }
        Ok(Err(format!("more than {} objects", PAGES_MAX * PAGE as usize)))
    }

    fn is_ours(&self, object: &Value) -> bool {
        let reporter = object.get("reportingController").and_then(Value::as_str).unwrap_or_default();
        self.kind != "Event" || reporter.starts_with(REPORTER)
    }
}
