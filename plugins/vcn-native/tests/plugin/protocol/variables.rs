//! Every variable, missing, empty or wrong, under every verb.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;

use crate::node::{Families, Node, error_of};
use crate::protocol::call::{Answer, Call, Codes, Machine, SOUND};

type Case = (&'static str, fn(Call) -> Call, Codes);

/// Codes, in the order ADD, DEL, CHECK, STATUS, GC, VERSION; 0 is success.
#[rustfmt::skip]
const TABLE: [Case; 28] = [
    ("as it should be",                 |call| call,                                                     SOUND),
    ("no CNI_CONTAINERID",              |call| call.without("CNI_CONTAINERID"),                          [4, 4, 4, 50, 0, 0]),
    ("an empty CNI_CONTAINERID",        |call| call.with("CNI_CONTAINERID", ""),                         [4, 4, 4, 50, 0, 0]),
    ("CNI_CONTAINERID is a path",       |call| call.with("CNI_CONTAINERID", "../../etc/passwd"),         [4, 4, 4, 50, 0, 0]),
    ("CNI_CONTAINERID has a newline",   |call| call.with("CNI_CONTAINERID", "a\nb"),                     [4, 4, 4, 50, 0, 0]),
    ("CNI_CONTAINERID is not UTF-8",    |call| call.with("CNI_CONTAINERID", bytes(b"a\xff")),            [4, 4, 4, 50, 0, 0]),
    ("CNI_CONTAINERID of 100 KB",       |call| call.with("CNI_CONTAINERID", "/".repeat(100_000)),        [4, 4, 4, 50, 0, 0]),
    ("no CNI_IFNAME",                   |call| call.without("CNI_IFNAME"),                               [4, 4, 4, 50, 0, 0]),
    ("an empty CNI_IFNAME",             |call| call.with("CNI_IFNAME", ""),                              [4, 4, 4, 50, 0, 0]),
    ("CNI_IFNAME of 16 bytes",          |call| call.with("CNI_IFNAME", "0123456789abcdef"),              [4, 4, 4, 50, 0, 0]),
    ("CNI_IFNAME has a slash",          |call| call.with("CNI_IFNAME", "a/b"),                           [4, 4, 4, 50, 0, 0]),
    ("CNI_IFNAME is ..",                |call| call.with("CNI_IFNAME", ".."),                            [4, 4, 4, 50, 0, 0]),
    ("CNI_IFNAME is not UTF-8",         |call| call.with("CNI_IFNAME", bytes(b"\xff")),                  [4, 4, 4, 50, 0, 0]),
    ("no CNI_NETNS",                    |call| call.without("CNI_NETNS"),                                [4, 0, 4, 50, 0, 0]),
    ("an empty CNI_NETNS",              |call| call.with("CNI_NETNS", ""),                               [4, 0, 4, 50, 0, 0]),
    ("CNI_NETNS is not there",          |call| call.with("CNI_NETNS", "/run/netns/absent"),              [8, 0, 8, 50, 0, 0]),
    ("CNI_NETNS is a file",             |call| call.with("CNI_NETNS", "/etc/hostname"),                  [8, 0, 8, 50, 0, 0]),
    ("CNI_NETNS is a folder",           |call| call.with("CNI_NETNS", "/"),                              [8, 0, 8, 50, 0, 0]),
    ("CNI_NETNS is another namespace",  |call| call.with("CNI_NETNS", "/proc/self/ns/mnt"),              [8, 0, 8, 50, 0, 0]),
    ("CNI_NETNS is the plugin's own",   |call| call.with("CNI_NETNS", "/proc/self/ns/net"),              [8, 0, 8, 50, 0, 0]),
    ("its own CNI_NETNS is meant",      own_and_meant,                                                   SOUND),
    ("CNI_NETNS is not UTF-8",          |call| call.with("CNI_NETNS", bytes(b"/run/\xff")),              [4, 0, 4, 50, 0, 0]),
    ("no CNI_ARGS",                     |call| call.without("CNI_ARGS"),                                 SOUND),
    ("CNI_ARGS without =",              |call| call.with("CNI_ARGS", "IgnoreUnknown=1;oops"),            [4, 0, 4, 50, 0, 0]),
    ("CNI_ARGS has unknown keys",       |call| call.with("CNI_ARGS", "IP=10.0.0.9"),                     [4, 0, 4, 50, 0, 0]),
    ("CNI_ARGS is not UTF-8",           |call| call.with("CNI_ARGS", bytes(b"IgnoreUnknown=1;A=\xff")),  [4, 0, 4, 50, 0, 0]),
    ("no CNI_PATH",                     |call| call.without("CNI_PATH"),                                 SOUND),
    ("a TRACEPARENT that is none",      |call| call.with("TRACEPARENT", bytes(b"00-\xff-zz")),           SOUND),
];

fn own_and_meant(call: Call) -> Call {
    call.with("CNI_NETNS", "/proc/self/ns/net").with("CNI_NETNS_OVERRIDE", "1")
}

fn bytes(value: &[u8]) -> OsString {
    OsString::from_vec(value.to_vec())
}

#[test]
fn every_variable_missing_or_wrong_gets_the_code_of_the_table() {
    let machine = Machine::new();
    for (case, spoil, expected) in TABLE {
        assert_eq!(machine.codes(spoil), expected, "{case} (ADD, DEL, CHECK, STATUS, GC, VERSION)");
    }
}

#[test]
fn all_that_is_wrong_is_in_one_error() {
    let machine = Machine::new();
    let bare = machine.call("ADD").without("CNI_CONTAINERID").without("CNI_NETNS").without("CNI_IFNAME");
    let answer = machine.answer(&bare);
    assert!(answer.message().contains("CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME"), "{answer:?}");
    let wrong = machine.call("ADD").with("CNI_CONTAINERID", "/").with("CNI_IFNAME", "/").with("CNI_ARGS", "x");
    let answer = machine.answer(&wrong);
    for name in ["CNI_CONTAINERID: ", "CNI_IFNAME: ", "CNI_ARGS: "] {
        assert!(answer.message().contains(name), "{name}: {answer:?}");
    }
}

#[test]
fn a_namespace_that_no_answer_could_name_is_refused_and_blames_nothing_else() {
    let machine = Machine::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"netns-\xff"));
    let sound = machine.call("ADD");
    let netns = sound.variables.iter().find(|(name, _)| name == "CNI_NETNS").unwrap().1.clone();
    symlink(&netns, &path).unwrap();
    for verb in ["ADD", "CHECK"] {
        let answer = machine.answer(&machine.call(verb).with("CNI_NETNS", path.as_os_str()));
        assert_eq!(answer.code(), 4, "{answer:?}");
        assert!(answer.message().contains("CNI_NETNS: ") && answer.message().contains("is not UTF-8"), "{answer:?}");
    }
    // DEL never enters it.
    assert!(matches!(machine.answer(&machine.call("DEL").with("CNI_NETNS", path.as_os_str())), Answer::Success(_)));
}

#[test]
fn the_hosts_namespace_and_a_pipe_are_refused_by_whatever_path_and_nothing_is_changed() {
    let node = Node::new(Families::V4);
    let before = node.snapshot();
    let folder = tempfile::tempdir().unwrap();
    let (link, pipe) = (folder.path().join("link"), folder.path().join("pipe"));
    let open = format!("/proc/{}/fd/{}", std::process::id(), node.host.as_fd().as_raw_fd());
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

#[test]
fn an_unknown_verb_is_refused_by_its_name_and_never_taken_for_another() {
    let machine = Machine::new();
    for verb in ["add", "Add", " ADD", "ADD ", "ADD\n", "UPDATE", "ÄDD", "-h"] {
        let answer = machine.answer(&machine.call(verb));
        assert_eq!(answer.code(), 4, "{verb:?}");
        assert!(answer.message().starts_with("unknown CNI_COMMAND: "), "{answer:?}");
    }
    assert_eq!(machine.answer(&machine.call("ADD").with("CNI_COMMAND", bytes(b"\xff"))).code(), 4);
}

#[test]
fn without_a_verb_the_plugin_says_on_stderr_what_it_is() {
    let machine = Machine::new();
    for call in [machine.call(""), machine.call("").without("CNI_COMMAND")] {
        assert!(matches!(machine.answer(&call), Answer::Success(None)));
        let output = machine.shell(&call, "exec \"$0\"");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with("vcn-native ") && stderr.contains("0.3.1, 0.4.0, 1.0.0, 1.1.0"), "{stderr}");
    }
}

#[test]
fn version_answers_with_nothing_but_its_name() {
    let machine = Machine::new();
    let call = Call { variables: vec![("CNI_COMMAND".to_owned(), "VERSION".into())], stdin: Vec::new() };
    let Answer::Success(Some(answer)) = machine.answer(&call) else { panic!("no answer") };
    assert_eq!(answer["supportedVersions"], serde_json::json!(["0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
}
