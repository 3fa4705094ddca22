//! Which Nodes a command shows: by node pool, and by labels.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use k8s_openapi::api::core::v1::Node;
use vcn::Ocid;

use crate::args::NodeSelection;
use crate::cluster::Cluster;

/// The annotation with the OCID of a node pool, which OKE sets.
const POOL: &str = "oci.oraclecloud.com/node-pool-id";
/// The fewest characters of an OCID's end.
const END_MIN: usize = 6;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SelectedNodes {
    /// The Node of each instance, as far as it is known.
    instances: BTreeMap<Ocid, String>,
    names: BTreeSet<String>,
}

/// Reads the Nodes of a selection; `None` if all are selected.
///
/// # Errors
/// When Nodes cannot be listed, or none is selected.
pub(crate) async fn selected(cluster: &Cluster, selection: &NodeSelection) -> anyhow::Result<Option<SelectedNodes>> {
    if *selection == NodeSelection::default() {
        return Ok(None);
    }
    let nodes = cluster.nodes_with(selection.labels.as_deref()).await?;
    let found = SelectedNodes::of(&nodes, selection.pool.as_deref());
    if found.names.is_empty() {
        bail!("no Node is selected: {} with these labels, and the annotation {POOL} names their pools", nodes.len());
    }
    Ok(Some(found))
}

impl SelectedNodes {
    fn of(nodes: &[Node], pool: Option<&str>) -> Self {
        let mut found = Self::default();
        for node in nodes {
            let annotations = node.metadata.annotations.as_ref();
            let of = annotations.and_then(|all| all.get(POOL)).map(String::as_str).unwrap_or_default();
            if pool.is_some_and(|pool| !is_pool(of, pool)) {
                continue;
            }
            let name = node.metadata.name.clone().unwrap_or_default();
            let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
            if let Ok(instance) = api::instance_of(provider) {
                found.instances.insert(instance, name.clone());
            }
            found.names.insert(name);
        }
        found
    }

    pub(crate) fn has(&self, node: &str) -> bool {
        self.names.contains(node)
    }

    pub(crate) fn has_instance(&self, instance: &Ocid) -> bool {
        self.instances.contains_key(instance)
    }
}

/// A pool by its OCID, or by the end of it, with or without the dots of a table.
fn is_pool(ocid: &str, chosen: &str) -> bool {
    let end = chosen.trim_start_matches('…');
    (ocid == chosen && !ocid.is_empty()) || (end.chars().count() >= END_MIN && ocid.ends_with(end))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_selected_by_their_pool() {
        let node = |name: &str, pool: serde_json::Value| {
            let metadata = json!({ "name": name, "annotations": pool });
            let spec = json!({ "providerID": format!("ocid1.instance.oc1.iad.{name}") });
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
        };
        let pool = |end: &str| json!({ POOL: format!("ocid1.nodepool.oc1.iad.aaaa{end}") });
        let nodes = [node("a", pool("blue01")), node("b", pool("green02")), node("c", json!(null))];
        let names =
            |pool: Option<&str>| SelectedNodes::of(&nodes, pool).names.into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(names(None), "a b c");
        for chosen in ["ocid1.nodepool.oc1.iad.aaaablue01", "blue01", "…blue01"] {
            assert_eq!(names(Some(chosen)), "a", "{chosen}");
        }
        // Too short to be meant, and none.
        assert_eq!((names(Some("01")), names(Some("")), names(Some("yellow03"))), Default::default());
        let selected = SelectedNodes::of(&nodes, Some("green02"));
        assert!(
            selected.has_instance(&"ocid1.instance.oc1.iad.b".parse().unwrap())
                && selected.has("b")
                && !selected.has("a")
        );
    }
}
