//! Answers of the metadata service that lack a family of a VNIC, for a moment or for long.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use oke_node_agent::report::reconcile_report::Cause;
use serde_json::Value;
use vcn::Family;

use crate::aftercare::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Node, wait_for};
use crate::pod::Pod;

/// What pods live by.
fn network(node: &Node) -> ([Vec<String>; 2], [Vec<String>; 2], Value) {
    let both = [Family::Ipv4, Family::Ipv6];
    (both.map(|family| node.rules(family)), both.map(|family| node.routes(family, 1000)), node.pools()["vnics"].clone())
}

#[test]
fn lacked_family_goes_only_after_its_grace() {
    let node = dual_stack_node();
    // Of IPv4 alone.
    node.publish("SUCCESS", &[("pods", 33)]);
    let settings = node.settings(&["--detach-grace-seconds", "1"]);
    let grace = settings.detach_grace;
    let mut world = node.world(vec![vnic("primary", 10), dual_stack("pods", 33)], &settings);
    let mut reconciler = node.reconciler(&settings);
    let begun = Instant::now();
    node.pass(&mut reconciler, &world, Cause::Start);
    // This agent is older than the grace by then, so that what is no longer wanted goes; and plugins have answered it.
    let quiet = RefCell::new(|| {
        let pass = node.pass(&mut reconciler, &world, Cause::Timer);
        begun.elapsed() > grace && pass.changes.is_empty() && pass.conditions.is_empty()
    });
    wait_for("a quiet pass", || quiet.borrow_mut()(), || node.pools().to_string());
    let whole = network(&node);
    assert!(!whole.0[1].is_empty() && whole.1[1].len() == 2, "{whole:?}");

    let lacking = node.world(vec![vnic("primary", 10), vnic("pods", 33)], &settings);
    let first = Instant::now();
    for at in [first, first + grace - Duration::from_millis(1)] {
        node.hear(&mut world, &lacking, (grace, at));
        let pass = node.pass(&mut reconciler, &world, Cause::Sources);
        assert_eq!((pass.changes, pass.conditions), (vec![], vec![]));
        assert_eq!(network(&node), whole);
    }
    node.hear(&mut world, &lacking, (grace, first + grace));
    node.pass(&mut reconciler, &world, Cause::Sources);
    assert_eq!((node.rules(Family::Ipv6), node.routes(Family::Ipv6, 1000)), (vec![], vec![]));
    assert_eq!(node.rules(Family::Ipv4), whole.0[0]);
}

#[test]
fn lacked_family_stays_while_the_native_pod_network_offers_it() {
    let node = dual_stack_node();
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    let whole = network(&node);

    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
    // The grace is one second.
    wait_for("it to be told", || node.conditions() == ["VnicFamilyNotListed"], || agent.log());
    node.wait_timer_passes(&agent, 3);
    assert_eq!((network(&node), node.get("/readyz").0), (whole.clone(), 200), "{}", agent.log());
    pod.wait_connected();

    // One that starts meanwhile knows it of the one before.
    drop(agent);
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    wait_for("it to be told again", || node.conditions() == ["VnicFamilyNotListed"], || agent.log());
    node.wait_timer_passes(&agent, 3);
    assert_eq!(network(&node), whole, "{}", agent.log());
    Pod::add(&node, "b").wait_connected();
    let whole = network(&node);

    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33)]);
    wait_for("its end", || node.conditions().is_empty(), || agent.log());
    assert_eq!(network(&node), whole, "{}", agent.log());
}
