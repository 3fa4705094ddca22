//! A damaged record is one pod's trouble alone, and not for long.

use std::collections::HashSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use oke_node_agent::facts::condition::Reason;
use oke_node_agent::facts::reconcile_report::Cause;
use serde_json::Value;
use vcn::Family;

use crate::called::texts;
use crate::follow_up::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Node, wait_for};
use crate::pod::{Pod, store};
use crate::pods::left;
use crate::running::at_once;

const TO_PODS: u32 = 512;

/// Where the record of a container's pod is.
fn record(node: &Node, container: &str) -> PathBuf {
    let files = fs::read_dir(node.path("run/allocations")).unwrap().map(|entry| entry.unwrap().path());
    let begins = format!("{container}-");
    let of_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&begins);
    files.into_iter().find(of_it).unwrap()
}

fn damage(path: &Path) {
    fs::write(path, "{half").unwrap();
}

fn with_another() -> Vec<Value> {
    vec![vnic("primary", 10), dual_stack("pods", 33), vnic("late", 34)]
}

/// The addresses on record, as far as that can be read.
fn held(node: &Node) -> HashSet<IpAddr> {
    let held = store(node).read_sound().map(|(held, _)| held.allocations).unwrap_or_default();
    held.iter().flat_map(|it| it.addresses.iter().map(|assigned| assigned.address)).collect()
}

#[test]
fn damaged_record_or_index_is_set_aside_and_restored() {
    at_once([false, true], assert_made_anew);
}

fn assert_made_anew(is_index: bool) {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let pods = [Pod::add(&node, "a"), Pod::add(&node, "b")];
    let (whole, addresses) = (left(&node), pods.iter().flat_map(Pod::addresses).collect::<HashSet<_>>());
    let committed = || {
        let (_, metrics) = node.get("/metrics");
        let mut lines = metrics.lines();
        let line = lines.find_map(|line| line.strip_prefix(r#"oke_node_agent_pod_attachments{state="committed"} "#));
        line.map(|count| count.trim_end_matches(".0").parse::<u32>().unwrap())
    };
    assert_eq!(committed(), Some(2));
    let damaged = if is_index { node.path("run/allocations.json") } else { record(&node, "a") };
    let aside = damaged.with_extension(if is_index { "json.damaged" } else { "damaged" });
    damage(&damaged);
    node.plug("ens6", 34);
    node.metadata.set_vnics(with_another());
    node.delete_rule(Family::Ipv4, TO_PODS);
    let repaired = || {
        // An index that is being written again is empty for a moment.
        assert!(is_index || committed() != Some(0));
        held(&node) == addresses
            && node.rules(Family::Ipv4).iter().any(|rule| rule.starts_with("512 "))
            && node.routes(Family::Ipv4, 1001).len() == 2
            && node.conditions().is_empty()
    };
    let seen = || format!("{:?} {:?} {:?}\n{}", held(&node), node.rules(Family::Ipv4), node.conditions(), agent.log());
    wait_for("everything to be there", repaired, seen);
    assert_eq!((committed(), left(&node)), (Some(2), whole));
    assert_eq!(fs::read_to_string(&aside).unwrap(), "{half");
    // By the timer, or because something else was news.
    let said = |event: &str, what: &str| agent.events(event).iter().any(|line| line["change"] == what);
    let below = aside.strip_prefix(node.path("run")).unwrap();
    let what = format!("attachment: what was damaged is now /run/vcn-native/{}", below.display());
    let is_reported = || said("host.repaired", &what) || said("host.configured", &what);
    wait_for(&what, is_reported, || agent.log());
    pods.iter().for_each(Pod::wait_connected);
}

/// In reconciles that restore nothing.
#[test]
fn damaged_record_delays_neither_host_nor_vnic_nor_pods() {
    let node = dual_stack_node();
    let settings = node.settings(&[]);
    let world = node.world(vec![vnic("primary", 10), dual_stack("pods", 33)], &settings);
    let mut reconciler = node.reconciler(&settings);
    assert_eq!(node.pass(&mut reconciler, &world, Cause::Start).conditions, []);
    let (a, b) = (Pod::add(&node, "a"), Pod::add(&node, "b"));
    damage(&record(&node, "a"));
    node.plug("ens6", 34);
    node.delete_rule(Family::Ipv4, TO_PODS);
    let world = node.world(with_another(), &settings);
    let pass = node.pass(&mut reconciler, &world, Cause::Kernel);
    let reported: Vec<_> = pass.conditions.iter().map(|it| (it.reason, it.blocks(), it.subject.as_deref())).collect();
    assert_eq!(reported, [(Reason::StateFailed, false, Some("allocations"))], "{:#?}", pass.conditions);
    for change in ["rule add pref 512 from all lookup 999", "route add default via 10.0.34.1 dev ens6 table 1001"] {
        assert!(texts(&pass).iter().any(|text| text.starts_with(change)), "{change}: {:#?}", pass.changes);
    }

    assert!(node.needs_reconcile(&mut reconciler, b.addresses()));
    assert!(!node.needs_reconcile(&mut reconciler, a.addresses()), "its state is unknown");

    // On a foreign pod network, where the agent restores no record.
    let agent = node.agent(&["--pod-network", "none"]);
    let containers = |node: &Node| {
        let output = node.output(&["attachments", "-o", "json"]);
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), all.iter().map(|one| one["container"].as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    let only_b = || containers(&node) == (Some(0), vec!["b".to_owned()]);
    wait_for("the answer", only_b, || agent.log());
    damage(&record(&node, "b"));
    assert_eq!(containers(&node), (Some(1), Vec::new()), "that there are none would be wrong");
}

/// The index is not restored there. Records name the tables of pods, and the kernel the others.
#[test]
fn damaged_index_delays_no_table_on_a_foreign_pod_network() {
    for damaged in ["{half", r#"{"version":99}"#] {
        let node = dual_stack_node();
        let settings = node.settings(&[]);
        let ours = node.world(vec![vnic("primary", 10), dual_stack("pods", 33)], &settings);
        node.pass(&mut node.reconciler(&settings), &ours, Cause::Start);
        let _pod = Pod::add(&node, "a");
        // It is known by its record alone that table 1000 is a pod's.
        fs::write(node.path("run/allocations.json"), damaged).unwrap();
        for lost in ["run/pools.json", "lib/tables.json"] {
            fs::remove_file(node.path(lost)).unwrap();
        }
        node.sh("for family in -4 -6; do
                ip $family route flush table 1000
                while ip $family rule del lookup 1000 2>/dev/null; do :; done
            done");
        node.plug("ens6", 34);
        let settings = node.settings(&["--pod-network", "none"]);
        let world = node.world(vec![vnic("primary", 10), vnic("late", 34)], &settings);
        let pass = node.pass(&mut node.reconciler(&settings), &world, Cause::Start);
        let failed = pass.conditions.iter().filter(|it| it.reason == Reason::StateFailed);
        let reported: Vec<_> = failed.map(|it| (it.blocks(), it.subject.as_deref())).collect();
        assert_eq!(reported, [(false, Some("allocations"))], "{:#?}", pass.conditions);
        let rule = "rule add pref 1537 from 10.0.34.7 lookup 1001";
        assert!(texts(&pass).iter().any(|text| text.starts_with(rule)), "{:#?}", pass.changes);
        assert_eq!(node.routes(Family::Ipv4, 1001).len(), 2);
    }
}
