//! What others put into our configuration, what they do to it, and what we remember of it over versions.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
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
fn mode_and_a_link_within_the_directory_stay() {
    let node = node();
    let real = node.path("net.d/vcn-native.real");
    fs::rename(node.conflist(), &real).unwrap();
    symlink("vcn-native.real", node.conflist()).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(node.path("bin/portmap")).unwrap();
    let (code, text) = node.run(&ARGUMENTS);
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read_link(node.conflist()).unwrap(), Path::new("vcn-native.real"));
    assert_eq!(mode(&real), 0o644);
    assert_eq!(kinds(&node), ["vcn-native"]);
    assert_eq!(fs::read_dir(node.path("net.d")).unwrap().count(), 2);
}

/// Nothing says that the runtime reads what is read there: in the container that path may be another file, or none.
#[test]
fn a_link_out_of_the_directory_gives_way_to_a_file_and_what_it_leads_to_is_not_touched() {
    let node = node();
    let theirs = r#"{"name":"vcn-native","plugins":[{"type":"vcn-native"},{"type":"istio-cni"}]}"#;
    // In a directory that the container sees, and in one that it does not.
    let seen = (node.path("lib/outside.conflist"), PathBuf::from("/var/lib/vcn-native/outside.conflist"));
    let unseen = (node.path("outside.conflist"), node.path("outside.conflist"));
    for (outside, to) in [seen, unseen] {
        fs::write(&outside, theirs).unwrap();
        fs::remove_file(node.conflist()).unwrap();
        symlink(&to, node.conflist()).unwrap();
        let (code, text) = node.run(&ARGUMENTS);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(&format!("in place of a link to {}", to.display())), "{text}");
        assert!(fs::symlink_metadata(node.conflist()).unwrap().is_file());
        assert_eq!(kinds(&node), ["vcn-native", "portmap"]);
        assert_eq!(fs::read_to_string(&outside).unwrap(), theirs);
    }
}

#[test]
fn a_binary_that_became_a_link_is_a_file_again_wherever_it_led() {
    let node = node();
    let plugin = node.path("bin/vcn-native");
    // To the image's own in the container, which holds the right bytes; on the host there may be no such file.
    for to in ["/usr/libexec/vcn-native/vcn-native", "/nowhere/at/all"] {
        fs::remove_file(&plugin).unwrap();
        symlink(to, &plugin).unwrap();
        let (code, text) = node.run(&ARGUMENTS);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("did: replace "), "{text}");
        assert!(fs::symlink_metadata(&plugin).unwrap().is_file());
        assert_eq!(mode(&plugin), 0o755);
    }
}

#[test]
fn what_is_no_file_at_our_configurations_place_is_named_and_the_binaries_heal_all_the_same() {
    for kind in ["folder", "pipe", "huge"] {
        let node = node();
        fs::remove_file(node.conflist()).unwrap();
        match kind {
            "folder" => fs::create_dir(node.conflist()).unwrap(),
            "pipe" => mkfifo(&node.conflist(), Mode::S_IRWXU).unwrap(),
            _ => fs::File::create(node.conflist()).unwrap().set_len(1 << 21).unwrap(),
        }
        fs::remove_file(node.path("bin/vcn-native")).unwrap();
        let (code, text) = node.run(&ARGUMENTS);
        assert_eq!(code, 1, "{kind}: {text}");
        assert!(text.contains("[in-the-way]") && text.contains("move it away"), "{kind}: {text}");
        assert!(text.contains("did: install ") && node.path("bin/vcn-native").is_file(), "{kind}: {text}");
    }
}

#[test]
fn what_sorts_before_ours_and_stops_the_runtime_is_reported_and_never_touched() {
    let list = r#"{"name":"x","plugins":[{"type":"bridge"}]}"#;
    for (name, text, said) in [
        (&b"00-broken.conf"[..], "{", "00-broken.conf sorts before ours and is no configuration"),
        (b".conf", "", ".conf sorts before ours and is no configuration"),
        (b"00-\xff.conflist", "{", "00-\u{fffd}.conflist sorts before ours and is no configuration"),
        (b"00-list.conf", list, "its name does not end in .conflist [malformed-before]"),
        (b"00-nameless.conflist", r#"{"plugins":[{"type":"bridge"}]}"#, "it has no name [malformed-before]"),
        (b"00-sound.conflist", &list.replace("bridge", "istio-cni"), "the runtime uses that one [sorts-before]"),
        (b"00-lacks.conflist", list, "that one, although it names plugins without a binary: bridge [sorts-before]"),
        (b"00-crlf.conflist", "{\"name\":\"x\",\r\n\"plugins\":[{\"type\":\"a\"}]}\r\n", "[sorts-before]"),
    ] {
        let node = node();
        fs::write(node.path("net.d").join(OsStr::from_bytes(name)), text).unwrap();
        let before = node.snapshot();
        let (code, told) = node.run(&ARGUMENTS);
        assert!(code == 0 && told.contains(said), "{told}");
        assert_eq!(node.snapshot(), before);
    }
    let node = node();
    symlink("/opt/elsewhere.conflist", node.path("net.d/00-link.conflist")).unwrap();
    let (code, told) = node.run(&ARGUMENTS);
    assert!(code == 0 && told.contains("a link that leads out of its directory") && told.contains("[unread-before]"));
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
        // In the container there is no other program that would wait: opening a pipe does, until somebody writes.
        node.executable(&format!("bin/{name}"), "#!/bin/sh\nread line <${0%/*}/pipe\n");
    }
    nix::unistd::mkfifo(&node.path("bin/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let took = || {
        let begun = std::time::Instant::now();
        let (code, text) = node.run(&["--node-label=true", "--usable", "--chain=portmap,bandwidth,tuning,vnic-attach"]);
        assert_eq!(code, 0, "{text}");
        assert_eq!(text.matches("[plugin-unanswered]").count(), 4, "{text}");
        assert_eq!(text.matches("no answer within 2s").count(), 4, "{text}");
        assert_eq!(kinds(&node), ["vcn-native"]);
        begun.elapsed()
    };
    // One after the other they would take 8 s by themselves, each time; together 2 s, unless the machine is busy.
    assert!((0..5).any(|_| took() < std::time::Duration::from_secs(7)));
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
