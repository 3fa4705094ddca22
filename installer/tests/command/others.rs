//! What other programs do to our configuration and directories, and the record across versions.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::node::{CONFLIST, INSTALL, Node, PORTMAP};

fn node() -> Node {
    let node = Node::new();
    node.executable("bin/portmap", PORTMAP);
    node.executable("bin/istio-cni", PORTMAP);
    let (code, text) = node.run(&INSTALL);
    assert_eq!(code, 0, "{text}");
    node
}

fn append(node: &Node, kind: &str) {
    let mut document = node.document(CONFLIST);
    document["plugins"].as_array_mut().unwrap().push(json!({"type": kind}));
    fs::write(node.conflist(), document.to_string()).unwrap();
}

#[test]
fn appended_plugin_stays_when_our_settings_change() {
    let node = node();
    append(&node, "istio-cni");
    let (code, text) = node.run(&INSTALL);
    assert!(code == 0 && !text.contains("did: ") && text.contains("[extended]"), "{text}");
    fs::remove_file(node.path("bin/portmap")).unwrap();
    let (_, text) = node.run(&INSTALL);
    assert!(text.contains("did: replace "), "{text}");
    assert_eq!(node.kinds(), ["vcn-native", "istio-cni"]);
    node.executable("bin/portmap", PORTMAP);
    node.executable("bin/bandwidth", PORTMAP);
    node.run(&[&INSTALL[..], &["--cni-chain=portmap,bandwidth", "--pod-mtu=1500"]].concat());
    assert_eq!(node.kinds(), ["vcn-native", "portmap", "bandwidth", "istio-cni"]);
    assert_eq!(node.document(CONFLIST)["plugins"][0]["mtu"], 1500);
    node.run(&INSTALL);
    assert_eq!(node.kinds(), ["vcn-native", "portmap", "istio-cni"]);
    assert_eq!(node.document(CONFLIST)["plugins"][0], json!({"type": "vcn-native"}));
}

#[test]
fn folder_of_our_network_is_read_as_runtimes_read_it() {
    let node = node();
    fs::create_dir(node.path("net.d/vcn-native")).unwrap();
    for (plugin, noted) in [
        (r#"{"type": "gone"}"#, "gone, which another program added to our chain, has no binary"),
        ("{", "and refuse both: vcn-native/10-a.conf: EOF"),
        (r#"{"type": "a", "ipam": []}"#, "and refuse both: vcn-native/10-a.conf: ipam is [], which must be an object"),
    ] {
        fs::write(node.path("net.d/vcn-native/10-a.conf"), plugin).unwrap();
        let (code, text) = node.run(&INSTALL);
        let word = if plugin.contains("gone") { "[plugin-missing]" } else { "[drop-in-refused]" };
        assert!(code == 0 && text.contains(noted) && text.contains(word), "{text}");
        assert_eq!(node.kinds(), ["vcn-native", "portmap"]);
    }
    node.executable("bin/older", &PORTMAP.replace("\"0.4.0\",", ""));
    fs::write(node.path("net.d/vcn-native/10-a.conf"), r#"{"type": "older"}"#).unwrap();
    let (code, text) = node.run(&INSTALL);
    assert_eq!((code, &node.document(CONFLIST)["cniVersions"]), (0, &json!(["0.3.1", "1.0.0"])), "{text}");
}

/// In the container that path may be another file than on the host, or none.
#[test]
fn link_in_place_of_our_file_is_refused_and_stays() {
    let foreign = r#"{"name":"vcn-native","plugins":[{"type":"vcn-native"},{"type":"istio-cni"}]}"#;
    for name in ["net.d/05-vcn-native.conflist", "bin/vcn-native"] {
        for to in ["real", "/var/lib/vcn-native/real", "/nowhere/at/all"] {
            let node = node();
            let ours = node.path(name);
            fs::write(ours.with_file_name("real"), foreign).unwrap();
            fs::write(node.path("lib/real"), foreign).unwrap();
            fs::remove_file(&ours).unwrap();
            symlink(to, &ours).unwrap();
            let (code, text) = node.run(&INSTALL);
            let refused = format!("it is a symbolic link to {to}; replace it by a regular file [in-the-way]");
            assert!(code == 1 && text.contains(&refused) && !text.contains("did: "), "{name}: {text}");
            assert_eq!(fs::read_link(&ours).unwrap(), PathBuf::from(to));
            assert_eq!(fs::read_to_string(ours.with_file_name("real")).unwrap(), foreign);
            assert_eq!(fs::read_to_string(node.path("lib/real")).unwrap(), foreign);
        }
    }
}

#[test]
fn binaries_are_repaired_while_a_folder_replaces_our_configuration() {
    let node = node();
    fs::remove_file(node.conflist()).unwrap();
    fs::create_dir(node.conflist()).unwrap();
    fs::remove_file(node.path("bin/vcn-native")).unwrap();
    let (code, text) = node.run(&INSTALL);
    assert!(code == 1 && text.contains("[in-the-way]") && text.contains("move it away"), "{text}");
    assert!(text.contains("did: install ") && node.path("bin/vcn-native").is_file(), "{text}");
}

#[test]
fn newer_record_is_kept_and_missing_record_is_tolerated() {
    let node = node();
    let path = node.path("lib/installer.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record["version"] = json!(2);
    record["later"] = json!({"a": 1});
    fs::write(&path, record.to_string()).unwrap();
    append(&node, "istio-cni");
    fs::remove_file(node.path("bin/portmap")).unwrap();
    let (code, text) = node.run(&INSTALL);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.kinds(), ["vcn-native", "istio-cni"]);
    let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&record["version"], &record["later"]["a"]), (&json!(2), &json!(1)));

    node.executable("bin/portmap", PORTMAP);
    node.run(&INSTALL);
    fs::remove_dir_all(node.path("lib")).unwrap();
    let before = node.snapshot();
    let (code, text) = node.run(&INSTALL);
    assert!(code == 0 && !text.contains("did: "), "{text}");
    assert_eq!(node.snapshot(), before);
    fs::remove_file(node.conflist()).unwrap();
    let (_, text) = node.run(&INSTALL);
    assert!(text.contains("(it was removed)"), "it was recorded: {text}");
}

#[test]
fn damaged_record_is_set_aside_and_reported() {
    let node = node();
    append(&node, "istio-cni");
    fs::write(node.path("lib/installer.json"), "{\"vers").unwrap();
    fs::remove_file(node.path("bin/portmap")).unwrap();
    let (code, text) = node.run(&INSTALL);
    assert!(code == 1 && text.contains("installer.json is damaged") && text.contains("[record-damaged]"), "{text}");
    assert_eq!(node.kinds(), ["vcn-native", "istio-cni"]);
    let (code, text) = node.run(&INSTALL);
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read_to_string(node.path("lib/installer.json.damaged")).unwrap(), "{\"vers");
}
