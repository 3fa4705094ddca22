//! The DaemonSets of this pod's namespace: which of them run agents, and whether these leave the uninstaller's nodes alone. A
//! DaemonSet is recognized by the service account of its pods, because its name and its labels are the operator's choice.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use resident::api_server;
use resident::logging::chain;
use serde::Deserialize;
use serde_json::Value;

/// The account of the agents' pods, whose rights an agent needs.
const AGENT_ACCOUNT: &str = "oke-node-agent";

/// The account of the uninstaller's pods.
const UNINSTALLER_ACCOUNT: &str = "oke-node-uninstall";

/// More DaemonSets than any installation has in its namespace.
const MAX_LISTED: u32 = 500;

/// The DaemonSets of a namespace that are not being deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DaemonSets(Vec<DaemonSet>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct DaemonSet {
    name: String,
    /// None if it cannot be read: it may run agents on any node.
    pod: Option<PodSpec>,
}

/// The part of a pod template's spec that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    service_account_name: String,
    node_selector: BTreeMap<String, String>,
    affinity: Affinity,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: NodeAffinity,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: RequiredTerms,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RequiredTerms {
    node_selector_terms: Vec<Term>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl DaemonSets {
    /// The DaemonSets of the namespace that the kubelet mounts with this pod's token. The error is the reason why they are unknown.
    pub(crate) async fn read() -> Result<Self, String> {
        let (client, _) = api_server::client()?;
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("apps", "v1", "DaemonSet"), "daemonsets");
        let api: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
        let list = match api.list(&ListParams::default().limit(MAX_LISTED)).await {
            Ok(list) => list,
            Err(kube::Error::Api(status)) => return Err(format!("{} {}", status.code, status.message)),
            Err(error) => return Err(chain(&error)),
        };
        // A proxy before the API server may answer 200, too, but with another document.
        if list.types.kind != "DaemonSetList" {
            return Err(format!("the answer is not a list of DaemonSets but {:?}", list.types.kind));
        }
        if list.metadata.continue_.is_some_and(|more| !more.is_empty()) {
            return Err(format!("the namespace has more than {MAX_LISTED} DaemonSets"));
        }
        Ok(Self::of(list.items))
    }

    pub(super) fn of(objects: Vec<DynamicObject>) -> Self {
        let live = objects.into_iter().filter(|object| object.metadata.deletion_timestamp.is_none());
        Self(live.map(DaemonSet::of).collect())
    }

    /// Whether one has this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|set| set.name == name)
    }

    /// The names of those that run agents.
    pub(crate) fn agents(&self) -> Vec<&str> {
        self.0.iter().filter(|set| set.may_run(AGENT_ACCOUNT)).map(|set| set.name.as_str()).collect()
    }

    /// Whether no agent can be on a node of the uninstaller: the uninstaller's pods select nodes by labels that every agent's
    /// DaemonSet excludes.
    pub(crate) fn are_released(&self) -> bool {
        let uninstallers: Vec<&PodSpec> = self.pods_of(UNINSTALLER_ACCOUNT).collect();
        let agents = || self.0.iter().filter(|set| set.may_run(AGENT_ACCOUNT));
        let excludes = |set: &DaemonSet, labels| set.pod.as_ref().is_some_and(|pod| pod.excludes(labels));
        !uninstallers.is_empty() && uninstallers.iter().all(|pod| agents().all(|set| excludes(set, &pod.node_selector)))
    }

    fn pods_of(&self, account: &str) -> impl Iterator<Item = &PodSpec> {
        self.0.iter().filter_map(|set| set.pod.as_ref()).filter(move |pod| pod.service_account_name == account)
    }
}

impl DaemonSet {
    fn of(object: DynamicObject) -> Self {
        let pod = object.data.pointer("/spec/template/spec").cloned().unwrap_or(Value::Null);
        Self { name: object.metadata.name.unwrap_or_default(), pod: serde_json::from_value(pod).ok() }
    }

    fn may_run(&self, account: &str) -> bool {
        self.pod.as_ref().is_none_or(|pod| pod.service_account_name == account)
    }
}

impl PodSpec {
    /// Whether it runs on no node that has these labels: each term must refuse them, because one matching term suffices.
    fn excludes(&self, labels: &BTreeMap<String, String>) -> bool {
        let terms = &self.affinity.node_affinity.required.node_selector_terms;
        let refuses = |term: &Term| term.match_expressions.iter().any(|it| it.refuses(labels));
        !terms.is_empty() && terms.iter().all(refuses)
    }
}

impl Requirement {
    fn refuses(&self, labels: &BTreeMap<String, String>) -> bool {
        let Some(value) = labels.get(&self.key) else { return false };
        match self.operator.as_str() {
            "DoesNotExist" => true,
            "NotIn" => self.values.contains(value),
            "In" => !self.values.contains(value),
            _ => false,
        }
    }
}
