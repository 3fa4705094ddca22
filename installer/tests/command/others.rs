//! What others put into our configuration, what they do to it, and what we remember of it over versions.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::node::{Node, PORTMAP, mode};

const ARGUMENTS: [&str; 3] = ["--node-label", "true", "--usable"];

fn node() -> Node {
    let node = Node::new();
    node.executable("bin/portmap", PORTMAP);
    node.executable("bin/istio-cni", PORTMAP);
    let (code, text) = node.run(&ARGUMENTS);
    assert_eq!(code, 0, "{text}");
    node
}

fn read(node: &Node) -> Value {
    serde_json::from_slice(&fs::read(node.conflist()).unwrap()).unwrap()
}

fn kinds(node: &Node) -> Vec<String> {
    let document = read(node);
    let plugins = document["plugins"].as_array().unwrap();
    plugins.iter().map(|plugin| plugin["type"].as_str().unwrap().to_owned()).collect()
}

fn append(node: &Node, kind: &str) {
    let mut document = read(node);
    document["plugins"].as_array_mut().unwrap().push(json!({"type": kind}));
    fs::write(node.conflist(), document.to_string()).unwrap();
}

#[test]
fn what_others_appended_stays_when_we_want_something_else() {
    let node = node();
    append(&node, "istio-cni");
    let (code, text) = node.run(&ARGUMENTS);
    assert!(code == 0 && !text.contains("did: ") && text.contains("[extended]"), "{text}");
    fs::remove_file(node.path("bin/portmap")).unwrap();
    let (_, text) = node.run(&ARGUMENTS);
    assert!(text.contains("did: replace "), "{text}");
    assert_eq!(kinds(&node), ["vcn-native", "istio-cni"]);
    node.executable("bin/portmap", PORTMAP);
    node.executable("bin/bandwidth", PORTMAP);
    node.run(&["--node-label", "true", "--usable", "--chain=portmap,bandwidth", "--pod-mtu=1500"]);
    assert_eq!(kinds(&node), ["vcn-native", "portmap", "bandwidth", "istio-cni"]);
    assert_eq!(read(&node)["plugins"][0]["mtu"], 1500);
    node.run(&ARGUMENTS);
    assert_eq!(kinds(&node), ["vcn-native", "portmap", "istio-cni"]);
    assert_eq!(read(&node)["plugins"][0], json!({"type": "vcn-native"}));
}

#[test]
fn our_entry_comes_back_and_the_sixth_time_it_rests_and_says_so() {
    let node = node();
    append(&node, "istio-cni");
    let theirs = r#"{"cniVersion":"1.0.0","name":"vcn-native","plugins":[{"type":"istio-cni"}]}"#;
    for _ in 0..5 {
        fs::write(node.conflist(), theirs).unwrap();
        let (code, text) = node.run(&ARGUMENTS);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("plugin vcn-native was removed"), "{text}");
        assert_eq!(kinds(&node), ["vcn-native", "portmap", "istio-cni"]);
    }
    fs::write(node.conflist(), theirs).unwrap();
    let (code, text) = node.run(&ARGUMENTS);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("[contention]") && text.contains("configuration: pending"), "{text}");
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), theirs);
}

#[test]
fn mode_and_link_stay() {
    let node = node();
    fs::rename(node.conflist(), node.path("real.conflist")).unwrap();
    symlink(node.path("real.conflist"), node.conflist()).unwrap();
    fs::set_permissions(node.path("real.conflist"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(node.path("bin/portmap")).unwrap();
    let (code, text) = node.run_plainly(&ARGUMENTS);
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read_link(node.conflist()).unwrap(), node.path("real.conflist"));
    assert_eq!(mode(&node.path("real.conflist")), 0o644);
    assert_eq!(kinds(&node), ["vcn-native"]);
    let left: Vec<_> = fs::read_dir(node.path("net.d")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["05-vcn-native.conflist"]);
}

#[test]
fn a_malformed_file_before_ours_is_reported_and_never_touched() {
    let node = node();
    fs::write(node.path("net.d/00-broken.conf"), "{").unwrap();
    let before = node.snapshot();
    let (code, text) = node.run(&ARGUMENTS);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("00-broken.conf sorts before ours and is no configuration")
            && text.contains("[malformed-before]")
    );
    assert_eq!(node.snapshot(), before);
}

#[test]
fn a_record_of_the_next_version_is_understood_and_kept_and_one_of_the_last_is_not_missed() {
    let node = node();
    let path = node.path("lib/installer.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record["version"] = json!(2);
    record["later"] = json!({"a": 1});
    record["configurations"]["05-vcn-native.conflist"]["later"] = json!([1]);
    fs::write(&path, record.to_string()).unwrap();
    append(&node, "istio-cni");
    fs::remove_file(node.path("bin/portmap")).unwrap();
    let (code, text) = node.run(&ARGUMENTS);
    assert_eq!(code, 0, "{text}");
    assert_eq!(kinds(&node), ["vcn-native", "istio-cni"], "portmap was known to be ours");
    let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&record["version"], &record["later"]["a"]), (&json!(2), &json!(1)));
    assert_eq!(record["configurations"]["05-vcn-native.conflist"]["later"], json!([1]));

    // The last release remembered nothing.
    node.executable("bin/portmap", PORTMAP);
    node.run(&ARGUMENTS);
    fs::remove_dir_all(node.path("lib")).unwrap();
    let (code, text) = node.run(&ARGUMENTS);
    assert!(code == 0 && !text.contains("did: "), "{text}");
    fs::remove_file(node.path("bin/portmap")).unwrap();
    node.run(&ARGUMENTS);
    assert_eq!(kinds(&node), ["vcn-native", "istio-cni"]);
}

#[test]
fn a_damaged_record_is_set_aside_named_and_costs_nothing() {
    let node = node();
    append(&node, "istio-cni");
    fs::write(node.path("lib/installer.json"), "{\"vers").unwrap();
    fs::remove_file(node.path("bin/portmap")).unwrap();
    let (code, text) = node.run(&ARGUMENTS);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("installer.json is damaged") && text.contains("[record-damaged]"), "{text}");
    assert_eq!(kinds(&node), ["vcn-native", "istio-cni"]);
    let (code, text) = node.run(&ARGUMENTS);
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read_to_string(node.path("lib/installer.json.damaged")).unwrap(), "{\"vers");
}

#[test]
fn plugins_that_hang_are_waited_for_together_and_left_out() {
    let node = Node::new();
    for name in ["portmap", "bandwidth", "tuning", "vnic-attach"] {
        node.executable(&format!("bin/{name}"), "#!/bin/sh\nexec sleep 1000\n");
    }
    let begun = std::time::Instant::now();
    let (code, text) = node.run(&["--node-label=true", "--usable", "--chain=portmap,bandwidth,tuning,vnic-attach"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(text.matches("[plugin-left-out]").count(), 4, "{text}");
    assert_eq!(kinds(&node), ["vcn-native"]);
    // One after the other they would take 8 s by themselves.
    assert!(begun.elapsed() < std::time::Duration::from_secs(7), "{:?}", begun.elapsed());
}

#[test]
fn what_an_earlier_release_wrote_is_adopted_so_that_undoing_it_is_noticed() {
    let node = node();
    fs::remove_dir_all(node.path("lib")).unwrap();
    let before = node.snapshot();
    let (code, text) = node.run(&ARGUMENTS);
    assert!(code == 0 && !text.contains("did: "), "{text}");
    assert_eq!(node.snapshot(), before);
    fs::remove_file(node.conflist()).unwrap();
    let (_, text) = node.run(&ARGUMENTS);
    assert!(text.contains("(it was removed)"), "{text}");
}

#[test]
fn a_downgrade_that_writes_its_own_and_knows_no_record_is_followed_by_an_upgrade_that_heals() {
    let node = node();
    let older = r#"{"cniVersion":"1.0.0","name":"vcn-native","plugins":[{"type":"vcn-native"},{"type":"istio-cni"}]}"#;
    fs::write(node.conflist(), older).unwrap();
    let (code, text) = node.run(&ARGUMENTS);
    assert_eq!(code, 0, "{text}");
    assert_eq!(kinds(&node), ["vcn-native", "portmap", "istio-cni"]);
    let (_, text) = node.run(&ARGUMENTS);
    assert!(!text.contains("did: "), "{text}");
}
