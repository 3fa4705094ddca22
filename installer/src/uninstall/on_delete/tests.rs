//! Every answer of the API server, and what it means.

use super::*;

#[test]
fn only_a_deleted_daemonset_means_uninstall() {
    for (answer, expected) in [
        (OwnDaemonSet::Present { deleting: false }, Shutdown::Restart(Reason::DaemonSetPresent)),
        (OwnDaemonSet::Present { deleting: true }, Shutdown::Uninstall(Reason::DaemonSetDeleting)),
        (OwnDaemonSet::NotFound, Shutdown::Uninstall(Reason::DaemonSetGone)),
        (OwnDaemonSet::Unauthorized, Shutdown::Restart(Reason::Unauthorized)),
        (OwnDaemonSet::Forbidden, Shutdown::Restart(Reason::Forbidden)),
        (OwnDaemonSet::Unreachable, Shutdown::Restart(Reason::Unreachable)),
    ] {
        assert_eq!(shutdown(answer), expected);
        let refused = refusal("agent", answer, Some("the cause"));
        match expected {
            Shutdown::Uninstall(_) => assert_eq!(refused, None),
            Shutdown::Restart(Reason::DaemonSetPresent) => {
                assert!(refused.unwrap().starts_with("the DaemonSet agent exists"));
            }
            Shutdown::Restart(reason) => {
                let refused = refused.unwrap();
                let cause = format!("({}: the cause)", reason.word());
                assert!(refused.contains(&cause) && refused.contains("--force"), "{refused}");
            }
        }
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
