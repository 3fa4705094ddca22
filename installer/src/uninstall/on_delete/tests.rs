//! The DaemonSets of a namespace, and what they mean for an agent that is stopped and for the uninstaller.

use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::super::daemon_sets::DaemonSets;
use super::*;

fn sets(named: &[(&str, &str)]) -> DaemonSets {
    let object = |(name, account): &(&str, &str)| -> DynamicObject {
        let pod = json!({ "serviceAccountName": account });
        let object: Value = json!({ "metadata": { "name": name }, "spec": { "template": { "spec": pod } } });
        serde_json::from_value(object).unwrap()
    };
    DaemonSets::of(named.iter().map(object).collect())
}

#[test]
fn own_daemonset_is_deleted_only_with_all_others() {
    use OwnDaemonSet::{Deleted, OthersPresent, Present};
    let agent = "oke-node-agent";
    for (all, expected) in [
        (sets(&[]), Deleted),
        (sets(&[("other", "other"), ("oke-node-uninstall", "oke-node-uninstall")]), Deleted),
        (sets(&[("oke-node-agent-pilot", agent), (agent, agent)]), Present),
        (sets(&[("oke-node-agent-pilot", "an account of the operator's own")]), Present),
        (sets(&[(agent, agent), ("oke-node-agent-gpu", agent)]), OthersPresent(format!("{agent}, oke-node-agent-gpu"))),
    ] {
        assert_eq!(state("oke-node-agent-pilot", &all), expected, "{all:?}");
    }
}

#[test]
fn only_deleted_daemonsets_mean_uninstall() {
    let refused = |all| refusal(&all).unwrap_or_default();
    assert_eq!(refused(Ok(sets(&[("other", "other")]))), "");
    let two = sets(&[("oke-node-agent", "oke-node-agent"), ("blue", "oke-node-agent")]);
    for (all, reason) in
        [(Ok(two), "again: oke-node-agent, blue. Delete"), (Err("the cause".to_owned()), "may still exist (the cause)")]
    {
        let text = refused(all);
        assert!(text.contains(reason) && text.contains("--force"), "{text}");
    }
}

#[test]
fn daemonset_name_is_found_in_its_pods_name_alone() {
    for (pod, name) in [
        ("oke-node-agent-7k2xp", Some("oke-node-agent")),
        ("oke-node-agent-pilot-7k2xp", Some("oke-node-agent-pilot")),
        ("a-7k2xp", Some("a")),
        ("oke-node-agent", None),
        ("oke-node-agent-10-0-0-7", None),
        ("oke-node-agent-7K2XP", None),
        ("-7k2xp", None),
        ("", None),
    ] {
        assert_eq!(daemon_set_of(pod), name, "{pod}");
    }
}
