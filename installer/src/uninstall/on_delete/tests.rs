//! Every answer of the API server, and what it means.

use kube::core::Status;
use kube::core::response::StatusDetails;

use super::*;

#[test]
fn only_a_deleted_daemonset_means_uninstall() {
    for (answer, uninstall) in [
        (OwnDaemonSet::Present, false),
        (OwnDaemonSet::Deleting, true),
        (OwnDaemonSet::NotFound, true),
        (OwnDaemonSet::Unauthorized, false),
        (OwnDaemonSet::Forbidden, false),
        (OwnDaemonSet::Unreachable, false),
    ] {
        assert_eq!(answer.means_uninstall(), uninstall, "{answer:?}");
        let refused = refusal("agent", answer, Some("the cause"));
        assert_eq!(refused.is_none(), uninstall);
        let doubt = format!("({}: the cause)", answer.as_str());
        let reason = if answer == OwnDaemonSet::Present { "the DaemonSet agent exists" } else { &doubt };
        assert!(refused.is_none_or(|text| text.contains(reason) && text.contains("--force")), "{answer:?}");
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
        (status(404, "daemonsets", "agent"), OwnDaemonSet::NotFound),
        (status(404, "daemonsets", "other"), OwnDaemonSet::Unreachable),
        (status(404, "namespaces", "agent"), OwnDaemonSet::Unreachable),
        (Status { code: 404, ..Status::default() }, OwnDaemonSet::Unreachable),
        (status(429, "daemonsets", "agent"), OwnDaemonSet::Unreachable),
        (status(503, "daemonsets", "agent"), OwnDaemonSet::Unreachable),
        (status(401, "", ""), OwnDaemonSet::Unauthorized),
        (status(403, "daemonsets", "agent"), OwnDaemonSet::Forbidden),
    ] {
        assert_eq!(meaning(&answer, "agent"), expected, "{answer:?}");
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
