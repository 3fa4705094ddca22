//! What the command does on a node and prints, and what it never touches.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::Container;
use serde_json::json;

use crate::node::{INSTALL, Node, PLUGIN, PORTMAP, mode, printed};

#[test]
fn flannel_node_and_node_without_signals_are_left_alone() {
    let node = Node::new();
    let (code, text) = node.run(&["--cni-usable"]);
    assert!(code == 0 && text.starts_with("decision: leave alone (nothing): no signal says"), "{text}");
    assert!(text.contains("status: untouched") && node.names().is_empty(), "{text}");
    fs::write(node.path("net.d/10-flannel.conflist"), r#"{"name":"cbr0","plugins":[{"type":"flannel"}]}"#).unwrap();
    fs::write(node.path("bin/flannel"), "foreign").unwrap();
    fs::write(node.path("bin/.oke-cni-installer.0.tmp"), "even this").unwrap();
    let before = node.snapshot();
    for (arguments, decided) in [
        (vec!["--cni-usable"], "flannel-conflist"),
        (vec!["--cni-usable", "--signal-node-label", "false"], "node-label"),
        (vec!["--cni-usable", "--signal-native-pod-network", "present"], "flannel-conflist"),
        (vec!["--cni-usable", "--pod-network", "none", "--signal-node-label", "true"], "setting"),
    ] {
        let (code, text) = node.run(&arguments);
        assert!(code == 0 && text.starts_with(&format!("decision: leave alone ({decided}): ")), "{text}");
        assert_eq!(node.snapshot(), before);
    }
}

#[test]
fn binaries_are_installed_first_and_configuration_once_address_is_usable() {
    let node = Node::new();
    for name in ["bin", "net.d"] {
        fs::remove_dir(node.path(name)).unwrap();
    }
    let (code, text) = node.run(&["--signal-instance-metadata", "true"]);
    assert!(code == 0 && text.contains("configuration: waiting\nstatus: waiting"), "{text}");
    assert_eq!((node.names(), mode(&node.path("bin/vcn-native"))), (vec!["bin/vcn-native".to_owned()], 0o755));
    node.executable("bin/portmap", PORTMAP);
    let (code, text) = node.run(&INSTALL);
    assert!(code == 0 && text.contains("configuration: in-place\nstatus: installed"), "{text}");
    assert_eq!(mode(&node.conflist()), 0o600);
    let written = fs::read_to_string(node.conflist()).unwrap();
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}, "snat": true});
    let (versions, plugins) = (["0.3.1", "0.4.0", "1.0.0"], [json!({"type": "vcn-native"}), portmap]);
    let expected = json!({"cniVersion": "1.0.0", "cniVersions": versions, "name": "vcn-native", "plugins": plugins});
    assert_eq!(written, format!("{expected:#}\n"));
}

#[test]
fn second_run_changes_nothing_and_restart_removes_nothing() {
    let node = Node::new();
    node.run(&INSTALL);
    let before = node.snapshot();
    assert_eq!(before.len(), 2);
    for arguments in [&INSTALL[..], &["--signal-node-label", "true"], &[]] {
        let (code, text) = node.run(arguments);
        assert!(code == 0 && !text.contains("did: "), "{text}");
        assert_eq!(node.snapshot(), before, "inodes and times too");
    }
}

#[test]
fn removed_and_damaged_files_are_repaired() {
    let node = Node::new();
    node.run(&INSTALL);
    let binary = node.path("bin/vcn-native");
    // A disk that loses bits changes neither length nor times.
    let modified = fs::metadata(&binary).unwrap().modified().unwrap();
    fs::write(&binary, PLUGIN.replace("1.1.0", "1.1.1")).unwrap();
    fs::File::options().write(true).open(&binary).unwrap().set_modified(modified).unwrap();
    fs::remove_file(node.conflist()).unwrap();
    let (code, text) = node.run(&INSTALL);
    assert!(code == 0 && text.contains("did: replace ") && text.contains("did: install "), "{text}");
    assert_eq!(fs::read_to_string(&binary).unwrap(), PLUGIN);
    assert!(node.conflist().exists());
}

#[test]
fn dry_run_reports_everything_and_does_nothing() {
    let node = Node::new();
    let (code, text) = node.run(&[&INSTALL[..], &["--dry-run"]].concat());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("would: install ") && text.contains("05-vcn-native.conflist"), "{text}");
    assert!(text.contains("note: portmap is left out of the chain: its binary is missing [plugin-left-out]"), "{text}");
    assert!(text.contains("status: planned") && node.names().is_empty(), "{text}");
}

#[test]
fn environment_serves_as_well_as_options() {
    let node = Node::new();
    let mut command = node.command(&[]);
    command.envs([("SIGNAL_NODE_LABEL", "true"), ("CNI_USABLE", "1"), ("CNI_CHAIN", "")]);
    let (code, text) = printed(&command.output().unwrap());
    assert!(code == 0 && text.contains("status: installed") && !text.contains("portmap"), "{text}");
}

#[test]
fn configuration_needs_every_binary() {
    for words in [
        &["set --cni-source-dir"][..],
        &["[in-the-way]"],
        &["[version-unknown]"],
        // Neither failure hides the other.
        &["[in-the-way]", "[version-unknown]"],
    ] {
        let node = Node::new();
        for word in words {
            match *word {
                "set --cni-source-dir" => fs::remove_file(node.path("source/vcn-native")).unwrap(),
                "[in-the-way]" => fs::create_dir(node.path("bin/vcn-native")).unwrap(),
                _ => node.executable("source/vcn-native", "#!/bin/sh\nexit 1\n"),
            }
        }
        let (code, text) = node.run(&INSTALL);
        assert!(code == 1 && text.contains("configuration: pending"), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
        assert!(!node.conflist().exists());
    }
}

#[test]
fn usage_errors_exit_64_and_help_exits_0() {
    let node = Node::new();
    for arguments in [
        &["--no-such-option"][..],
        &["--pod-network", "maybe"],
        &["--cni-bin-dir", "relative/path"],
        &["--cni-bin-dir", "/usr/libexec/vcn-native"],
        &["--cni-chain", "portmapp"],
        &["--vnic-attach", "maybe"],
        &["--pod-mtu", "1000"],
        &["--data-dir", "lib"],
        &["extra"],
    ] {
        let (code, text) = node.run(arguments);
        assert_eq!(code, 64, "{text}");
    }
    let (code, text) = node.run(&["--help"]);
    assert_eq!(code, 0);
    for word in ["--dry-run", "POD_NETWORK", "--cni-takeover", "Exit status", "oci.oraclecloud.com/vcn-native-ip-cni"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn uninstall_offers_only_options_that_it_honors() {
    let node = Node::new();
    let (code, help) = node.run(&["uninstall", "--help"]);
    assert_eq!(code, 0);
    let offered: Vec<&str> =
        help.split_whitespace().filter_map(|word| word.strip_prefix("--")).filter(|word| !word.is_empty()).collect();
    let honored = "cni-bin-dir cni-conf-dir cni-source-dir state-dir data-dir sysctl-root host-root force dry-run help";
    assert_eq!(offered.join(" "), honored, "{help}");
    for other in ["--cni-cache-dir", "--oke-state-dir", "--cni-takeover", "--cni-chain"] {
        let (code, text) = node.run(&["uninstall", "--dry-run", other, "/x"]);
        assert!(code == 64 && text.contains(&format!("unexpected argument '{other}'")), "{text}");
    }
}

#[test]
fn logs_are_json_and_a_terminal_gets_the_report_alone() {
    let node = Node::new();
    let output = node.command(&["--signal-node-label", "true"]).output().unwrap();
    let logs = String::from_utf8(output.stderr).unwrap();
    assert!(!logs.is_empty());
    for line in logs.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).unwrap().is_object(), "{line}");
    }
    let node = Node::new();
    let (code, text) = node.run_at_a_terminal();
    let words: Vec<_> = text.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!((code, words), (0, vec!["decision", "configuration", "status"]), "{text}");
}

#[test]
fn idle_ends_at_a_signal() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let node = Node::new();
        let mut command = node.command_in(&Container::after_uninstaller().unwrap(), &[]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut printed = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut printed).unwrap();
        assert_eq!(printed, "idle until SIGTERM\n");
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
