//! Every answer of the API server, and what it means.

use kube::core::Status;
use kube::core::response::StatusDetails;

use super::*;

#[test]
fn only_a_deleted_daemonset_means_uninstall() {
    let refused = |answer| refusal("agent", &answer).unwrap_or_default();
    assert_eq!(refused(Ok(true)), "");
    for (answer, reason) in
        [(Ok(false), "the DaemonSet agent exists"), (Err("the cause".to_owned()), "may still exist (the cause)")]
    {
        let text = refused(answer);
        assert!(text.contains(reason) && text.contains("--force"), "{text}");
    }
}

#[test]
fn daemonset_is_gone_only_when_the_404_names_it() {
    let status = |code, kind: &str, name: &str| {
        let details = StatusDetails {
            name: name.into(),
            group: "apps".into(),
            kind: kind.into(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        };
        Status { code, details: Some(details), ..Status::default() }
    };
    for (answer, expected) in [
        (status(404, "daemonsets", "agent"), true),
        (status(404, "daemonsets", "other"), false),
        (status(404, "namespaces", "agent"), false),
        (Status { code: 404, ..Status::default() }, false),
        (status(429, "daemonsets", "agent"), false),
        (status(503, "daemonsets", "agent"), false),
        (status(401, "", ""), false),
        (status(403, "daemonsets", "agent"), false),
    ] {
        assert_eq!(is_gone(&answer, "agent"), expected, "{answer:?}");
    }
}

#[test]
fn daemonset_name_is_found_in_its_pods_name_alone() {
    for (pod, name) in [
        ("oke-node-agent-7k2xp", Some("oke-node-agent")),
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
