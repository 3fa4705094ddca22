//! Every answer, and what it means.

use super::*;

#[test]
fn a_daemonset_that_is_there_means_that_we_return() {
    let answer = OwnDaemonSet::Present { deleting: false };
    assert_eq!(departure(answer), Departure::Returning(Reason::DaemonSetPresent));
}

#[test]
fn a_daemonset_that_is_gone_or_going_means_that_we_leave() {
    for (answer, reason) in [
        (OwnDaemonSet::NotFound, Reason::DaemonSetGone),
        (OwnDaemonSet::Present { deleting: true }, Reason::DaemonSetDeleting),
    ] {
        assert_eq!(departure(answer), Departure::Leaving(reason));
    }
}

#[test]
fn in_doubt_everything_stays() {
    for (answer, reason) in [
        (OwnDaemonSet::Unauthorized, Reason::Unauthorized),
        (OwnDaemonSet::Forbidden, Reason::Forbidden),
        (OwnDaemonSet::Unreachable, Reason::Unreachable),
    ] {
        assert_eq!(departure(answer), Departure::Returning(reason));
    }
}

#[test]
fn the_uninstaller_goes_on_only_where_the_daemonset_is_gone_or_going() {
    let refusal = |answer, why| returning("agent", answer, why);
    assert_eq!(refusal(OwnDaemonSet::NotFound, Some("not found")), None);
    assert_eq!(refusal(OwnDaemonSet::Present { deleting: true }, None), None);
    let present = refusal(OwnDaemonSet::Present { deleting: false }, None).unwrap();
    assert!(present.starts_with("the DaemonSet agent exists") && present.contains("delete it first"), "{present}");
    for (answer, word) in [
        (OwnDaemonSet::Unauthorized, "unauthorized"),
        (OwnDaemonSet::Forbidden, "forbidden"),
        (OwnDaemonSet::Unreachable, "unreachable"),
    ] {
        let doubt = refusal(answer, Some("its words")).unwrap();
        assert!(doubt.contains(&format!("unknown ({word}: its words)")) && doubt.contains("--force"), "{doubt}");
    }
}

#[test]
fn a_pod_of_a_daemonset_tells_its_name_and_no_other_pod_does() {
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
