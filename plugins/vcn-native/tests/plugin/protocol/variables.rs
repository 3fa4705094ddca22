//! Namespaces that are none, or not a pod's, under every verb.

use std::ffi::OsString;
use std::os::unix::fs::symlink;

use host_harness::{Families, error_of};

use crate::node::Node;
use crate::protocol::call::{Call, Codes, Machine, SOUND};

type Case = (&'static str, fn(Call) -> Call, Codes);

/// Codes, in the order ADD, DEL, CHECK, STATUS, GC, VERSION; 0 is success.
#[rustfmt::skip]
const TABLE: [Case; 7] = [
    ("valid",                           |call| call,                                                     SOUND),
    ("CNI_NETNS is not there",          |call| call.with("CNI_NETNS", "/run/netns/absent"),              [8, 0, 8, 50, 0, 0]),
    ("CNI_NETNS is a file",             |call| call.with("CNI_NETNS", "/etc/hostname"),                  [8, 0, 8, 50, 0, 0]),
    ("CNI_NETNS is a folder",           |call| call.with("CNI_NETNS", "/"),                              [8, 0, 8, 50, 0, 0]),
    ("CNI_NETNS is another namespace",  |call| call.with("CNI_NETNS", "/proc/self/ns/mnt"),              [8, 0, 8, 50, 0, 0]),
    ("CNI_NETNS is the plugin's own",   |call| call.with("CNI_NETNS", "/proc/self/ns/net"),              [8, 0, 8, 50, 0, 0]),
    ("its own CNI_NETNS is meant",      own_and_meant,                                                   SOUND),
];

fn own_and_meant(call: Call) -> Call {
    call.with("CNI_NETNS", "/proc/self/ns/net").with("CNI_NETNS_OVERRIDE", "1")
}

#[test]
fn invalid_netns_returns_the_code_in_the_table() {
    let machine = Machine::new();
    for (case, spoil, expected) in TABLE {
        assert_eq!(machine.codes(spoil), expected, "{case} (ADD, DEL, CHECK, STATUS, GC, VERSION)");
    }
}

#[test]
fn host_netns_and_pipe_are_refused_by_any_path() {
    let node = Node::new(Families::V4);
    let before = node.snapshot();
    let folder = tempfile::tempdir().unwrap();
    let (link, pipe) = (folder.path().join("link"), folder.path().join("pipe"));
    let open = host_harness::path_of(&node.host).display().to_string();
    symlink(&open, &link).unwrap();
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refusal = |netns: &str| {
        for verb in ["ADD", "CHECK"] {
            let mut conf = node.conf("1.0.0");
            conf["prevResult"] = serde_json::json!({"cniVersion": "1.0.0"});
            let call = [("CNI_COMMAND", verb), ("CNI_CONTAINERID", "a"), ("CNI_NETNS", netns)];
            let (code, text) = error_of(&node.call(&call, &conf));
            assert_eq!(code, 8, "{verb} {netns}: {text}");
            let host = netns != pipe.to_str().unwrap();
            assert_eq!(text.contains("is the network namespace this plugin runs in"), host, "{verb} {netns}: {text}");
        }
    };
    for netns in
        ["/proc/self/ns/net", "/proc/thread-self/ns/net", &open, link.to_str().unwrap(), pipe.to_str().unwrap()]
    {
        refusal(netns);
    }
    assert_eq!(node.snapshot(), before);
    let files = std::fs::read_dir(node.state.path()).unwrap().map(|file| file.unwrap().file_name());
    let files: std::collections::BTreeSet<_> = files.collect();
    assert_eq!(files, ["pools.json", "verbs.log"].map(OsString::from).into());
}
