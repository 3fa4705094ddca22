//! Names of revisions: hashes, so that two leaders give the same settings the same name.

use api::NodeSettings;
use api::node_policy::PolicyMode;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The revision of a policy: of its mode, priority and settings.
pub fn of_policy(mode: PolicyMode, priority: u16, settings: &NodeSettings) -> String {
    of(&(mode, priority, settings))
}

/// The place of a node in the order of a rollout: another one for each revision, so that not always the same node is first.
pub fn place(revision: &str, node: &str) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(revision.as_bytes());
    hasher.update([0]);
    hasher.update(node.as_bytes());
    hasher.finalize().into()
}

/// The first 16 hexadecimal digits of the SHA-256 of its JSON.
pub(crate) fn of(value: &impl Serialize) -> String {
    // Maps are sorted, and no value of these types fails.
    let text = serde_json::to_vec(value).unwrap_or_default();
    format!("{:x}", Sha256::digest(text)).chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> NodeSettings {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn revision_depends_on_the_values_and_not_on_their_order() {
        let revision = |text: &str| of_policy(PolicyMode::Apply, 100, &settings(text));
        let one = revision(r#"{"sysctls": {"vm.swappiness": "10", "vm.dirty_ratio": "20"}}"#);
        // A later version must give the same name, or each upgrade would be a rollout.
        assert_eq!(one, revision(r#"{"sysctls": {"vm.dirty_ratio": "20", "vm.swappiness": "10"}, "links": []}"#));
        assert_eq!(one, "3e025e771bee54cf", "as in 0.3.0");
        let same = settings(r#"{"sysctls": {"vm.swappiness": "10", "vm.dirty_ratio": "20"}}"#);
        for other in [
            revision(r#"{"sysctls": {"vm.swappiness": "10", "vm.dirty_ratio": "21"}}"#),
            of_policy(PolicyMode::Report, 100, &same),
            of_policy(PolicyMode::Apply, 101, &same),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn order_of_nodes_differs_between_revisions() {
        let first = |revision: &str| {
            (0..40).map(|number| format!("node-{number}")).min_by_key(|node| place(revision, node)).unwrap()
        };
        let firsts: std::collections::BTreeSet<String> = ["a", "b", "c", "d", "e", "f"].map(first).into();
        assert!(firsts.len() > 1, "{firsts:?}");
    }
}
