//! Our plugin in another program's chain: Flannel's, on a node whose pod network is not ours.

use std::fs;

use crate::node::{Node, PLUGIN};

/// As Flannel's manifest has it, with what people put into it.
const FLANNEL: &str = "{\n  \"name\": \"cbr0\",\n  \"cniVersion\": \"0.3.1\",\n  \"plugins\": [\n    {\n      \
                       \"type\": \"flannel\",\n      \"delegate\": {\n        \"hairpinMode\": true,\n        \
                       \"isDefaultGateway\": true,\n        \"mtu\": 12345678901234567890\n      }\n    },\n    {\n      \
                       \"type\": \"portmap\",\n      \"capabilities\": {\n        \"portMappings\": true\n      }\n    }\n  \
                       ]\n}\n";
const CHAIN: [&str; 2] = ["--signal-node-label=false", "--cni-chain-into=10-flannel.conflist"];

fn node(text: &str) -> Node {
    let node = Node::new();
    node.executable("source/vnic-attach", PLUGIN);
    fs::write(node.path("net.d/10-flannel.conflist"), text).unwrap();
    node
}

fn conflist(node: &Node) -> String {
    fs::read_to_string(node.path("net.d/10-flannel.conflist")).unwrap()
}

#[test]
fn plugin_is_chained_last_and_taken_out_to_the_byte() {
    for text in [
        FLANNEL.to_owned(),
        FLANNEL.replace("  ", "\t"),
        FLANNEL.replace('\n', "\r\n"),
        FLANNEL.replace(['\n', ' '], ""),
        FLANNEL.replace("\n  ]\n}\n", " ] }"),
    ] {
        let node = node(&text);
        let (code, printed) = node.run(&CHAIN);
        assert_eq!(code, 0, "{printed}");
        assert!(printed.contains("did: chain vnic-attach into ") && printed.contains("did: install "), "{printed}");
        assert_eq!(node.names(), ["bin/vnic-attach", "net.d/10-flannel.conflist"], "nothing else of ours");
        let chained: serde_json::Value = serde_json::from_str(&conflist(&node)).unwrap();
        assert_eq!(chained["plugins"][2]["type"], "vnic-attach");
        assert_eq!(chained["plugins"][2]["capabilities"]["io.kubernetes.cri.pod-annotations"], true);
        let (_, again) = node.run(&CHAIN);
        assert!(!again.contains("did: "), "{again}");

        let (code, printed) = node.run(&["--signal-node-label=false"]);
        assert_eq!(code, 0, "{printed}");
        assert!(printed.contains("did: take vnic-attach out of "), "{printed}");
        assert_eq!(conflist(&node), text);
        let (_, again) = node.run(&["--signal-node-label=false"]);
        assert!(!again.contains("did: "), "{again}");
    }
}

#[test]
fn changes_of_other_programs_stay_when_it_is_taken_out() {
    let node = node(FLANNEL);
    node.run(&CHAIN);
    let more = conflist(&node).replace("\"hairpinMode\": true", "\"hairpinMode\": false");
    fs::write(node.path("net.d/10-flannel.conflist"), more.replace("\"name\"", "\"x\": 1, \"name\"")).unwrap();
    node.run(&["--signal-node-label=false"]);
    let expected = FLANNEL.replace("\"hairpinMode\": true", "\"hairpinMode\": false");
    let expected = expected.replace("\"name\"", "\"x\": 1, \"name\"");
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(&conflist(&node)), value(&expected));
}

#[test]
fn plugin_comes_back_after_flannels_restart_but_not_for_ever() {
    let node = node(FLANNEL);
    let chained = |node: &Node| conflist(node).contains("vnic-attach");
    for _ in 0..6 {
        let (code, printed) = node.run(&CHAIN);
        assert!(code == 0 && chained(&node), "{printed}");
        fs::write(node.path("net.d/10-flannel.conflist"), FLANNEL).unwrap();
    }
    let (code, printed) = node.run(&CHAIN);
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("plugin vnic-attach was removed") && printed.contains("[contention]"), "{printed}");
    assert_eq!(conflist(&node), FLANNEL);
}

#[test]
fn nothing_is_chained_without_binary_file_or_version() {
    let node = node(FLANNEL);
    fs::remove_file(node.path("source/vnic-attach")).unwrap();
    let (code, printed) = node.run(&CHAIN);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("its binary is missing [not-chained]"), "{printed}");
    assert_eq!(conflist(&node), FLANNEL);

    node.executable("source/vnic-attach", &PLUGIN.replace("\"0.3.1\",", ""));
    let (_, printed) = node.run(&CHAIN);
    assert!(
        printed.contains("it is written for CNI 0.3.1, which our plugin does not speak [not-chained]"),
        "{printed}"
    );
    node.executable("source/vnic-attach", PLUGIN);
    for (text, reason) in [("{", "it is no list of plugins"), (r#"{"type":"flannel"}"#, "it is no list of plugins")] {
        fs::write(node.path("net.d/10-flannel.conflist"), text).unwrap();
        let (_, printed) = node.run(&CHAIN);
        assert!(printed.contains(reason), "{printed}");
        assert_eq!(conflist(&node), text);
    }
    fs::remove_file(node.path("net.d/10-flannel.conflist")).unwrap();
    let (_, printed) = node.run(&CHAIN);
    assert!(printed.contains("there is no such file [not-chained]"), "{printed}");
}

#[test]
fn plugin_leaves_the_chain_when_the_pod_network_becomes_ours() {
    let node = node(FLANNEL);
    node.run(&CHAIN);
    let (code, printed) =
        node.run(&["--signal-node-label=true", "--cni-usable", "--cni-chain-into=10-flannel.conflist"]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("[not-chained]") && printed.contains("did: take vnic-attach out of "), "{printed}");
    assert_eq!(conflist(&node), FLANNEL);
    assert!(node.conflist().exists());
}
