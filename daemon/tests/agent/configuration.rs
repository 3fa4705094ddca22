//! The configuration: checked whole at the start; a valid change restarts the agent in place, an invalid one is reported.

use std::fs;
use std::path::PathBuf;

use netlink::nft::{self, TableFamily};
use oke_node_agent::args::DEFAULT_CONFIG;
use serde_json::Value;

use crate::node::{Agent, Node, SLOW_RESYNC, wait_for};
use crate::pod::Pod;
use crate::pod_network::nft_table;

/// An agent that reconciles so rarely that a change within seconds must follow from an event.
pub(crate) fn configured_at_rest(node: &Node, text: &str) -> Agent {
    node.deliver(1, text);
    node.ready_agent(&SLOW_RESYNC)
}

#[test]
fn agent_refuses_wrong_configuration_and_reports_all_problems() {
    let node = Node::with_pods();
    node.deliver(1, "RESYNC_SECOND=5\nLOG_LEVEL=info\nPODS_MAY_USE_METADATA=no\n");
    let output = node.output_of(|command| {
        command.env("DETACH_GRACE_SECOND", "3").env("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        command.args(["--bm-port-0", "a port", "run"])
    });
    let said = String::from_utf8(output.stderr).unwrap().replace(DEFAULT_CONFIG, "FILE");
    assert_eq!(output.status.code(), Some(2), "{said}");
    for line in [
        "FILE, line 1: RESYNC_SECOND is not a key; did you mean RESYNC_SECONDS?",
        "FILE, line 3: PODS_MAY_USE_METADATA is \"no\", which is none of allow, deny",
        "environment: DETACH_GRACE_SECOND is not a key; did you mean DETACH_GRACE_SECONDS?",
        "command line: BM_PORT_0 is \"a port\": \"a port\" is not a link name",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    assert!(!said.contains("KUBERNETES"), "{said}");
    assert!(output.stdout.is_empty());
    assert_eq!(fs::read_dir(node.path("run")).unwrap().count(), 0);
}

/// The file is gone as `kubectl delete configmap` leaves an optional volume.
#[test]
fn missing_or_invalid_configuration_is_reported_and_the_old_one_stays() {
    let unknown_key = "line 2: RESYNK_SECONDS is not a key; did you mean RESYNC_SECONDS?";
    for (invalid, said) in [(None, "it is gone"), (Some("POD_MTU=8500\nRESYNK_SECONDS=9\n"), unknown_key)] {
        let node = Node::with_pods();
        let agent = configured_at_rest(&node, "POD_MTU=1500\nPODS_MAY_USE_METADATA=deny\n");
        let installed = || {
            let conflist = fs::read_to_string(node.path("net.d").join(vcn::CONFLIST_FILE)).unwrap();
            (conflist, node.inside(nft_table))
        };
        let before = installed();
        assert!(before.0.contains("\"mtu\": 1500") && before.1.is_some(), "{}", before.0);
        match invalid {
            Some(text) => node.deliver(2, text),
            None => ["agent.conf", "..data"].iter().for_each(|it| fs::remove_file(node.path("conf").join(it)).unwrap()),
        }
        node.wait_conditions(&agent, &["ConfigurationInvalid"]);
        let answer = node.get("/readyz");
        assert!(answer.0 == 200 && answer.1.contains(said), "{answer:?}");
        node.deliver(3, "# in other words\nPOD_MTU = 1500\nPODS_MAY_USE_METADATA=deny\n");
        node.wait_conditions(&agent, &[]);
        assert_eq!((installed(), agent.events("agent.started").len()), (before, 1), "{}", agent.log());
    }
}

/// The signals that the agent blocks, ignores and handles, how many descriptors it has, and its name.
fn process(agent: &Agent) -> (Vec<String>, usize, String) {
    let folder = PathBuf::from(format!("/proc/{}", agent.id()));
    let status = fs::read_to_string(folder.join("status")).unwrap();
    let signals = status.lines().filter(|line| line.starts_with("Sig") && !line.starts_with("SigQ")).map(str::to_owned);
    let descriptors = fs::read_dir(folder.join("fd")).unwrap().count();
    (signals.collect(), descriptors, fs::read_to_string(folder.join("comm")).unwrap())
}

#[test]
fn valid_change_restarts_the_agent_in_place_while_pods_start() {
    let node = Node::with_pods();
    let agent = configured_at_rest(&node, "PODS_MAY_USE_METADATA=allow\n");
    let rules = || node.inside(|| nft::NftSocket::open().unwrap().comments(TableFamily::Inet, vcn::NFT_TABLE).unwrap());
    let (before, allowed) = (process(&agent), rules());
    assert_eq!(before.2, "oke-node-agent\n");
    for (version, value) in [(2, "deny"), (3, "allow"), (4, "deny")] {
        node.deliver(version, &format!("PODS_MAY_USE_METADATA={value}\n"));
        wait_for(
            "the new rules",
            || {
                Pod::add(&node, "pod").del(&node);
                (rules() == allowed) == (value == "allow")
            },
            || agent.log(),
        );
    }
    // Connections of the tests come and go: one may have been open before.
    let is_same = |(signals, descriptors, name)| (&signals, &name) == (&before.0, &before.2) && descriptors <= before.1;
    wait_for(
        "the same process as before",
        || is_same(process(&agent)),
        || format!("{before:?}\n{:?}", process(&agent)),
    );
    let accepted = agent.events("config.accepted");
    assert!(accepted.iter().all(|event| event["changed"] == "PODS_MAY_USE_METADATA"), "{accepted:?}");
    let started = agent.events("agent.started").len();
    assert_eq!((accepted.len(), agent.events("config.restarting").len(), started), (3, 3, 4), "{}", agent.log());
}

#[test]
fn config_tells_what_is_set_and_checks_files() {
    let node = Node::new();
    node.deliver(1, "LOG_LEVEL=debug\n");
    let file = DEFAULT_CONFIG;
    let run = |arguments: &[&str]| {
        let output = node.output_of(|command| command.env("RESYNC_SECONDS", "7").args(arguments));
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (status, said) = run(&["config", "--listen", "127.0.0.1:1"]);
    assert_eq!(status, 0, "{said}");
    let line = |key: &str| {
        let line = said.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("LOG_LEVEL="), format!("LOG_LEVEL=debug {file}, line 1"));
    assert_eq!(line("RESYNC_SECONDS="), "RESYNC_SECONDS=7 environment");
    assert_eq!(line("LISTEN="), "LISTEN=127.0.0.1:1 command line");
    assert_eq!(line("DATA_DIR="), "DATA_DIR=/var/lib/vcn-native default");

    let (status, said) = run(&["config", "--check", file]);
    assert_eq!((status, said), (0, format!("{file}: valid, 1 key(s)\n")));
    node.deliver(2, "LOG_LEVEL=debug\nLISTEN=here\nLISTN=\n");
    let (status, said) = run(&["config", "--check", file]);
    assert_eq!(status, 2);
    assert!(said.contains("line 2: LISTEN is \"here\"") && said.contains("did you mean LISTEN?"), "{said}");
    let (status, said) = run(&["config", "--check", file, "-o", "json"]);
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((status, json["problems"].as_array().unwrap().len()), (2, 2), "{said}");

    let (status, said) = run(&["config", "--explain", "-o", "json"]);
    let json: Value = serde_json::from_str(&said).unwrap();
    let resync = json.as_array().unwrap().iter().find(|key| key["key"] == "RESYNC_SECONDS").unwrap();
    assert_eq!((status, &resync["default"], &resync["unit"]), (0, &"30".into(), &"SECONDS".into()));
    let (_, text) = run(&["config", "--explain"]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for key in json.as_array().unwrap() {
        let values = key["values"].as_array().cloned().unwrap_or_else(|| vec![key["unit"].clone()]);
        for part in [&key["key"], &key["default"], &key["meaning"]].into_iter().chain(&values) {
            assert!(text.contains(part.as_str().unwrap_or_default()), "{part} of {key} is not in\n{text}");
        }
        assert!(key["meaning"] != "" && key["unit"] != "", "{key}");
    }
}

#[test]
fn wrong_command_line_exits_2() {
    let node = Node::new();
    let exit = |argument: &str| node.output_of(|command| command.arg(argument)).status.code();
    assert_eq!([exit("statsu"), exit("--help")], [Some(2), Some(0)]);
}
