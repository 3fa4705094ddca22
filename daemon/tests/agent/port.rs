//! Another program has the port of health and metrics: the agent works without it, reports that, and binds it when it is free.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use vcn::{CONFLIST_FILE, Family};

use crate::node::{Node, SLOW_RESYNC, wait_for};

#[test]
fn taken_port_is_reported_and_bound_when_free() {
    let node = Node::with_pods();
    let taken = node.inside(|| TcpListener::bind("127.0.0.1:9808").unwrap());
    let agent = node.agent(&SLOW_RESYNC);
    let conflist = node.path("net.d").join(CONFLIST_FILE);
    wait_for("the configuration", || conflist.exists(), || agent.log());
    let whole = node.rules(Family::Ipv4);
    assert!(!whole.is_empty());
    let is_reported = || agent.events("condition.raised").iter().any(|line| line["reason"] == "PortUnavailable");
    wait_for("the report", is_reported, || agent.log());
    let (_, said) = node.run(&["status"]);
    assert!(said.contains("PortUnavailable") && said.contains("listening on 127.0.0.1:9808: "), "{said}");
    let (ready, said) = node.run(&["why-not-ready"]);
    assert!(ready, "{said}");
    node.delete_rule(Family::Ipv4, 512);
    wait_for("a repair", || node.rules(Family::Ipv4) == whole, || agent.log());

    drop(taken);
    node.wait_ready(&agent);
    node.wait_conditions(&agent, &[]);
    assert!(node.get("/metrics").1.contains("oke_node_agent_build_info"));
}

/// The status line and body of an answer on the node's address.
fn answer(node: &Node, path: &str) -> Option<String> {
    node.inside(|| {
        let mut stream = TcpStream::connect("127.0.0.2:9808").ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    })
}

#[test]
fn metrics_port_serves_metrics_alone_on_the_nodes_address() {
    let (node, agent) = Node::with_pods().with_agent(&["--metrics-port", "9808", "--node-ip", "127.0.0.2"]);
    wait_for("the port", || answer(&node, "/metrics").is_some(), || agent.log());
    let metrics = answer(&node, "/metrics").unwrap();
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("oke_node_agent_ready 1"), "{metrics}");
    for path in ["/healthz", "/readyz", "/status"] {
        let answer = answer(&node, path).unwrap();
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
}
