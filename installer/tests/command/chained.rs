//! `vnic-attach` on a node whose pod network is another's: by a copy of its configuration that sorts first.

use std::fs;

use serde_json::{Value, json};

use crate::node::{Node, PLUGIN, PORTMAP};

/// As Flannel's manifest has it, with what people put into it.
const FLANNEL: &str = "{\n  \"name\": \"cbr0\",\n  \"cniVersion\": \"0.3.1\",\n  \"plugins\": [\n    {\n      \
                       \"type\": \"flannel\",\n      \"delegate\": {\n        \"hairpinMode\": true,\n        \
                       \"isDefaultGateway\": true,\n        \"mtu\": 12345678901234567890\n      }\n    },\n    {\n      \
                       \"type\": \"portmap\",\n      \"capabilities\": {\n        \"portMappings\": true\n      }\n    }\n  \
                       ]\n}\n";
const ON: [&str; 2] = ["--signal-node-label=false", "--vnic-attach=on"];
const COPY: &str = "net.d/00-vnic-attach.conflist";

fn node(text: &str) -> Node {
    let node = Node::new();
    node.executable("source/vnic-attach", PLUGIN);
    fs::write(node.path("net.d/10-flannel.conflist"), text).unwrap();
    node
}

/// The copy without our plugin, which is its last.
fn copied(node: &Node) -> Value {
    let mut copy = node.document(COPY);
    let ours = copy["plugins"].as_array_mut().unwrap().pop().unwrap();
    assert_eq!(ours["type"], "vnic-attach");
    assert_eq!(ours["capabilities"]["io.kubernetes.cri.pod-annotations"], true);
    copy
}

#[test]
fn copy_follows_its_source_which_stays_as_it_is() {
    let node = node(FLANNEL);
    let (code, printed) = node.run(&["--signal-node-label=false"]);
    assert!(code == 0 && !printed.contains("did: "), "auto does nothing here: {printed}");
    for text in [FLANNEL.to_owned(), FLANNEL.replace("true", "false"), FLANNEL.replace("cbr0", "cbr1")] {
        fs::write(node.path("net.d/10-flannel.conflist"), &text).unwrap();
        let (code, printed) = node.run(&ON);
        assert!(code == 0 && printed.contains("00-vnic-attach.conflist with vnic-attach"), "{printed}");
        assert_eq!(copied(&node), node.document("net.d/10-flannel.conflist"));
        assert_eq!(fs::read_to_string(node.path("net.d/10-flannel.conflist")).unwrap(), text);
        assert_eq!(node.names(), ["bin/vnic-attach", COPY, "net.d/10-flannel.conflist"]);
        let (_, again) = node.run(&ON);
        assert!(!again.contains("did: "), "{again}");
    }
    fs::remove_file(node.path("net.d/10-flannel.conflist")).unwrap();
    let (code, printed) = node.run(&ON);
    assert!(code == 0 && printed.contains("did: remove ") && printed.contains("[not-chained]"), "{printed}");
    assert!(!node.path(COPY).exists());
}

#[test]
fn a_single_plugins_configuration_is_copied_as_a_list() {
    let node = node(FLANNEL);
    fs::write(node.path("net.d/05-x.conf"), r#"{"cniVersion": "1.0.0", "name": "x", "type": "ptp", "mtu": 9000}"#)
        .unwrap();
    node.run(&ON);
    let expected = json!({"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "ptp", "mtu": 9000}]});
    assert_eq!(copied(&node), expected);
}

#[test]
fn copy_is_of_the_configuration_whose_plugins_make_an_interface() {
    let node = node(FLANNEL);
    for plugin in ["istio-cni", "linkerd-cni", "portmap", "loopback"] {
        let alone = format!(r#"{{"name": "alone", "cniVersion": "0.3.1", "type": "{plugin}"}}"#);
        fs::write(node.path("net.d/05-alone.conf"), alone).unwrap();
        let (code, printed) = node.run(&ON);
        assert_eq!((code, copied(&node)), (0, node.document("net.d/10-flannel.conflist")), "{plugin}: {printed}");
    }
}

#[test]
fn copy_lists_plugins_that_its_source_has_only_in_a_folder() {
    let node = node(r#"{"name": "cbr0", "cniVersion": "1.0.0"}"#);
    fs::create_dir(node.path("net.d/cbr0")).unwrap();
    for (name, kind) in [("20-b", "portmap"), ("10-a", "flannel")] {
        fs::write(node.path(&format!("net.d/cbr0/{name}.conf")), format!(r#"{{"type": "{kind}"}}"#)).unwrap();
    }
    node.run(&ON);
    let (plugins, inline) = (json!([{"type": "flannel"}, {"type": "portmap"}]), true);
    let expected = json!({"name": "cbr0", "cniVersion": "1.0.0", "loadOnlyInlinedPlugins": inline, "plugins": plugins});
    assert_eq!(copied(&node), expected);
}

#[test]
fn configuration_that_sorts_before_the_copy_is_noted() {
    let node = node(FLANNEL);
    let list = |kind: &str| format!(r#"{{"name": "x", "cniVersion": "0.3.1", "plugins": [{{"type": "{kind}"}}]}}"#);
    for (file, kind, next_step) in [
        ("00-calico.conflist", "calico", Some("rename it so that it sorts later")),
        ("00-VNIC.conflist", "calico", Some("rename it so that it sorts later")),
        ("00-multus.conflist", "multus", Some("request extra interfaces by a NetworkAttachmentDefinition")),
        ("00-vnic-b.conflist", "calico", None),
        ("00-a.conflist", "no-binary", None),
    ] {
        ["calico", "multus"].iter().for_each(|binary| node.executable(&format!("bin/{binary}"), PLUGIN));
        fs::write(node.path("net.d").join(file), list(kind)).unwrap();
        let (code, printed) = node.run(&ON);
        let before = format!("{file} sorts before 00-vnic-attach.conflist");
        let noted = printed.lines().find(|line| line.contains(&before));
        assert_eq!((code, noted.is_some(), node.path(COPY).exists()), (0, next_step.is_some(), true), "{printed}");
        let complete = |line: &str| line.contains(next_step.unwrap()) && line.ends_with("[sorts-before-copy]");
        assert!(noted.is_none_or(complete), "{printed}");
        fs::remove_file(node.path("net.d").join(file)).unwrap();
    }
}

#[test]
fn copy_is_repaired_until_another_program_changes_it_repeatedly() {
    let node = node(FLANNEL);
    for _ in 0..6 {
        let (code, printed) = node.run(&ON);
        assert!(code == 0, "{printed}");
        copied(&node);
        fs::write(node.path(COPY), FLANNEL).unwrap();
    }
    let (code, printed) = node.run(&ON);
    assert!(code == 1 && printed.contains("it was changed") && printed.contains("[contention]"), "{printed}");
}

#[test]
fn nothing_is_copied_without_binary_version_or_source() {
    let node = node(FLANNEL);
    fs::remove_file(node.path("source/vnic-attach")).unwrap();
    let (code, printed) = node.run(&ON);
    assert!(code == 0 && printed.contains("its binary is missing [not-chained]"), "{printed}");
    node.executable("source/vnic-attach", &PLUGIN.replace("\"0.3.1\",", ""));
    let (_, printed) = node.run(&ON);
    assert!(printed.contains("is written for CNI 0.3.1, which our plugin does not speak [not-chained]"), "{printed}");
    node.executable("source/vnic-attach", PLUGIN);
    fs::write(node.path("net.d/10-flannel.conflist"), "{").unwrap();
    let (_, printed) = node.run(&ON);
    assert!(printed.contains("there is no configuration of another pod network yet"), "{printed}");
    assert!(!node.path(COPY).exists());
}

#[test]
fn copy_is_removed_when_our_network_or_setting_replaces_it() {
    for after in [
        ["--signal-node-label=true", "--cni-usable", "--vnic-attach=on"],
        ["--signal-node-label=false", "--cni-usable", "--vnic-attach=off"],
    ] {
        let node = node(FLANNEL);
        node.run(&ON);
        let (code, printed) = node.run(&after);
        assert!(code == 0 && printed.contains("did: remove "), "{printed}");
        assert!(!node.path(COPY).exists() && node.path("net.d/10-flannel.conflist").exists());
    }
}

#[test]
fn own_configuration_lists_vnic_attach_last_when_image_has_it() {
    let node = Node::new();
    node.executable("bin/portmap", PORTMAP);
    let (_, printed) = node.run(&["--signal-node-label=true", "--cni-usable"]);
    assert!(!printed.contains("vnic-attach"), "an image without it: {printed}");
    node.executable("source/vnic-attach", PLUGIN);
    for setting in ["--vnic-attach=auto", "--vnic-attach=off", "--vnic-attach=on"] {
        node.run(&["--signal-node-label=true", "--cni-usable", setting]);
        let expected: &[_] = if setting.ends_with("off") {
            &["vcn-native", "portmap"]
        } else {
            &["vcn-native", "portmap", "vnic-attach"]
        };
        assert_eq!(node.kinds(), expected, "{setting}");
    }
}
