//! Which pods leave a node, as `kubectl drain --ignore-daemonsets --delete-emptydir-data` chooses them. Pure.

use std::fmt;

use api::Received;
use kube::core::Object;
use serde::Deserialize;

/// A Pod as received: fields that are not named here are not even read.
pub(crate) type DrainedPod = Object<DrainedPodSpec, DrainedPodStatus>;

/// Nothing is read of a Pod's spec, which can hold secrets.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct DrainedPodSpec {}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DrainedPodStatus {
    phase: Option<String>,
}

/// One pod; its uid keeps a later one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodKey {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// What is left to do on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drain {
    pub evictable: Vec<PodKey>,
    /// They end by themselves: they are being deleted, or are short-lived ones of our own.
    pub leaving: Vec<PodKey>,
    /// No controller would recreate them.
    pub unmanaged: Vec<PodKey>,
    /// The last refusal of an eviction, of a pod that is still there.
    pub refusal: Option<EvictionRefusal>,
}

/// Why a pod was not evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EvictionRefusal {
    pub pod: PodKey,
    /// In the words of the API server, which names the PodDisruptionBudget.
    pub message: String,
}

/// Of the kubelet: a Pod from a file of the node.
const MIRROR: &str = "kubernetes.io/config.mirror";

impl Drain {
    /// What the pods of a node require. `is_own` names the namespaces of our short-lived Pods.
    pub(crate) fn of(pods: Vec<Received<DrainedPod>>, is_own: impl Fn(&str) -> bool) -> Self {
        let mut drain = Self::default();
        for pod in pods {
            // Of a pod that cannot be read the metadata suffice.
            let (metadata, phase) = match pod.0 {
                Ok(pod) => (pod.metadata, pod.status.and_then(|status| status.phase)),
                Err(unreadable) => (unreadable.metadata, None),
            };
            let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
            let is_finished = matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
            let is_mirror = metadata.annotations.iter().flatten().any(|(key, _)| key == MIRROR);
            let is_of_daemon_set = owner.is_some_and(|owner| owner.kind == "DaemonSet");
            if is_mirror || is_of_daemon_set && !is_finished {
                continue;
            }
            let namespace = metadata.namespace.unwrap_or_default();
            let is_short_lived = owner.is_none() && is_own(&namespace);
            let is_leaving = metadata.deletion_timestamp.is_some() || is_short_lived && !is_finished;
            let (name, uid) = (metadata.name.unwrap_or_default(), metadata.uid.unwrap_or_default());
            let key = PodKey { namespace, name, uid };
            match (is_leaving, owner.is_some() || is_finished) {
                (true, _) => drain.leaving.push(key),
                (false, true) => drain.evictable.push(key),
                (false, false) => drain.unmanaged.push(key),
            }
        }
        for pods in [&mut drain.evictable, &mut drain.leaving, &mut drain.unmanaged] {
            pods.sort();
        }
        drain
    }

    /// The same with what the API server last answered to an eviction, if that pod is still to be evicted.
    #[must_use]
    pub(crate) fn refused(mut self, refusal: Option<&EvictionRefusal>) -> Self {
        self.refusal = refusal.filter(|refusal| self.evictable.contains(&refusal.pod)).cloned();
        self
    }

    /// What the drain waits for.
    pub(crate) fn obstacle(&self) -> String {
        let count = self.evictable.len() + self.leaving.len();
        match (&self.refusal, self.evictable.first(), self.leaving.first()) {
            (Some(refusal), ..) => format!("{count} pods are left; {}: {}", refusal.pod, refusal.message),
            (None, Some(pod), _) => format!("{count} pods are left; {pod} is not evicted yet"),
            (None, None, Some(pod)) => format!("{count} pods are left; {pod} is ending"),
            (None, None, None) => "no pods are left".to_owned(),
        }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
