//! Another program has the port of health and metrics: the agent works without it, reports that, and binds it when it is free.

use std::net::TcpListener;

use vcn::{CONFLIST_FILE, Family};

use crate::node::wait_for;
use crate::program::node_with_pods;

#[test]
fn taken_port_is_reported_and_bound_when_free() {
    let node = node_with_pods();
    let taken = node.inside(|| TcpListener::bind("127.0.0.1:9808").unwrap());
    let mut agent = node.agent(&["--resync-seconds", "600"]);
    let conflist = node.path("net.d").join(CONFLIST_FILE);
    wait_for("the configuration", || conflist.exists(), || agent.log());
    let whole = node.rules(Family::Ipv4);
    assert!(!whole.is_empty());
    let told = || agent.events("condition.raised").iter().any(|line| line["reason"] == "PortUnavailable");
    wait_for("the report", told, || agent.log());
    let (_, said) = node.run(&["status"]);
    assert!(said.contains("PortUnavailable") && said.contains("listening on 127.0.0.1:9808: "), "{said}");
    let (ready, said) = node.run(&["why-not-ready"]);
    assert!(ready, "{said}");
    node.delete_rule(Family::Ipv4, 512);
    wait_for("a repair", || node.rules(Family::Ipv4) == whole, || agent.log());

    drop(taken);
    node.wait_ready(&mut agent);
    wait_for("no condition to stay", || node.conditions().is_empty(), || agent.log());
    assert!(node.get("/metrics").1.contains("oke_node_agent_build_info"));
}
