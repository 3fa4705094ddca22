//! Reads the API server, and can do nothing else: the client stays in here.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use api::Received;
use command::list;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::ApiResource;
use kube::{Api, Client};

use crate::attachment::observe::pod_network::KubePodNetworks;
use crate::cluster::client::patient;
use crate::cluster::store::{NodeObject, NodeView, Store, readable};
use crate::leader::SYSTEM;

pub(super) struct Reader {
    /// Retries requests that the API server has no time for.
    client: Client,
    pod_networks: KubePodNetworks,
}

impl Reader {
    /// Wraps a client without retries; refused requests are retried for this long.
    pub(super) fn new(client: &Client, patience: Duration) -> Self {
        let pod_networks = KubePodNetworks::new(client, Arc::default());
        Self { client: patient(client, Arc::default(), patience), pod_networks }
    }

    /// All that the controller watches.
    pub(super) async fn all(&self) -> anyhow::Result<Store> {
        let store = Store::default();
        let profiles =
            list(&Api::all(self.client.clone()), ListParams::default()).await.context("listing VnicProfiles")?;
        store.profiles_mut().replace(profiles);
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
        let nodes: Vec<Received<NodeObject>> =
            list(&Api::all_with(self.client.clone(), &resource), ListParams::default())
                .await
                .context("listing Nodes")?;
        store.nodes_mut().replace(nodes.into_iter().map(NodeView::received).collect());
        let attachments: Vec<Received<_>> =
            list(&Api::all(self.client.clone()), ListParams::default()).await.context("listing VnicAttachments")?;
        let mut all = store.attachments_mut();
        for object in attachments {
            match readable(object) {
                Ok(object) => drop(all.apply(object)),
                Err(name) => all.cannot_read(name),
            }
        }
        drop(all);
        Ok(store)
    }

    pub(super) const fn pod_networks(&self) -> &KubePodNetworks {
        &self.pod_networks
    }

    /// The cluster's name in tags: the uid of kube-system.
    pub(super) async fn cluster(&self) -> anyhow::Result<String> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let namespace =
            api.get(SYSTEM).await.with_context(|| format!("reading the namespace {SYSTEM} (or set CLUSTER_ID)"))?;
        namespace.metadata.uid.with_context(|| format!("the namespace {SYSTEM} has no uid"))
    }
}
