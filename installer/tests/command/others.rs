//! What other programs do to our configuration and directories, and the record across versions.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use crate::node::{INSTALL, Node, PORTMAP, mode};

fn node() -> Node {
    let node = Node::new();
    node.executable("bin/portmap", PORTMAP);
    node.executable("bin/istio-cni", PORTMAP);
    let (code, text) = node.run(&INSTALL);
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
fn appended_plugin_stays_when_our_settings_change() {
    let node = node();
    append(&node, "istio-cni");
    let (code, text) = node.run(&INSTALL);
    assert!(code == 0 && !text.contains("did: ") && text.contains("[extended]"), "{text}");
    fs::remove_file(node.path("bin/portmap")).unwrap();
    let (_, text) = node.run(&INSTALL);
    assert!(text.contains("did: replace "), "{text}");
    assert_eq!(kinds(&node), ["vcn-native", "istio-cni"]);
    node.executable("bin/portmap", PORTMAP);
    node.executable("bin/bandwidth", PORTMAP);
    node.run(&[&INSTALL[..], &["--cni-chain=portmap,bandwidth", "--pod-mtu=1500"]].concat());
    assert_eq!(kinds(&node), ["vcn-native", "portmap", "bandwidth", "istio-cni"]);
    assert_eq!(read(&node)["plugins"][0]["mtu"], 1500);
    node.run(&INSTALL);
    assert_eq!(kinds(&node), ["vcn-native", "portmap", "istio-cni"]);
    assert_eq!(read(&node)["plugins"][0], json!({"type": "vcn-native"}));
}

#[test]
fn sixth_removal_of_our_plugin_makes_the_installer_pause() {
    let node = node();
    append(&node, "istio-cni");
    let foreign = r#"{"cniVersion":"1.0.0","name":"vcn-native","plugins":[{"type":"istio-cni"}]}"#;
    for _ in 0..5 {
        fs::write(node.conflist(), foreign).unwrap();
        let (code, text) = node.run(&INSTALL);
        assert!(code == 0 && text.contains("plugin vcn-native was removed"), "{text}");
        assert_eq!(kinds(&node), ["vcn-native", "portmap", "istio-cni"]);
    }
    fs::write(node.conflist(), foreign).unwrap();
    let (code, text) = node.run(&INSTALL);
    assert!(code == 1 && text.contains("[contention]") && text.contains("configuration: pending"), "{text}");
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), foreign);
}

#[test]
fn mode_that_was_changed_stays() {
    let node = node();
    fs::set_permissions(node.conflist(), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(node.path("bin/portmap")).unwrap();
    let (code, text) = node.run(&INSTALL);
    assert_eq!(code, 0, "{text}");
    assert_eq!((mode(&node.conflist()), kinds(&node)), (0o644, vec!["vcn-native".to_owned()]));
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
fn failing_plugin_is_reported_next_to_a_link_in_the_way() {
    let node = node();
    node.executable("source/vcn-native", "#!/bin/sh\nexit 1\n");
    node.executable("source/vnic-attach", "");
    symlink("real", node.path("bin/vnic-attach")).unwrap();
    let (code, text) = node.run(&INSTALL);
    assert!(code == 1 && text.contains("[in-the-way]") && text.contains("[version-unknown]"), "{text}");
}

#[test]
fn special_file_as_conflist_is_reported_and_binaries_are_repaired() {
    for kind in ["folder", "pipe", "huge"] {
        let node = node();
        fs::remove_file(node.conflist()).unwrap();
        match kind {
            "folder" => fs::create_dir(node.conflist()).unwrap(),
            "pipe" => mkfifo(&node.conflist(), Mode::S_IRWXU).unwrap(),
            _ => fs::File::create(node.conflist()).unwrap().set_len(1 << 21).unwrap(),
        }
        fs::remove_file(node.path("bin/vcn-native")).unwrap();
        let (code, text) = node.run(&INSTALL);
        assert!(code == 1 && text.contains("[in-the-way]") && text.contains("move it away"), "{kind}: {text}");
        assert!(text.contains("did: install ") && node.path("bin/vcn-native").is_file(), "{kind}: {text}");
    }
}

#[test]
fn preceding_configurations_are_reported_and_not_changed() {
    let list = r#"{"name":"x","plugins":[{"type":"bridge"}]}"#;
    for (name, text, reported) in [
        (&b"00-broken.conf"[..], "{", "00-broken.conf sorts before our configuration and is not a valid one"),
        (b".conf", "", ".conf sorts before our configuration and is not a valid one"),
        (b"00-\xff.conflist", "{", "00-\u{fffd}.conflist sorts before our configuration and is not a valid one"),
        (b"00-list.conf", list, "its name does not end in .conflist [malformed-before]"),
        (b"00-nameless.conflist", r#"{"plugins":[{"type":"bridge"}]}"#, "it has no name [malformed-before]"),
        (b"00-sound.conflist", &list.replace("bridge", "istio-cni"), "the runtime uses that one [sorts-before]"),
        (b"00-lacks.conflist", list, "that one, although it names plugins without a binary: bridge [sorts-before]"),
    ] {
        let node = node();
        fs::write(node.path("net.d").join(OsStr::from_bytes(name)), text).unwrap();
        let before = node.snapshot();
        let (code, text) = node.run(&INSTALL);
        assert!(code == 0 && text.contains(reported), "{text}");
        assert_eq!(node.snapshot(), before);
    }
    let node = node();
    symlink("/opt/elsewhere.conflist", node.path("net.d/00-link.conflist")).unwrap();
    let (code, text) = node.run(&INSTALL);
    assert!(
        code == 0
            && text.contains("a link to /opt/elsewhere.conflist, out of its directory")
            && text.contains("[unread-before]")
    );
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
    assert_eq!(kinds(&node), ["vcn-native", "istio-cni"]);
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
    assert_eq!(kinds(&node), ["vcn-native", "istio-cni"]);
    let (code, text) = node.run(&INSTALL);
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read_to_string(node.path("lib/installer.json.damaged")).unwrap(), "{\"vers");
}
