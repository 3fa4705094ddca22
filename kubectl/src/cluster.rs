//! The API server: the kubeconfig's client, and what is read with it. It is connected when first needed.

use std::time::Duration;

use anyhow::Context as _;
use api::VnicAttachment;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::DeserializeGuard;
use kube::{Api, Client, Config};
use resident::api_server::list;
use tokio::sync::OnceCell;
use vcn::Ocid;

use crate::args::Target;

/// To the API server.
const CONNECTING: Duration = Duration::from_secs(5);
/// The most time until the next part of an answer.
const SILENCE: Duration = Duration::from_secs(30);

pub(crate) struct Cluster {
    pub(crate) target: Target,
    client: OnceCell<Client>,
}

#[derive(Debug, Default)]
pub(crate) struct Attachments {
    /// Those that this version can read.
    pub objects: Vec<VnicAttachment>,
    /// The names of the others, which a later version wrote.
    pub unreadable: Vec<String>,
}

impl Cluster {
    pub(crate) fn new(target: Target) -> Self {
        Self { target, client: OnceCell::new() }
    }

    /// Its client.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        self.client.get_or_try_init(|| connect(&self.target)).await.cloned()
    }

    /// A Node; `None` where there is none.
    pub(crate) async fn node(&self, name: &str) -> anyhow::Result<Option<Node>> {
        let api: Api<Node> = Api::all(self.client().await?);
        api.get_opt(name).await.with_context(|| format!("reading Node {name}"))
    }

    /// All Nodes.
    pub(crate) async fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        list(&Api::all(self.client().await?), ListParams::default()).await.context("listing Nodes")
    }

    /// The VnicAttachments of an instance, or all.
    pub(crate) async fn attachments(&self, instance: Option<&Ocid>) -> anyhow::Result<Attachments> {
        let api: Api<DeserializeGuard<VnicAttachment>> = Api::all(self.client().await?);
        let selected = match instance {
            Some(instance) => ListParams::default().fields(&format!("spec.instanceId={instance}")),
            None => ListParams::default(),
        };
        let mut found = Attachments::default();
        for guarded in list(&api, selected).await.context("listing VnicAttachments")? {
            match guarded.0 {
                Ok(object) => found.objects.push(object),
                Err(error) => found.unreadable.extend(error.metadata.name),
            }
        }
        Ok(found)
    }
}

async fn connect(target: &Target) -> anyhow::Result<Client> {
    let options = KubeConfigOptions { context: target.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match &target.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &options).await.with_context(|| format!("using {}", path.display()))?
        }
        None if target.context.is_some() => {
            Config::from_kubeconfig(&options).await.context("reading the kubeconfig")?
        }
        None => Config::infer().await.context("finding the API server: no kubeconfig, and not in a pod")?,
    };
    // kube's own retries take minutes, and a person waits.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECTING);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(SILENCE);
    Client::try_from(config).context("setting up the Kubernetes client")
}
