//! Side by side with OKE's own CNI, and in its place.

use std::fs;

use crate::node::Node;

const OKE: &str = r#"{"cniVersion":"0.3.1","name":"oci","plugins":[{"type":"oci-ipvlan"},{"type":"oci-ptp"}]}"#;
const TAKEOVER: [&str; 4] = ["--node-label", "true", "--usable", "--takeover"];

fn node() -> Node {
    let node = Node::new();
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    node
}

#[test]
fn where_okes_own_cni_is_nothing_is_installed_and_the_reason_is_told() {
    let node = node();
    let before = node.snapshot();
    for (arguments, decided) in [
        (&["--node-label", "true", "--usable"][..], "oke-conflist"),
        (&["--node-label", "true", "--usable", "--oke-daemonset", "present"], "oke-conflist"),
        (&["--pod-network", "vcn-native", "--usable"], "oke-conflist"),
    ] {
        let (code, text) = node.run(arguments);
        assert_eq!(code, 0, "{text}");
        assert!(text.starts_with(&format!("decision: leave alone ({decided}): 10-oci.conflist is present")), "{text}");
        assert_eq!(node.snapshot(), before);
    }
    fs::remove_file(node.path("net.d/10-oci.conflist")).unwrap();
    let (_, text) = node.run(&["--node-label", "true", "--usable", "--oke-daemonset", "present"]);
    assert!(
        text.starts_with("decision: leave alone (oke-daemonset): the DaemonSet vcn-native-ip-cni exists"),
        "{text}"
    );
    assert_eq!(node.names(), Vec::<String>::new());
}

#[test]
fn takeover_waits_until_no_pod_of_its_network_lives_here() {
    let node = node();
    fs::write(node.path("cache/results/oci-0123abcd-eth0"), "{}").unwrap();
    let (code, text) = node.run(&TAKEOVER);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.starts_with("decision: leave alone (oke-pods): takeover is set, but pods of OKE's own CNI live"),
        "{text}"
    );
    assert!(text.contains("oci-0123abcd-eth0") && text.contains("drain it"), "{text}");
    assert_eq!(node.names(), ["net.d/10-oci.conflist"]);

    fs::remove_file(node.path("cache/results/oci-0123abcd-eth0")).unwrap();
    fs::create_dir_all(node.path("shm/used/10.0.32.7")).unwrap();
    assert!(node.run(&TAKEOVER).1.contains("(oke-pods)"));
    fs::remove_dir_all(node.path("shm")).unwrap();

    let (code, text) = node.run(&TAKEOVER);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.names(), ["bin/vcn-native", "net.d/05-vcn-native.conflist", "net.d/10-oci.conflist"]);
    assert_eq!(fs::read_to_string(node.path("net.d/10-oci.conflist")).unwrap(), OKE, "theirs is not touched");

    fs::write(node.path("cache/results/vcn-native-0123-eth0"), "{}").unwrap();
    let (_, text) = node.run(&TAKEOVER);
    assert!(text.contains("status: installed"), "our own pods do not undo it: {text}");
}

#[test]
fn takeover_is_refused_where_pods_cannot_be_looked_for() {
    let node = node();
    fs::remove_dir_all(node.path("cache")).unwrap();
    let (code, text) = node.run_plainly(&TAKEOVER);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("(oke-pods)") && text.contains("cannot be told"), "{text}");
    assert_eq!(node.names(), ["net.d/10-oci.conflist"]);
}
