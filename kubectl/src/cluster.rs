//! The API server: the kubeconfig's client, and what is read with it. It is connected when first needed.

use std::error::Error;
use std::fmt::{self, Debug};
use std::io;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use api::{NodePolicy, NodeTask, Received, VnicAttachment};
use command::list;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::UPGRADE;
use hyper::{Request, Response};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::client::{AuthError, Body};
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, service_fn};
use vcn::Ocid;

use crate::args::Target;
use crate::kubeconfig;

/// To the API server.
const CONNECTING: Duration = Duration::from_secs(5);
/// The most time until the next part of an answer.
const SILENCE: Duration = Duration::from_secs(30);
/// For one request and its answer.
const DEADLINE: Duration = Duration::from_mins(1);
/// The longest answer: a page of 500 Nodes, each of the 100 KB that few have.
const BODY_MAX: usize = 64 << 20;

/// The controller's ConfigMap, and the key in it that stops all rollouts.
const CONTROLLER_CONFIG: &str = "oke-node-controller";
const STOP_KEY: &str = "stop";

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

    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        self.client.get_or_try_init(|| connect(&self.target)).await.cloned()
    }

    /// A Node; `None` where there is none.
    pub(crate) async fn node(&self, name: &str) -> anyhow::Result<Option<Node>> {
        let api: Api<Received<Node>> = Api::all(self.client().await?);
        let found = api.get_opt(name).await.with_context(|| format!("reading Node {name}"))?;
        Ok(found.map(readable))
    }

    /// All Nodes. One that this version cannot read has its metadata only.
    pub(crate) async fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        self.nodes_with(None).await
    }

    /// Those with these labels.
    pub(crate) async fn nodes_with(&self, labels: Option<&str>) -> anyhow::Result<Vec<Node>> {
        let api: Api<Received<Node>> = Api::all(self.client().await?);
        let params = labels.map_or_else(ListParams::default, |labels| ListParams::default().labels(labels));
        let found = list(&api, params).await.context("listing Nodes")?;
        Ok(found.into_iter().map(readable).collect())
    }

    /// The VnicAttachments of an instance, or all.
    pub(crate) async fn attachments(&self, instance: Option<&Ocid>) -> anyhow::Result<Attachments> {
        let selected = match instance {
            Some(instance) => ListParams::default().fields(&format!("spec.instanceId={instance}")),
            None => ListParams::default(),
        };
        let (objects, unreadable) = self.objects("VnicAttachments", selected).await?;
        Ok(Attachments { objects, unreadable })
    }

    /// The NodePolicies that this version can read, and the names of the others.
    pub(crate) async fn policies(&self) -> anyhow::Result<(Vec<NodePolicy>, Vec<String>)> {
        self.objects("NodePolicies", ListParams::default()).await
    }

    /// The NodeTasks that this version can read, and the names of the others.
    pub(crate) async fn tasks(&self) -> anyhow::Result<(Vec<NodeTask>, Vec<String>)> {
        self.objects("NodeTasks", ListParams::default()).await
    }

    /// An object of our API group; `None` if it does not exist.
    pub(crate) async fn object<K>(&self, name: &str) -> anyhow::Result<Option<K>>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let (api, kind): (Api<Received<K>>, _) = (Api::all(self.client().await?), K::kind(&()));
        let found = api.get_opt(name).await.with_context(|| format!("reading {kind} {name}"))?;
        let later = |error| anyhow!("a later version wrote {kind} {name}; update this program: {error}");
        found.map(|found| found.0.map_err(|unreadable| later(unreadable.error))).transpose()
    }

    async fn objects<K>(&self, kinds: &str, selected: ListParams) -> anyhow::Result<(Vec<K>, Vec<String>)>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<Received<K>> = Api::all(self.client().await?);
        let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
        for guarded in list(&api, selected).await.with_context(|| format!("listing {kinds}"))? {
            match guarded.0 {
                Ok(object) => objects.push(object),
                Err(error) => unreadable.extend(error.metadata.name),
            }
        }
        Ok((objects, unreadable))
    }

    /// The user's name as the API server knows it; empty if the API server does not return it.
    pub(crate) async fn user(&self) -> String {
        let request = async {
            let api: Api<SelfSubjectReview> = Api::all(self.client().await?);
            let answer = api.create(&PostParams::default(), &SelfSubjectReview::default()).await;
            anyhow::Ok(answer.context("reading the user's name")?.status.and_then(|status| status.user_info?.username))
        };
        request.await.ok().flatten().unwrap_or_default()
    }

    /// Why all rollouts are stopped; `None` if they are not.
    pub(crate) async fn stop_switch(&self) -> anyhow::Result<Option<String>> {
        let found = self.controller_config().await?.get_opt(CONTROLLER_CONFIG).await;
        let found =
            found.with_context(|| format!("reading ConfigMap {}/{CONTROLLER_CONFIG}", self.target.namespace))?;
        let text = found.and_then(|map| map.data?.remove(STOP_KEY)).map(|text| text.trim().to_owned());
        Ok(text.filter(|text| !text.is_empty() && text != "false"))
    }

    /// Stops all rollouts with a reason, or lets them go on.
    pub(crate) async fn set_stop_switch(&self, reason: Option<&str>) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "data": { STOP_KEY: reason } }));
        let patched = self.controller_config().await?.patch(CONTROLLER_CONFIG, &PatchParams::default(), &patch).await;
        let what = || format!("changing ConfigMap {}/{CONTROLLER_CONFIG}", self.target.namespace);
        match patched {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                Err(anyhow!("{}: {}. Your user needs the Role oke-node-policy-admin", what(), status.message))
            }
            other => other.map(drop).with_context(what),
        }
    }

    async fn controller_config(&self) -> anyhow::Result<Api<ConfigMap>> {
        Ok(Api::namespaced(self.client().await?, &self.target.namespace))
    }
}

/// A Node, or its metadata: kubelets write the rest.
fn readable(node: Received<Node>) -> Node {
    node.0.unwrap_or_else(|unreadable| Node { metadata: unreadable.metadata, ..Node::default() })
}

async fn connect(target: &Target) -> anyhow::Result<Client> {
    let mut config = kubeconfig::config(target.kubeconfig.as_deref(), target.context.as_deref())?;
    // kube's own retries take minutes, and a person waits.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECTING);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(SILENCE);
    let plugin = config.auth_info.exec.clone();
    let client = Client::try_from(config).map_err(|error| match (&error, &plugin) {
        (kube::Error::Auth(AuthError::AuthExecStart(why)), Some(plugin)) if why.kind() == io::ErrorKind::NotFound => {
            anyhow!("{}", kubeconfig::missing_plugin(plugin))
        }
        _ => anyhow!(error).context("setting up the Kubernetes client"),
    })?;
    Ok(bounded(client, BODY_MAX))
}

/// The same client, whose answers end in time and at a length.
fn bounded(client: Client, body_max: usize) -> Client {
    let namespace = client.default_namespace().to_owned();
    let send = move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let (end, is_upgrade) = (Instant::now() + DEADLINE, request.headers().contains_key(UPGRADE));
            let answer = timeout_at(end, client.send(request)).await.map_err(|_| Late)??;
            // A port-forward lasts; its reader has a deadline.
            Ok::<_, BoxError>(match is_upgrade {
                true => answer,
                false => {
                    let (head, body) = answer.into_parts();
                    let body = timeout_at(end, Limited::new(body, body_max).collect()).await.map_err(|_| Late)??;
                    Response::from_parts(head, Body::from(body.to_bytes()))
                }
            })
        }
    };
    Client::new(service_fn(send), namespace)
}

/// An answer that did not end in time.
#[derive(Debug)]
struct Late;

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no complete answer of the API server within {} s", DEADLINE.as_secs())
    }
}

impl Error for Late {}

#[cfg(test)]
mod tests;
