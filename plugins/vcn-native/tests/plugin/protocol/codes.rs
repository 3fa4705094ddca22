//! `docs/errors.md` and the code: every code that there is has its entry there, and is answered here by the real binary.
//! The table is the proof: a code without a scenario, or an entry without a code, fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use cni::ErrorCode;
use host_harness::{Families, name, sh};
use netlink::Netns;
use serde_json::{Value, json};
use vcn_native::code;

use crate::node::{Node, PLUGIN, Pod, host_link};
use crate::protocol::call::{Answer, Call, Machine};

/// A code, a situation in which the plugin answers it, and what its message then says to do.
type Scenario = (ErrorCode, fn() -> Answer, &'static str);

#[rustfmt::skip]
const SCENARIOS: [Scenario; 18] = [
    (ErrorCode::INCOMPATIBLE_VERSION, || configured("ADD", &json!({"cniVersion": "0.2.0"})),
        "set cniVersion to one of these"),
    (ErrorCode::UNSUPPORTED_FIELD, || configured("ADD", &json!({"ipam": {"type": "host-local"}})),
        "leave ipam out"),
    (ErrorCode::INVALID_ENVIRONMENT, || faulty_call("ADD", |call| call.without("CNI_IFNAME")),
        "the runtime sets them"),
    (ErrorCode::IO_FAILURE, unreadable_stdin,
        "the runtime must give a pipe or a file to read"),
    (ErrorCode::DECODING_FAILURE, || faulty_call("ADD", |call| call.stdin("{")),
        "correct the file below /etc/cni/net.d"),
    (ErrorCode::INVALID_CONFIG, || configured("ADD", &json!({"name": ""})),
        "give the network one"),
    (ErrorCode::INVALID_NETNS, || faulty_call("ADD", |call| call.with("CNI_NETNS", "/absent")),
        "the runtime must create it before ADD"),
    (ErrorCode::TRY_AGAIN_LATER, || faulty_call("ADD", |call| call),
        "`oke-node-agent why-not-ready` in the agent's pod of this node says what it waits for"),
    (ErrorCode::NOT_AVAILABLE, || faulty_call("STATUS", |call| call),
        "`oke-node-agent why-not-ready` in the agent's pod of this node says what it waits for"),
    (code::STATE, state_of_a_newer_version,
        "install that again, or drain the node, reboot it and uncordon it"),
    (code::NO_ADDRESS, pools_without_addresses,
        "`oke-node-agent status` in the agent's pod of this node lists the VNICs"),
    (code::LINK_COLLISION, foreign_host_link,
        "remove or rename that link"),
    (code::STEP_FAILED, a_vnic_link_that_is_gone,
        "`oke-node-agent plan` in the agent's pod of this node says what the host lacks"),
    (code::UNOBSERVABLE, without_privileges,
        "the runtime must run CNI plugins as root"),
    (code::INTERFACE_EXISTS, a_pod_that_has_the_interface,
        "find that program, then remove or rename the object"),
    (code::CHECK_DIFFERS, a_pod_that_lost_its_route,
        "see the details"),
    (code::NOT_ALLOCATED, || faulty_call("CHECK", |call| call),
        "delete and add the pod"),
    (code::LEFT_OVER, del_without_privileges,
        "the next DEL retries"),
];

#[test]
fn every_code_has_a_scenario_that_names_the_next_step() {
    for (code, scenario, next) in SCENARIOS {
        let answer = scenario();
        assert_eq!(answer.code(), u64::from(code.0), "{answer:?}");
        // Behind all else, so that it is not cut off by a program that shows it on one line.
        let end = answer.message().rsplit_once([':', ';']).map(|(_, end)| end);
        assert!(end.is_some_and(|end| end.contains(next)), "what to do, {next}: {}", answer.message());
        // What it tells people to run, its entry explains.
        for command in answer.message().split('`').skip(1).step_by(2) {
            assert!(entries()[&code.0].contains(command), "{command} is not in the entry of {code}");
        }
        println!("{code}: {}", answer.message());
    }
}

/// The plugin has no way to panic that we know of, or we would close it. So the test of 100 is the protocol crate's own,
/// with a plugin that panics on request.
#[test]
fn code_100_is_tested_by_the_protocol_crate() {
    let tests = source("crates/cni/tests/conformance/process.rs");
    assert!(tests.contains("#[test]\nfn panic_returns_one_reply_with_code_100_in_requested_version()"));
}

#[test]
fn every_code_has_an_entry_and_a_scenario_or_is_unused() {
    let entries = entries();
    let headings: BTreeMap<u32, String> = entries.iter().map(|(code, entry)| (*code, heading(entry))).collect();
    assert_eq!(headings, codes(), "docs/errors.md against the code");
    for (code, entry) in &entries {
        for part in ["**When**", "**Why**", "**Do**"] {
            assert!(entry.contains(part), "the entry of {code} lacks {part}");
        }
    }
    let never: BTreeSet<u32> =
        entries.into_iter().filter(|(_, entry)| entry.contains("never return it")).map(|(code, _)| code).collect();
    let tested = SCENARIOS.iter().map(|(code, ..)| code.0);
    let tested: BTreeSet<u32> = tested.chain([ErrorCode::INTERNAL.0]).collect();
    assert!(never.is_disjoint(&tested), "a plugin returns it, the entry says never: {:?}", never.intersection(&tested));
    let all: BTreeSet<u32> = never.union(&tested).copied().collect();
    assert_eq!(all, codes().into_keys().collect(), "a code without scenario here, or a scenario without code");
}

/// Names and numbers that have been out in the world: none may ever mean something else. Only add.
const PUBLISHED: &str = "1 INCOMPATIBLE_VERSION, 2 UNSUPPORTED_FIELD, 3 UNKNOWN_CONTAINER, 4 INVALID_ENVIRONMENT, 5 IO_FAILURE, \
    6 DECODING_FAILURE, 7 INVALID_CONFIG, 8 INVALID_NETNS, 11 TRY_AGAIN_LATER, 50 NOT_AVAILABLE, 51 LIMITED_CONNECTIVITY, \
    100 INTERNAL, 101 STATE, 102 NO_ADDRESS, 103 LINK_COLLISION, 104 STEP_FAILED, 105 UNOBSERVABLE, 106 INTERFACE_EXISTS, \
    107 CHECK_DIFFERS, 108 NOT_ALLOCATED, 109 LEFT_OVER";

#[test]
fn codes_keep_their_meaning() {
    for (number, name) in PUBLISHED.split(", ").map(|code| code.split_once(' ').unwrap()) {
        assert_eq!(codes().get(&number.parse().unwrap()).map(String::as_str), Some(name));
    }
}

/// The numbers that the sources define, and their names.
fn codes() -> BTreeMap<u32, String> {
    let sources = [source("crates/cni/src/error.rs"), source("crates/attachment/src/failure.rs")];
    let constant = |line: &str| {
        let (name, value) = line.split_once("pub const ")?.1.split_once(':')?;
        let number = value.split_once('(')?.1.split_once(')')?.0.parse().ok()?;
        Some((number, name.to_owned()))
    };
    sources.iter().flat_map(|text| text.lines()).filter_map(constant).collect()
}

/// The name in an entry's heading.
fn heading(entry: &str) -> String {
    entry.lines().next().unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

/// The entries of the document, by number.
fn entries() -> BTreeMap<u32, String> {
    let document = source("docs/errors.md");
    let mut entries = BTreeMap::new();
    for entry in document.split("\n### ").skip(1) {
        let number = entry.split_whitespace().next().unwrap().parse().unwrap();
        assert!(entries.insert(number, entry.to_owned()).is_none(), "{number} has two entries");
    }
    entries
}

fn source(path: &str) -> String {
    fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn faulty_call(verb: &str, spoil: fn(Call) -> Call) -> Answer {
    let machine = Machine::new();
    machine.answer(&spoil(machine.call(verb)))
}

fn unreadable_stdin() -> Answer {
    let machine = Machine::new();
    Answer::of(&machine.shell(&machine.call("ADD"), "exec \"$0\" </"))
}

fn configured(verb: &str, changes: &Value) -> Answer {
    let machine = Machine::new();
    machine.answer(&machine.changed(changes)(machine.call(verb)))
}

fn state_of_a_newer_version() -> Answer {
    let node = Node::new(Families::V4);
    node.sh(&format!(r#"sed -i 's/"version": *1/"version":99/' {}"#, node.file("pools.json").display()));
    add(&node)
}

fn pools_without_addresses() -> Answer {
    let node = Node::new(Families::V4);
    node.write_pools(Vec::new());
    add(&node)
}

fn foreign_host_link() -> Answer {
    let node = Node::new(Families::V4);
    let pod = Pod::new("a");
    let link = host_link(&node.add(&pod));
    node.del(&pod);
    node.sh(&format!("ip link add {link} type bridge"));
    add(&node)
}

/// The pools name a link that has gone since.
fn a_vnic_link_that_is_gone() -> Answer {
    let node = Node::new(Families::V4);
    node.change_pools(|vnics| vnics.iter_mut().for_each(|vnic| vnic.link = name("ens99")));
    add(&node)
}

fn without_privileges() -> Answer {
    unprivileged(&Node::new(Families::V4), "ADD")
}

fn del_without_privileges() -> Answer {
    let node = Node::new(Families::V4);
    // It lives until the end: the kernel removes the link of a pod whose namespace is gone.
    let pod = Pod::new("a");
    node.add(&pod);
    let answer = unprivileged(&node, "DEL");
    drop(pod);
    answer
}

fn a_pod_that_has_the_interface() -> Answer {
    let node = Node::new(Families::V4);
    let pod = Pod::new("a");
    sh(&pod.netns, "ip link add eth0 type bridge");
    Answer::of(&node.cni("ADD", &pod, &node.conf("1.0.0")))
}

fn a_pod_that_lost_its_route() -> Answer {
    let node = Node::new(Families::V4);
    let pod = Pod::new("a");
    let conf = node.add_to_check(&pod);
    node.sh(&format!("ip link set {} mtu 1400", host_link(&conf["prevResult"])));
    Answer::of(&node.cni("CHECK", &pod, &conf))
}

fn add(node: &Node) -> Answer {
    Answer::of(&node.cni("ADD", &Pod::new("a"), &node.conf("1.0.0")))
}

/// The call by root without any of its powers.
fn unprivileged(node: &Node, verb: &str) -> Answer {
    let pod = Pod::new("a");
    let netns = node.file("netns");
    // Another process's descriptors are not visible to all users.
    pod.netns.bind_to(&netns).unwrap();
    let mut unprivileged = Command::new("/usr/bin/setpriv");
    unprivileged.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", PLUGIN]);
    let variables = [("CNI_COMMAND", verb), ("CNI_CONTAINERID", "a"), ("CNI_NETNS", netns.to_str().unwrap())];
    let output = node.spawn(unprivileged, &variables, &node.conf("1.0.0")).wait_with_output().unwrap();
    Netns::unbind(&netns).unwrap();
    Answer::of(&output)
}
