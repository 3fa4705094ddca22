//! Settings that are not emulated are refused.

use super::*;
use crate::container::{NODE_AGENT, UNINSTALL};

#[test]
fn manifest_features_without_emulation_are_refused() {
    for (from, to, why) in [
        ("hostNetwork: true", "hostNetwork: false", "a network of its own"),
        ("hostNetwork: true", "hostPID: true\n      hostNetwork: true", "hostPID"),
        ("privileged: false", "privileged: true", "privileged"),
        ("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "allowPrivilegeEscalation"),
        (r#"drop: ["ALL"]"#, r#"drop: ["CHOWN"]"#, "capabilities"),
        ("runAsUser: 0", "runAsUser: 1000", "another user"),
        ("type: RuntimeDefault", "type: Localhost", "Localhost"),
        ("optional: true", "optional: false", "must be there"),
        ("- serviceAccountToken:", "- secret:", "something else than a service account"),
        ("name: sysctls, mountPath", "name: others, mountPath", "no volume others"),
        ("fieldPath: metadata.name }", "fieldPath: metadata.uid }", "neither a value nor is it the name of the pod"),
        ("kind: DaemonSet", "kind: Deployment", "there is none"),
    ] {
        let changed = NODE_AGENT.replacen(from, to, 1);
        assert_ne!(changed, NODE_AGENT, "{from}");
        let error = read(&changed, &[], ContainerChoice::Only).unwrap_err();
        assert!(error.contains(why), "{to}: {error}");
    }
}

#[test]
fn an_init_container_is_read_only_on_request() {
    assert_eq!(read(UNINSTALL, &[], ContainerChoice::Only).unwrap_err(), "it has init containers");
    assert_eq!(read(NODE_AGENT, &[], ContainerChoice::Init).unwrap_err(), "0 containers");
    for (which, word) in [(ContainerChoice::Init, "uninstall"), (ContainerChoice::Last, "idle")] {
        let container = read(UNINSTALL, &[], which).unwrap();
        assert_eq!(container.command, ["/usr/local/bin/oke-cni-installer", word]);
    }
}

#[test]
fn another_user_than_root_is_emulated_only_without_privileges() {
    // The last of each is that container's.
    let changed = |from: &str, to: &str| {
        let (before, after) = UNINSTALL.rsplit_once(from).unwrap();
        format!("{before}{to}{after}")
    };
    for more in [
        changed(r#"drop: ["ALL"]"#, "drop: [\"ALL\"]\n              add: [NET_RAW]"),
        changed("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
        changed(
            "          resources:",
            "          volumeMounts: [{ name: state, mountPath: /run }]\n          resources:",
        ),
    ] {
        assert_eq!(read(&more, &[], ContainerChoice::Last).unwrap_err(), "it has another user than root");
    }
}
