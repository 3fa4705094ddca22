//! What all NetworkTests share: clients, permits, and the Nodes as they are now.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::{AttachMode, PodSelection, Purpose, VnicTemplate};
use ipnetwork::IpNetwork;
use kube::Client;
use tokio::sync::Semaphore;

use super::agents::AgentCalls;
use super::pairs::Nodes;
use super::pods::TestPod;
use crate::args::TestTargets;
use crate::cluster::store::Store;
use crate::report::metrics::Metrics;

/// What all tests share.
pub(crate) struct NetworkTests<A> {
    pub(crate) client: Client,
    pub(crate) store: Arc<Store>,
    pub(crate) agents: Arc<A>,
    pub(crate) metrics: Arc<Metrics>,
    /// Permits for tests that run at the same time.
    pub(crate) turns: Semaphore,
    /// Which targets are allowed.
    pub(crate) allowed: TestTargets,
    /// The networks of the cluster's Services.
    pub(crate) services: Vec<IpNetwork>,
    /// The host of OCI's core services.
    pub(crate) oci_host: Option<String>,
}

impl<A: AgentCalls> NetworkTests<A> {
    /// The Nodes and agents as they are now, with the Pods of a test.
    pub(crate) fn nodes(&self, pods: Vec<(PodSelection, Vec<TestPod>)>) -> Nodes {
        let (nodes, attachments) = (self.store.nodes(), self.store.attachments());
        let mut held: BTreeMap<String, Vec<IpAddr>> =
            nodes.iter().map(|node| (node.name.clone(), node.addresses.to_vec())).collect();
        for attachment in attachments.iter() {
            // A VNIC of mode Exclusive is a pod's.
            let VnicTemplate { purpose, mode, .. } = &attachment.spec.vnic;
            let is_hosts = (*purpose, *mode) != (Purpose::Attach, AttachMode::Exclusive);
            let node = nodes.of(&attachment.spec.instance_id).filter(|_| is_hosts);
            let of_node = node.and_then(|node| held.get_mut(&node.name));
            if let (Some(of_node), Some(status)) = (of_node, &attachment.status) {
                of_node.extend(&status.own_addresses);
            }
        }
        let of = |name: &String| self.agents.address(name).map(|address| (name.clone(), address));
        Nodes {
            labels: nodes.iter().map(|node| (node.name.clone(), node.labels.map())).collect(),
            addresses: held.keys().filter_map(of).collect(),
            held,
            pods,
            allowed: self.allowed,
            services: self.services.clone(),
            oci_host: self.oci_host.clone(),
        }
    }
}
