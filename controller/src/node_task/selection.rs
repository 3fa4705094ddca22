//! The nodes of a task: those that match when the task starts. A digest of them in the status distinguishes them from nodes that match later,
//! also after a change of the leader.

use std::collections::BTreeMap;

use api::NodeTask;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};
use tunables::revision::place;

use crate::cluster::store::NodeView;

/// All Nodes, by name.
pub(crate) type NodesByName<'a> = BTreeMap<&'a str, &'a NodeView>;

/// The bits of a digest for each node, and the most of all. With 16 for each, one of 400 other nodes is taken for a matched one; from
/// 128 nodes on, more.
const BITS_PER_NODE: usize = 16;
const BITS_MAX: usize = 2048;
/// The bits that a node sets.
const BITS_SET: usize = 4;

/// The nodes that a task selects now, in the order of their names.
///
/// # Errors
/// With what is wrong with the selector.
pub(crate) fn matching<'a>(task: &NodeTask, nodes: &NodesByName<'a>) -> Result<Vec<&'a NodeView>, String> {
    let spec = &task.spec;
    match (&spec.node, &spec.node_selector) {
        (Some(name), _) => Ok(nodes.get(name.as_str()).copied().into_iter().collect()),
        (None, None) => Err("the spec has neither node nor nodeSelector".to_owned()),
        (None, Some(selector)) => {
            let selector = Selector::try_from(selector.clone()).map_err(|error| error.to_string())?;
            Ok(nodes.values().copied().filter(|node| selector.matches(&node.labels.map())).collect())
        }
    }
}

/// The digest of these nodes: a Bloom filter, so that none of them is ever missing.
pub(crate) fn digest(task: &NodeTask, nodes: &[&NodeView]) -> String {
    let bits = (nodes.len() * BITS_PER_NODE).clamp(64, BITS_MAX).next_multiple_of(8);
    let mut filter = vec![0_u8; bits / 8];
    for node in nodes {
        for bit in bits_of(task, node, bits) {
            if let Some(byte) = filter.get_mut(bit / 8) {
                *byte |= 1 << (bit % 8);
            }
        }
    }
    STANDARD.encode(filter)
}

/// Whether a node matched when the task started: its uid is in the digest, and it is not younger than the task.
pub(crate) fn matched_at_start(task: &NodeTask, digest: &str, node: &NodeView) -> bool {
    let Ok(filter) = STANDARD.decode(digest) else { return false };
    let bits = filter.len() * 8;
    let has = |bit: usize| filter.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0);
    !is_younger(task, node) && bits > 0 && bits_of(task, node, bits).into_iter().all(has)
}

/// Whether a Node is younger than a task with a selector. A named one may be: the task names it.
pub(crate) fn is_younger(task: &NodeTask, node: &NodeView) -> bool {
    let created = task.creation_timestamp().filter(|_| task.spec.node.is_none());
    created.is_some_and(|task| node.created.is_some_and(|node| node > task.0))
}

/// A Node that was created again under its name is another one.
fn bits_of(task: &NodeTask, node: &NodeView, bits: usize) -> [usize; BITS_SET] {
    let hash = place(&task.uid().unwrap_or_default(), node.uid.as_deref().unwrap_or(&node.name));
    let word =
        |index: usize| hash.iter().skip(index * 4).take(4).fold(0_usize, |all, byte| all << 8 | usize::from(*byte));
    std::array::from_fn(|index| word(index) % bits)
}

/// Whether only metadata and status are known of a task: every other one has a node or a selector. It is not run, and its status not written.
pub(super) const fn is_unreadable(task: &NodeTask) -> bool {
    task.spec.node.is_none() && task.spec.node_selector.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task() -> NodeTask {
        let spec = json!({ "nodeSelector": { "matchLabels": { "pool": "web" } }, "action": { "growRootDisk": {} } });
        let metadata = json!({ "name": "t", "uid": "u", "creationTimestamp": "2026-11-29T00:00:00Z" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn view(uid: &str, created: &str) -> NodeView {
        let (name, uid) = ("node".to_owned(), Some(uid.to_owned()));
        NodeView { name, uid, created: Some(created.parse().unwrap()), ..NodeView::default() }
    }

    #[test]
    fn digest_has_all_matched_nodes_and_few_others() {
        for (count, most) in [(1, 1), (100, 4), (200, 40)] {
            let before = "2026-11-28T00:00:00Z";
            let nodes: Vec<NodeView> = (0..count).map(|number| view(&format!("node-{number}"), before)).collect();
            let digest = digest(&task(), &nodes.iter().collect::<Vec<_>>());
            assert!(digest.len() <= 344, "{}", digest.len());
            assert!(nodes.iter().all(|node| matched_at_start(&task(), &digest, node)));
            let others = (0..1000)
                .filter(|number| matched_at_start(&task(), &digest, &view(&format!("other-{number}"), before)));
            assert!(others.count() <= most, "of 1000 others, for {count}");
            assert!(!matched_at_start(&task(), &digest, &view("node-0", "2026-11-29T00:00:01Z")), "a younger Node");
        }
        assert!(!matched_at_start(&task(), "", &view("node-0", "2026-11-28T00:00:00Z")));
    }
}
