//! Which pods leave a node, as `kubectl drain --ignore-daemonsets` chooses them. Pure.

use api::node_task::Reboot;
use api::{Received, lenient, lenient_list};
use k8s_openapi::jiff::Timestamp;
use kube::core::{Object, ObjectMeta};
use serde::Deserialize;
use serde::de::IgnoredAny;

pub(crate) use crate::node_task::reboot_state::{EvictionRefusal, PodKey};

/// A Pod as received: fields that are not named here are not even read.
pub(crate) type DrainedPod = Object<DrainedPodSpec, DrainedPodStatus>;

/// Of a Pod's spec, which can hold secrets, only the kinds of its volumes are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DrainedPodSpec {
    #[serde(deserialize_with = "lenient_list")]
    volumes: Vec<DrainedVolume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DrainedVolume {
    #[serde(deserialize_with = "lenient")]
    empty_dir: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DrainedPodStatus {
    phase: Option<String>,
}

/// What is left to do on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drain {
    pub evictable: Vec<PodKey>,
    /// They end by themselves: they are being deleted, or are short-lived ones of our own.
    pub leaving: Vec<PodKey>,
    /// The task does not permit to evict them, and why.
    pub kept: Vec<(PodKey, &'static str)>,
    /// The last refusal of an eviction, of a pod that is still there.
    pub refusal: Option<EvictionRefusal>,
}

/// What decides about pods besides themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainRules {
    pub reboot: Reboot,
    /// Whether the node's kubelet answers: without it no pod ends.
    pub is_node_ready: bool,
    pub now: Timestamp,
    /// Whether a namespace is one of our short-lived Pods.
    pub is_own: fn(&str) -> bool,
}

/// A pod, apart from its metadata.
#[derive(Clone, Copy, Debug)]
struct PodState {
    is_finished: bool,
    has_empty_dir: bool,
}

/// Of the kubelet: a Pod from a file of the node.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How long the drain waits for a pod beyond its grace period, on a node without a kubelet.
const OVERDUE_SECONDS: i64 = 30;
const BARE: &str = "no controller would recreate it; the task lacks evictBarePods";
const EMPTY_DIR: &str = "its emptyDir volume would be lost; the task lacks deleteEmptyDirData";

impl Drain {
    /// What the pods of a node require.
    pub(crate) fn of(pods: Vec<Received<DrainedPod>>, rules: DrainRules) -> Self {
        let mut drain = Self::default();
        for pod in pods {
            // Of a pod that cannot be read the metadata suffice.
            let (metadata, phase, has_empty_dir) = match pod.0 {
                Ok(pod) => {
                    let has_empty_dir = pod.spec.volumes.iter().any(|volume| volume.empty_dir.is_some());
                    (pod.metadata, pod.status.and_then(|status| status.phase), has_empty_dir)
                }
                Err(unreadable) => (unreadable.metadata, None, true),
            };
            let is_finished = matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
            drain.add(metadata, PodState { is_finished, has_empty_dir }, rules);
        }
        drain.evictable.sort();
        drain.leaving.sort();
        drain.kept.sort();
        drain
    }

    fn add(&mut self, metadata: ObjectMeta, state: PodState, rules: DrainRules) {
        let PodState { is_finished, has_empty_dir } = state;
        let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let is_mirror = metadata.annotations.iter().flatten().any(|(key, _)| key == MIRROR);
        let is_of_daemon_set = owner.is_some_and(|owner| owner.kind == "DaemonSet");
        if is_mirror || is_of_daemon_set && !is_finished {
            return;
        }
        let is_bare = owner.is_none();
        let namespace = metadata.namespace.unwrap_or_default();
        let is_short_lived = is_bare && !is_finished && (rules.is_own)(&namespace);
        let (name, uid) = (metadata.name.unwrap_or_default(), metadata.uid.unwrap_or_default());
        let key = PodKey { namespace, name, uid };
        if let Some(end) = metadata.deletion_timestamp {
            let is_overdue = end.0.as_second() + OVERDUE_SECONDS < rules.now.as_second();
            // The reset ends it, too.
            if rules.is_node_ready || !is_overdue {
                self.leaving.push(key);
            }
        } else if is_short_lived {
            self.leaving.push(key);
        } else if is_bare && !is_finished && !rules.reboot.evict_bare_pods {
            self.kept.push((key, BARE));
        } else if has_empty_dir && !is_finished && !rules.reboot.delete_empty_dir_data {
            self.kept.push((key, EMPTY_DIR));
        } else {
            self.evictable.push(key);
        }
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
