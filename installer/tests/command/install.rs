//! What the command does on a node, says, and never does.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::Container;

use crate::node::{Node, PLUGIN, PORTMAP, mode, told};

#[test]
fn without_any_signal_nothing_is_touched() {
    let node = Node::new();
    let before = node.snapshot();
    let (code, text) = node.run(&["--usable"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("decision: leave alone (nothing): no signal says which pod network"), "{text}");
    assert!(text.contains("status: untouched"), "{text}");
    assert_eq!(node.snapshot(), before);
}

#[test]
fn a_flannel_node_keeps_every_byte_and_the_reason_is_told() {
    let node = Node::new();
    fs::write(node.path("net.d/10-flannel.conflist"), r#"{"name":"cbr0","plugins":[{"type":"flannel"}]}"#).unwrap();
    fs::write(node.path("bin/flannel"), "theirs").unwrap();
    fs::write(node.path("bin/.oke-cni-installer.0.tmp"), "even this").unwrap();
    let before = node.snapshot();
    for (arguments, decided) in [
        (vec!["--usable"], "flannel-conflist"),
        (vec!["--usable", "--node-label", "false"], "node-label"),
        (vec!["--usable", "--flannel-daemonset", "present"], "flannel-daemonset"),
        (vec!["--usable", "--native-pod-network", "present"], "flannel-conflist"),
        (vec!["--usable", "--pod-network", "none", "--node-label", "true"], "setting"),
    ] {
        let (code, text) = node.run(&arguments);
        assert_eq!(code, 0, "{text}");
        assert!(text.starts_with(&format!("decision: leave alone ({decided}): ")), "{text}");
        assert_eq!(node.snapshot(), before);
    }
}

#[test]
fn binaries_come_at_once_and_the_configuration_when_an_address_is_usable() {
    let node = Node::new();
    node.executable("bin/portmap", PORTMAP);
    let (code, text) = node.run(&["--node-label", "true"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("configuration: waiting\nstatus: waiting"), "{text}");
    assert_eq!(node.names(), ["bin/portmap", "bin/vcn-native"]);
    assert_eq!(mode(&node.path("bin/vcn-native")), 0o755);
    assert_eq!(fs::read_to_string(node.path("bin/vcn-native")).unwrap(), PLUGIN);

    let (code, text) = node.run(&["--node-label", "true", "--usable"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("configuration: in-place\nstatus: installed"), "{text}");
    assert_eq!(node.names(), ["bin/portmap", "bin/vcn-native", "net.d/05-vcn-native.conflist"]);
    assert_eq!(mode(&node.conflist()), 0o600);
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/conflist/missing_file_is_written/plan.txt");
    let written = fs::read_to_string(node.conflist()).unwrap();
    assert!(fs::read_to_string(plan).unwrap().contains(&written), "{written}");
}

#[test]
fn a_second_run_changes_nothing_and_a_restart_removes_nothing() {
    let node = Node::new();
    node.run(&["--node-label", "true", "--usable"]);
    let before = node.snapshot();
    assert_eq!(before.len(), 2);
    for arguments in [&["--node-label", "true", "--usable"][..], &["--node-label", "true"], &[]] {
        let (code, text) = node.run(arguments);
        assert_eq!(code, 0, "{text}");
        assert!(!text.contains("did: "), "{text}");
        assert_eq!(node.snapshot(), before, "modification times too");
    }
}

#[test]
fn what_was_removed_or_damaged_is_healed() {
    let node = Node::new();
    node.run(&["--node-label", "true", "--usable"]);
    fs::write(node.path("bin/vcn-native"), "damaged").unwrap();
    fs::remove_file(node.conflist()).unwrap();
    let (code, text) = node.run(&["--node-label", "true", "--usable"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("did: replace ") && text.contains("did: install "), "{text}");
    assert_eq!(fs::read_to_string(node.path("bin/vcn-native")).unwrap(), PLUGIN);
    assert!(node.conflist().exists());
}

/// By its content: a disk that loses bits changes neither length nor times.
#[test]
fn damage_that_nothing_but_the_content_shows_is_healed() {
    let node = Node::new();
    node.run(&["--node-label", "true", "--usable"]);
    let binary = node.path("bin/vcn-native");
    let modified = fs::metadata(&binary).unwrap().modified().unwrap();
    fs::write(&binary, PLUGIN.replace("1.1.0", "1.1.1")).unwrap();
    fs::File::options().write(true).open(&binary).unwrap().set_modified(modified).unwrap();
    let now = fs::metadata(&binary).unwrap();
    assert_eq!((now.len(), now.modified().unwrap()), (PLUGIN.len() as u64, modified));
    let (code, text) = node.run(&["--node-label", "true", "--usable"]);
    assert!(code == 0 && text.contains("did: replace "), "{text}");
    assert_eq!(fs::read_to_string(&binary).unwrap(), PLUGIN);
}

#[test]
fn directories_that_are_missing_are_made() {
    let node = Node::new();
    fs::remove_dir(node.path("bin")).unwrap();
    fs::remove_dir(node.path("net.d")).unwrap();
    let (code, text) = node.run(&["--instance-metadata", "true", "--usable"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.names(), ["bin/vcn-native", "net.d/05-vcn-native.conflist"]);
}

#[test]
fn okes_own_cni_is_left_alone_until_takeover() {
    let node = Node::new();
    let theirs = r#"{"cniVersion":"0.3.1","name":"oci","plugins":[{"type":"oci-ipvlan"},{"type":"oci-ptp"}]}"#;
    fs::write(node.path("net.d/10-oci.conflist"), theirs).unwrap();
    let (code, text) = node.run(&["--node-label", "true", "--usable"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("decision: leave alone (oke-conflist): 10-oci.conflist is present"), "{text}");
    assert_eq!(node.names(), ["net.d/10-oci.conflist"]);
    let (code, text) = node.run(&["--node-label", "true", "--usable", "--takeover"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.names(), ["bin/vcn-native", "net.d/05-vcn-native.conflist", "net.d/10-oci.conflist"]);
    assert_eq!(fs::read_to_string(node.path("net.d/10-oci.conflist")).unwrap(), theirs);
}

#[test]
fn a_dry_run_tells_all_and_does_nothing() {
    let node = Node::new();
    let (code, text) = node.run(&["--node-label", "true", "--usable", "--dry-run"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("would: install ") && text.contains("05-vcn-native.conflist"), "{text}");
    assert!(text.contains("note: portmap is left out of the chain: its binary is missing [plugin-left-out]"), "{text}");
    assert!(text.contains("status: planned"), "{text}");
    assert_eq!(node.names(), Vec::<String>::new());
}

#[test]
fn the_environment_serves_as_well_as_options() {
    let node = Node::new();
    let mut command = node.command(&[]);
    command.envs([("SIGNAL_NODE_LABEL", "true"), ("CNI_USABLE", "1"), ("CNI_CHAIN", "")]);
    let (code, text) = told(&command.output().unwrap());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("status: installed") && !text.contains("portmap"), "{text}");
}

#[test]
fn a_missing_source_is_a_failure_with_the_next_step() {
    let node = Node::new();
    fs::remove_file(node.path("source/vcn-native")).unwrap();
    let (code, text) = node.run(&["--node-label", "true", "--usable"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("set --source-dir") && text.contains("[source-missing]"), "{text}");
    assert_eq!(node.names(), Vec::<String>::new());
}

#[test]
fn without_every_binary_there_is_no_configuration() {
    let node = Node::new();
    fs::create_dir(node.path("bin/vcn-native")).unwrap();
    let (code, text) = node.run(&["--node-label", "true", "--usable"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("[in-the-way]") && text.contains("configuration: pending"), "{text}");
    assert!(!node.conflist().exists());
}

#[test]
fn a_plugin_that_speaks_no_cni_gets_no_configuration() {
    let node = Node::new();
    node.executable("source/vcn-native", "#!/bin/sh\nexit 1\n");
    let (code, text) = node.run(&["--node-label", "true", "--usable"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("[version-unknown]"), "{text}");
    assert_eq!(node.names(), ["bin/vcn-native"]);
}

#[test]
fn installers_in_parallel_end_in_the_same_state() {
    let node = Node::new();
    let start = |_| {
        let mut command = node.command(&["--node-label", "true", "--usable"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let running: Vec<_> = (0..6).map(start).map(Result::unwrap).collect();
    for child in running {
        let (code, text) = told(&child.wait_with_output().unwrap());
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("status: installed"), "{text}");
    }
    assert_eq!(node.names(), ["bin/vcn-native", "net.d/05-vcn-native.conflist"]);
}

#[test]
fn calling_it_wrongly_is_64_and_help_is_0() {
    let node = Node::new();
    for arguments in [
        &["--no-such-option"][..],
        &["--pod-network", "maybe"],
        &["--cni-bin-dir", "relative/path"],
        &["--chain", "portmapp"],
        &["--chain-into", "../x.conflist"],
        &["--pod-mtu", "1000"],
        &["--data-dir", "lib"],
        &["extra"],
    ] {
        let (code, text) = node.run(arguments);
        assert_eq!(code, 64, "{text}");
    }
    let (code, text) = node.run(&["--cni-bin-dir", "/usr/libexec/vcn-native"]);
    assert_eq!(code, 64, "{text}");
    let (code, text) = node.run(&["--help"]);
    assert_eq!(code, 0);
    for word in ["--dry-run", "POD_NETWORK", "--takeover", "Exit status", "oci.oraclecloud.com/vcn-native-ip-cni"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// What every option of the installer that uninstalling has no use for would promise, it would not keep.
#[test]
fn uninstall_offers_what_it_heeds_and_refuses_the_rest_by_its_name() {
    let node = Node::new();
    let (code, help) = node.run(&["uninstall", "--help"]);
    assert_eq!(code, 0);
    let offered: Vec<&str> =
        help.split_whitespace().filter_map(|word| word.strip_prefix("--")).filter(|word| !word.is_empty()).collect();
    let heeded = [
        "cni-bin-dir",
        "cni-conf-dir",
        "source-dir",
        "state-dir",
        "data-dir",
        "sysctl-root",
        "host-root",
        "force",
        "dry-run",
        "help",
    ];
    assert_eq!(offered, heeded, "{help}");
    for unheeded in ["--cni-cache-dir", "--oke-state-dir", "--takeover", "--chain"] {
        let (code, text) = node.run(&["uninstall", "--dry-run", unheeded, "/x"]);
        assert!(code == 64 && text.contains(&format!("unexpected argument '{unheeded}'")), "{text}");
    }
}

#[test]
fn logs_are_json_on_stderr() {
    let node = Node::new();
    let output = node.command(&["--node-label", "true"]).output().unwrap();
    let logs = String::from_utf8(output.stderr).unwrap();
    assert!(!logs.is_empty());
    for line in logs.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).unwrap().is_object(), "{line}");
    }
}

#[test]
fn at_a_terminal_the_report_is_all_that_is_said() {
    let node = Node::new();
    let (code, text) = node.run_at_a_terminal();
    assert_eq!(code, 0, "{text}");
    let words: Vec<_> = text.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(words, ["decision", "configuration", "status"], "{text}");
}

#[test]
fn idle_waits_for_the_word_to_end_and_ends_well() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let node = Node::new();
        let mut command = node.command_in(&Container::after_uninstaller().unwrap(), &[]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "idle until SIGTERM\n");
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
