//! What another program breaks in the network of running pods is repaired, and nothing else is changed: judged by packets
//! and by what is left when pods have gone.

use std::cell::Cell;
use std::time::{Duration, Instant};

use netlink::{LinkChange, NeighbourFilter, RouteFilter, Socket};
use oke_node_agent::facts::reconcile_report::Cause;
use sandbox::kept_waiting;
use vcn::{Family, HOST_LINK_PREFIX, MacAddr, PODS_TABLE, RulePriorities};

use crate::follow_up::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Agent, Node, SLOW_RESYNC, wait_for};
use crate::pod::{Pod, is_link};
use crate::running::{SECOND, at_once, in_time};

/// What the host has of pods.
pub(crate) fn left(node: &Node) -> Vec<String> {
    node.on(|socket| {
        let links = socket.links().unwrap();
        let of_pods = links.iter().filter(|link| link.name.as_str().starts_with(HOST_LINK_PREFIX));
        let mut lines: Vec<String> =
            of_pods.map(|it| format!("{} {:?} {} {:?}", it.name, it.mac, it.up, it.mtu)).collect();
        for family in Family::ALL {
            let filter = RouteFilter { table: Some(PODS_TABLE), ..RouteFilter::all(family) };
            lines.extend(socket.routes(&filter).unwrap().iter().map(ToString::to_string));
            let rules = socket.rules(family).unwrap();
            lines.extend(rules.iter().filter(|it| it.priority == RulePriorities::FROM_POD).map(ToString::to_string));
        }
        let proxies = NeighbourFilter { proxy: true, ..NeighbourFilter::default() };
        lines.extend(socket.neighbours(&proxies).unwrap().iter().map(ToString::to_string));
        lines.sort();
        lines
    })
}

const OTHER_MAC: &str = "ip link set VETH address 02:00:00:00:00:09";
const OTHER_MTU: &str = "ip link set VETH mtu 1400";
/// All of our rules.
const FLUSH_RULES: &str = "ip rule flush protocol 157; ip -6 rule flush protocol 157";

#[test]
fn drift_of_pods_is_repaired_within_a_second() {
    // What is broken of a pod's network (`VETH` is its host end), and the beginning of the repair's report.
    let drifts = [
        (FLUSH_RULES, "rule add pref 1536 from 10.0.33.32 lookup 1000 (pod a)"),
        ("for pod in 1 2; do ip rule del pref 1536; ip -6 rule del pref 1536; done", "rule add pref 1536"),
        (OTHER_MAC, "link set vcn"),
        (OTHER_MTU, "link set vcn"),
        ("ip route flush table 999 dev VETH; ip -6 route flush table 999 dev VETH", "route add 10.0.33.32"),
        // The pod's own end has lost its carrier meanwhile, but nothing else.
        ("ip link set VETH down", "link set vcn"),
    ];
    at_once(drifts, |(what, said)| {
        let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
        let pods = [Pod::add(&node, "a"), Pod::add(&node, "b")];
        let whole = left(&node);
        pods.iter().for_each(Pod::wait_connected);
        let seen = || format!("{:#?} of {whole:#?}\n{}", left(&node), agent.log());
        in_time(SECOND, what, || {
            node.sh(&what.replace("VETH", pods[0].host_link().as_str()));
            agent.timed(|| wait_for(what, || left(&node) == whole, seen))
        });
        // Not timed: packets may be lost, and a ping waits a second for each.
        pods.iter().for_each(Pod::wait_connected);
        let said = agent.wait_said("host.repaired", said);
        if what == OTHER_MTU {
            let (now, was) = said["change"].as_str().unwrap().split_once(" (was ").unwrap();
            assert!(now.contains(" mtu 9000") && was.contains(" mtu 1400"), "{said}");
        }
        if what == FLUSH_RULES {
            let counted = r#"oke_node_agent_reconcile_changes_total{noun="rule",cause="kernel"}"#;
            assert!(node.get("/metrics").1.contains(counted));
        }
    });
}

/// Until no pass ran for a while, and so none that finds what is broken next runs anyway.
fn wait_rest(node: &Node, agent: &Agent) {
    let passes = || ["start", "sources", "kernel", "files", "retry"].map(|cause| node.passes(cause));
    let seen = Cell::new((passes(), Instant::now()));
    let rests = || {
        let now = passes();
        if now != seen.get().0 {
            seen.set((now, Instant::now()));
        }
        seen.get().1.elapsed() > Duration::from_secs(1)
    };
    wait_for("rest", rests, || agent.log());
}

/// Signs that come together with what every pass is due for are looked into as well, and do not hide the next ones.
#[test]
fn drift_is_seen_although_it_was_undone_once_before() {
    let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
    let pod = Pod::add(&node, "a");
    let whole = left(&node);
    pod.wait_connected();
    let before = node.passes("kernel");
    let break_it = |socket: &mut Socket| {
        socket.change_link_named(pod.host_link(), &[LinkChange::Mac(MacAddr([2, 0, 0, 0, 0, 9]))]).unwrap();
    };
    node.on(|socket| {
        let own = socket.link(pod.host_link()).unwrap().mac.unwrap();
        break_it(socket);
        socket.change_link_named(pod.host_link(), &[LinkChange::Mac(own)]).unwrap();
    });
    node.plug("ens9", 99);
    wait_for("a reconcile", || node.passes("kernel") > before, || agent.log());
    wait_rest(&node, &agent);
    assert_eq!(left(&node), whole);
    node.on(break_it);
    wait_for("the repair", || left(&node) == whole, || format!("{:#?} of {whole:#?}\n{}", left(&node), agent.log()));
}

#[test]
fn drift_during_agent_downtime_is_planned_and_repaired_at_start() {
    let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
    let pod = Pod::add(&node, "a");
    let whole = left(&node);
    agent.stop();
    node.sh(FLUSH_RULES);
    let settings = node.settings(&SLOW_RESYNC);
    let facts = node.world(vec![vnic("primary", 10), dual_stack("pods", 33)], &settings);
    let plan = node.pass(&mut node.reconciler(&settings), &facts, Cause::Preview);
    let planned = "rule add pref 1536 from 10.0.33.32 lookup 1000 (pod a)";
    assert!(plan.changes.iter().any(|change| change.text == planned), "{:#?}", plan.changes);
    let agent = node.ready_agent(&SLOW_RESYNC);
    wait_for("the repair", || left(&node) == whole, || agent.log());
    pod.wait_connected();
}

#[test]
fn unfinished_add_is_not_repaired() {
    let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
    let (pod, other) = (Pod::add(&node, "a"), Pod::add(&node, "b"));
    let whole = left(&node);
    pod.reopen(&node);
    // The other one's repair shows that the first has been looked at.
    pod.take_down(&node, |step| !is_link(step));
    let without = left(&node);
    other.take_down(&node, |step| !is_link(step));
    wait_for("the other's repair", || left(&node) == without, || agent.log());
    let repaired =
        || agent.events("host.repaired").iter().any(|line| line["change"].as_str().unwrap().ends_with("(pod b)"));
    wait_for("the report", repaired, || agent.log());
    assert!(whole.len() > without.len());
    assert!(!agent.events("host.repaired").iter().any(|line| line["change"].as_str().unwrap().ends_with("(pod a)")));
}

#[test]
fn pods_that_come_and_go_cause_no_reconcile() {
    let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
    // Events come in their order: with this repair all that the start made have been heard.
    node.delete_rule(Family::Ipv4, 1537);
    agent.wait_said("host.repaired", "rule add pref 1537");
    let before = node.passes("kernel");
    let mut slow = 0;
    for number in 0..30 {
        let waited = kept_waiting(agent.id());
        let pod = Pod::add(&node, &format!("c{number}"));
        let begun = Instant::now();
        pod.del(&node);
        // As long as a sign is left alone. On a busy machine a DEL may take that long, and is then treated as what it seems to
        // be. The same holds for a DEL of which the agent read one half before it had to wait for a processor.
        let took = begun.elapsed() + kept_waiting(agent.id()).saturating_sub(waited);
        slow += u32::from(took > Duration::from_millis(90));
    }
    let settled = || node.passes("kernel");
    let passes = settled();
    println!("{} passes for {slow} slow DELs", passes - before);
    assert!(passes <= before + 2 + 4 * slow, "{passes} passes after {before}, {slow} slow DELs\n{}", agent.log());
    assert!(slow > 0 || agent.events("host.repaired").len() == 1, "{}", agent.log());
}

#[test]
fn del_slower_than_the_repair_leaves_nothing() {
    // The timer removes an orphaned rule.
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let nothing = left(&node);
    let pods: Vec<Pod> = (0..12).map(|number| Pod::add(&node, &format!("c{number}"))).collect();
    let whole = left(&node);
    pods.iter().for_each(|pod| pod.take_down(&node, |step| !is_link(step)));
    // The agent cannot know that these are DELs half done, and mends what they took.
    wait_for("the repair", || left(&node) == whole, || agent.log());
    for pod in &pods {
        pod.take_down(&node, is_link);
        pod.release(&node);
    }
    wait_for("the repair to be removed", || left(&node) == nothing, || format!("{:#?}\n{}", left(&node), agent.log()));
}

#[test]
fn del_at_any_moment_of_a_repair_leaves_nothing() {
    // The timer removes an orphaned rule.
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let nothing = left(&node);
    for number in 0..25 {
        let pod = Pod::add(&node, &format!("c{number}"));
        let broken = Instant::now();
        node.sh(FLUSH_RULES);
        // A repair takes some 300 ms: the DELs are spread over it and what follows.
        while broken.elapsed() < Duration::from_millis(20) * number {
            std::thread::yield_now();
        }
        pod.del(&node);
    }
    wait_for("nothing to be left", || left(&node) == nothing, || format!("{:#?}\n{}", left(&node), agent.log()));
    let fine = || node.conditions().is_empty();
    wait_for("no condition to stay", fine, || format!("{:?}\n{}", node.conditions(), agent.log()));
}
