//! Changes of the files that the agent installed, or that decide about them, are handled at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use vcn::CONFLIST_FILE;

use crate::node::{Agent, Node, OKE, SLOW_RESYNC, wait_for};
use crate::running::{SECOND, in_time};

/// So that only events can be the cause of what is seen within seconds.
fn node_and_agent() -> (Node, Agent) {
    Node::with_pods().with_agent(&SLOW_RESYNC)
}

/// What is done to a file of a node is undone in time: to each try its node, because who fights for long loses.
fn assert_repaired(
    what: &str,
    file: &str,
    broken: impl Fn(&Path),
    whole: impl Fn(&[u8], &Path) -> bool,
) -> (Node, Agent) {
    let mut repaired = None;
    in_time(SECOND, what, || {
        let (node, agent) = node_and_agent();
        let path = node.path(file);
        let before = fs::read(&path).unwrap();
        broken(&path);
        let took = agent.timed(|| wait_for(what, || whole(&before, &path), || agent.log()));
        repaired = Some((node, agent));
        took
    });
    repaired.unwrap()
}

fn is_the_same(before: &[u8], path: &Path) -> bool {
    fs::read(path).is_ok_and(|now| now == before)
}

#[test]
fn changed_binary_is_repaired_within_a_second() {
    let binary = "bin/vcn-native";
    let is_whole = |before: &[u8], path: &Path| {
        let mode = || fs::metadata(path).unwrap().permissions().mode() & 0o777;
        is_the_same(before, path) && mode() == 0o755
    };
    assert_repaired("the binary that was removed", binary, |path| fs::remove_file(path).unwrap(), is_whole);
    let replace = |path: &Path| {
        fs::write(path.with_file_name("new"), "another version").unwrap();
        fs::rename(path.with_file_name("new"), path).unwrap();
    };
    assert_repaired("the binary that was replaced", binary, replace, is_whole);
    assert_repaired("the binary that was emptied", binary, |path| fs::write(path, "").unwrap(), is_whole);
    let unusable = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let (node, agent) = assert_repaired("the binary's mode", binary, unusable, is_whole);
    let is_reported = || agent.events("cni.installed").iter().any(|line| line["cause"] == "files");
    wait_for("the report", is_reported, || agent.log());
    let counted = r#"oke_node_agent_reconcile_changes_total{noun="cni",cause="files"}"#;
    assert!(node.get("/metrics").1.contains(counted));
}

#[test]
fn removed_configuration_is_repaired_within_a_second() {
    let conflist = format!("net.d/{CONFLIST_FILE}");
    assert_repaired(
        "the configuration that was removed",
        &conflist,
        |path| fs::remove_file(path).unwrap(),
        is_the_same,
    );
    // As Cilium does with those that are not its own.
    let away = |path: &Path| fs::rename(path, path.with_extension("conflist.cilium_bak")).unwrap();
    assert_repaired("the configuration that was moved away", &conflist, away, is_the_same);
}

#[test]
fn reverted_configuration_is_reported_once_with_the_difference() {
    let (node, agent) = node_and_agent();
    let conflist = node.path("net.d").join(CONFLIST_FILE);
    for fight in 0..5 {
        fs::remove_file(&conflist).unwrap();
        wait_for(&format!("repair {fight}"), || conflist.exists(), || agent.log());
    }
    // As Cilium does.
    fs::rename(&conflist, conflist.with_extension("conflist.cilium_bak")).unwrap();
    wait_for("the node to be not ready", || node.get("/readyz").0 == 503, || agent.log());
    let war = "another program reverted it 5 times within 600 s";
    for said in [node.get("/readyz").1, node.run(&["why-not-ready"]).1] {
        assert!(
            said.contains(war)
                && said.contains("it was removed, and 05-vcn-native.conflist.cilium_bak is there")
                && said.contains("stop one of the two"),
            "{said}"
        );
    }
    let raised = || agent.events("condition.raised").iter().filter(|line| line["subject"] == "contention").count();
    wait_for("it to be logged", || raised() == 1, || agent.log());
    let gauge = r#"oke_node_agent_condition{reason="InstallerFailed""#;
    let metrics = node.get("/metrics").1;
    let of_war = |line: &str| line.starts_with(gauge) && line.contains("contention") && line.ends_with(" 1.0");
    assert!(metrics.lines().any(of_war), "{metrics}");
    assert!(!conflist.exists());
}

#[test]
fn damaged_pools_are_written_again_within_a_second() {
    let parsed = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).ok();
    let is_whole = |before: &[u8], path: &Path| fs::read(path).is_ok_and(|now| parsed(&now) == parsed(before));
    let pools = "run/pools.json";
    assert_repaired("the pools that were removed", pools, |path| fs::remove_file(path).unwrap(), is_whole);
    assert_repaired("the pools that were damaged", pools, |path| fs::write(path, "{half").unwrap(), is_whole);
}

#[test]
fn new_configuration_of_okes_cni_decides_at_once() {
    let (node, agent) = node_and_agent();
    fs::write(node.path("net.d/10-oci.conflist"), OKE).unwrap();
    let decided = || agent.events("pod_network.decided").last().is_some_and(|it| it["decided_by"] == "oke-conflist");
    wait_for("the decision", decided, || agent.log());
    node.wait_conditions(&agent, &["LeftInPlace"]);
}

#[test]
fn unchanged_binaries_are_not_read_and_own_writes_ignored() {
    let node = Node::with_pods();
    let plugin = node.path("source/vcn-native");
    let runs = node.path("run/runs");
    let answer = r#"{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}"#;
    let script = format!("#!/bin/sh\n# {}\necho run >> /run/vcn-native/runs\necho '{answer}'\n", vcn::PLUGIN_MARKS[0]);
    sandbox::write_program(&plugin, script.as_bytes()).unwrap();
    let agent = node.ready_agent(&["--resync-seconds", "0.2"]);
    node.wait_timer_passes(&agent, 3);
    let run_count = || fs::read_to_string(&runs).unwrap().lines().count();
    let (before, files) = (run_count(), node.passes("files"));
    node.wait_timer_passes(&agent, 10);
    assert_eq!((run_count(), node.passes("files")), (before, files), "{}", agent.log());
    // Touched, and never half written: looked at again, once.
    fs::File::open(&plugin).unwrap().set_modified(SystemTime::now()).unwrap();
    wait_for("another query of the plugin", || run_count() > before, || agent.log());
    node.wait_timer_passes(&agent, 3);
    let again = run_count();
    node.wait_timer_passes(&agent, 5);
    assert_eq!(run_count(), again);
}
