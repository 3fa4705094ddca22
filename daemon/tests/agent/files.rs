//! What somebody does to the files that the agent put in place, or that decide about them, is seen to at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use vcn::CONFLIST_FILE;

use crate::node::{Agent, Node, wait_for};
use crate::program::node_with_pods;
use crate::running::{SECOND, in_time};

/// So that only events can be the cause of what is seen within seconds.
fn node_and_agent() -> (Node, Agent) {
    let node = node_with_pods();
    let mut agent = node.agent(&["--resync-seconds", "600"]);
    node.wait_ready(&mut agent);
    (node, agent)
}

fn healed(what: &str, agent: &Agent, broken: impl Fn(), whole: impl Fn() -> bool) {
    in_time(SECOND, what, || {
        broken();
        agent.timed(|| wait_for(what, &whole, || agent.log()))
    });
}

#[test]
fn a_binary_that_somebody_removed_replaced_emptied_or_made_unusable_is_healed_within_a_second() {
    let (node, agent) = node_and_agent();
    let binary = node.path("bin/vcn-native");
    let whole = fs::read(&binary).unwrap();
    let is_whole = || {
        let mode = || fs::metadata(&binary).unwrap().permissions().mode() & 0o777;
        fs::read(&binary).is_ok_and(|now| now == whole) && mode() == 0o755
    };
    healed("the binary that was removed", &agent, || fs::remove_file(&binary).unwrap(), is_whole);
    let replace = || {
        fs::write(node.path("bin/new"), "another version").unwrap();
        fs::rename(node.path("bin/new"), &binary).unwrap();
    };
    healed("the binary that was replaced", &agent, replace, is_whole);
    healed("the binary that was emptied", &agent, || fs::write(&binary, "").unwrap(), is_whole);
    let unusable = || fs::set_permissions(&binary, fs::Permissions::from_mode(0o644)).unwrap();
    healed("the binary's mode", &agent, unusable, is_whole);
    let told = || agent.events("cni.installed").iter().any(|line| line["cause"] == "files");
    wait_for("it to be told", told, || agent.log());
    let counted = r#"oke_node_agent_reconcile_changes_total{noun="cni",cause="files"}"#;
    assert!(node.get("/metrics").1.contains(counted));
}

#[test]
fn a_configuration_that_somebody_removed_or_moved_away_is_healed_within_a_second() {
    let (node, agent) = node_and_agent();
    let conflist = node.path("net.d").join(CONFLIST_FILE);
    let whole = fs::read(&conflist).unwrap();
    let is_whole = || fs::read(&conflist).is_ok_and(|now| now == whole);
    healed("the configuration that was removed", &agent, || fs::remove_file(&conflist).unwrap(), is_whole);
    // As Cilium does with those that are not its own.
    let away = || fs::rename(&conflist, node.path("net.d/05-vcn-native.conflist.cilium_bak")).unwrap();
    healed("the configuration that was moved away", &agent, away, is_whole);
}

#[test]
fn a_war_about_the_configuration_is_told_once_with_the_difference_wherever_one_asks() {
    let (node, agent) = node_and_agent();
    let conflist = node.path("net.d").join(CONFLIST_FILE);
    for fight in 0..5 {
        fs::remove_file(&conflist).unwrap();
        wait_for(&format!("repair {fight}"), || conflist.exists(), || agent.log());
    }
    fs::remove_file(&conflist).unwrap();
    wait_for("the node to be not ready", || node.get("/readyz").0 == 503, || agent.log());
    let war = "somebody undid our part 5 times within 600 s";
    for said in [node.get("/readyz").1, node.run(&["why-not-ready"]).1] {
        assert!(
            said.contains(war) && said.contains("it was removed") && said.contains("let one of the two go"),
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
fn pools_that_somebody_removed_or_damaged_are_written_anew_within_a_second() {
    let (node, agent) = node_and_agent();
    let (file, pools) = (node.path("run/pools.json"), node.pools());
    let is_whole = || fs::read(&file).is_ok_and(|now| serde_json::from_slice(&now).ok() == Some(pools.clone()));
    healed("the pools that were removed", &agent, || fs::remove_file(&file).unwrap(), is_whole);
    healed("the pools that were damaged", &agent, || fs::write(&file, "{half").unwrap(), is_whole);
}

#[test]
fn a_configuration_of_okes_own_cni_that_appears_decides_at_once() {
    let (node, agent) = node_and_agent();
    let oke = r#"{"name":"oci","cniVersion":"0.3.1","plugins":[{"type":"oci-ipvlan"}]}"#;
    fs::write(node.path("net.d/10-oci.conflist"), oke).unwrap();
    let decided = || agent.events("pod_network.decided").last().is_some_and(|it| it["decided_by"] == "oke-conflist");
    wait_for("the decision", decided, || agent.log());
    wait_for("what is left to be told", || node.conditions() == ["LeftInPlace"], || format!("{:?}", node.conditions()));
}

#[test]
fn binaries_are_neither_read_nor_run_while_no_file_changes_and_what_it_writes_itself_makes_no_pass() {
    let node = node_with_pods();
    let plugin = node.path("source/vcn-native");
    let runs = node.path("run/runs");
    let answer = r#"{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}"#;
    let script = format!("#!/bin/sh\necho run >> /run/vcn-native/runs\necho '{answer}'\n");
    sandbox::write_program(&plugin, script.as_bytes()).unwrap();
    let mut agent = node.agent(&["--resync-seconds", "0.2"]);
    node.wait_ready(&mut agent);
    let passed = |more: u32| {
        let before = node.passes("timer");
        wait_for("passes", || node.passes("timer") >= before + more, || agent.log());
    };
    passed(3);
    let asked = || fs::read_to_string(&runs).unwrap().lines().count();
    let (before, files) = (asked(), node.passes("files"));
    passed(10);
    assert_eq!((asked(), node.passes("files")), (before, files), "{}", agent.log());
    // Touched, and never half written: looked at again, once.
    fs::File::open(&plugin).unwrap().set_modified(SystemTime::now()).unwrap();
    wait_for("another look", || asked() > before, || agent.log());
    passed(3);
    let again = asked();
    passed(5);
    assert_eq!(asked(), again);
}
