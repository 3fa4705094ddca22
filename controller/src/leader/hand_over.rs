//! Whether another replica should lead. On a node whose kubelet or runtime is down, no one reaches the fleet view, because a
//! forwarded port goes through both. If the leader ends there, nothing starts it again.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::cluster::replicas::{Replica, replicas};
use crate::cluster::store::{NodeView, Store};

/// Between two checks, which send no request while the own node is fine.
const ROUND: Duration = Duration::from_secs(5);

/// How long a leader whose node was down from its first moment stays: it leads because no other replica took the Lease, although
/// its Pod may be ready. Handed over at once, the Lease would come back each time, and no leader would work.
const HOLD: Duration = Duration::from_mins(5);

/// Watches the leader's own node.
pub(crate) struct HandOver {
    pods: Api<Pod>,
    store: Arc<Store>,
    /// The name of this process: the Pod's, in a cluster.
    identity: String,
    /// Notified when a task is about to reboot the node.
    requested: Arc<Notify>,
}

/// What is known since this replica leads.
#[derive(Clone, Debug)]
struct Tenure {
    began: Instant,
    /// Whether its node was reachable at one of the checks.
    was_fine: bool,
    own_node: Option<String>,
}

impl HandOver {
    /// Of the leader with this name.
    pub(crate) fn new(
        client: &Client,
        namespace: &str,
        store: Arc<Store>,
        identity: String,
        requested: Arc<Notify>,
    ) -> Self {
        Self { pods: Api::namespaced(client.clone(), namespace), store, identity, requested }
    }

    /// Waits until another replica should lead. All Nodes must be known.
    pub(crate) async fn wait(self) {
        let mut tenure = Tenure { began: Instant::now(), was_fine: false, own_node: None };
        while !self.is_over(&mut tenure).await {
            // A task for NodeTasks checked that another replica is ready.
            if timeout(ROUND, self.requested.notified()).await.is_ok() {
                tracing::info!(event = "lease.handed_over", "a NodeTask is about to reboot the node of this replica");
                return;
            }
        }
    }

    async fn is_over(&self, tenure: &mut Tenure) -> bool {
        // Without a Node whose kubelet is down, the own one need not even be known.
        let is_needed = match &tenure.own_node {
            Some(node) => self.is_down(node),
            None => self.store.nodes().iter().any(|node| is_unreachable(node)),
        };
        tenure.was_fine |= !is_needed;
        if !is_needed || tenure.own_node.is_some() && !tenure.may_end() {
            return false;
        }
        // A list that fails is sent again.
        let Ok(replicas) = replicas(&self.pods).await else { return false };
        let Some(own) = replicas.iter().find(|replica| replica.pod == self.identity) else {
            // It runs outside the cluster.
            return std::future::pending().await;
        };
        tenure.own_node = Some(own.node.clone());
        tenure.was_fine |= !self.is_down(&own.node);
        if !tenure.may_end() {
            return false;
        }
        let Some(successor) = successor(&replicas, &self.identity, |node| self.is_down(node)) else { return false };
        let (node, other) = (&own.node, &successor.pod);
        tracing::warn!(
            event = "lease.handed_over",
            node,
            to = other,
            "the kubelet of this replica's node is not ready"
        );
        true
    }

    fn is_down(&self, node: &str) -> bool {
        self.store.nodes().named(node).is_some_and(|node| is_unreachable(node))
    }
}

/// Whether no port of a pod on the node can be forwarded. A node without a pod network is not ready either, and reachable.
fn is_unreachable(node: &NodeView) -> bool {
    node.kubelet.as_ref().is_some_and(|kubelet| !kubelet.is_of_pod_network())
}

impl Tenure {
    fn may_end(&self) -> bool {
        self.was_fine || self.began.elapsed() >= HOLD
    }
}

/// The replica that should lead instead of `own`: `None` while the own node is fine, or no other replica can be reached either.
fn successor<'a>(replicas: &'a [Replica], own: &str, is_down: impl Fn(&str) -> bool) -> Option<&'a Replica> {
    let here = replicas.iter().find(|replica| replica.pod == own)?;
    if !is_down(&here.node) {
        return None;
    }
    replicas.iter().find(|other| other.pod != own && other.is_ready && !is_down(&other.node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::node_condition::KubeletProblem;

    #[test]
    fn node_without_pod_network_is_reachable() {
        let node = |message: &str| NodeView {
            kubelet: Some(KubeletProblem {
                reason: "KubeletNotReady".to_owned(),
                message: message.to_owned(),
                since: None,
            }),
            ..NodeView::default()
        };
        let no_network = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady";
        assert!(is_unreachable(&node("container runtime is down")) && !is_unreachable(&node(no_network)));
        assert!(!is_unreachable(&NodeView::default()));
    }

    #[tokio::test(start_paused = true)]
    async fn leader_whose_node_was_never_fine_keeps_the_lease_for_a_while() {
        let new = Tenure { began: Instant::now(), was_fine: false, own_node: None };
        assert!(!new.may_end() && Tenure { was_fine: true, ..new.clone() }.may_end());
        tokio::time::advance(HOLD).await;
        assert!(new.may_end(), "the other replica may lead by now");
    }

    #[test]
    fn ready_replica_on_a_sound_node_leads_instead() {
        let replica = |pod: &str, is_ready| Replica { pod: pod.to_owned(), node: format!("node-{pod}"), is_ready };
        let replicas = [replica("a", false), replica("b", true), replica("c", false)];
        let to = |own: &str, down: &[&str]| successor(&replicas, own, |node| down.contains(&node)).map(|it| &*it.pod);
        assert_eq!(to("a", &["node-a"]), Some("b"));
        assert_eq!(to("a", &["node-c"]), None, "the own node is fine");
        assert_eq!(to("a", &["node-a", "node-b"]), None, "the other one cannot be reached either");
        assert_eq!(to("b", &["node-b"]), None, "no other replica is ready");
        assert_eq!(to("x", &["node-a"]), None, "not one of these Pods");
    }
}
