//! Node policies on links: the agent's program in its container, a gateway and a leader behind it, which polls on the channel. What
//! `ip` shows before and after is compared whole.

mod interrupted;
mod leader;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::Node;
use crate::running::{Agent, wait_for};
use leader::{Leader, policy};

const SHOW: &str = "ip addr; ip route show table all; ip -6 addr; ip -6 route show table all";

/// Requests, probes and the leader's confirmation.
const BOUND: Duration = Duration::from_secs(150);

/// A node with IPv6 at an MTU of 1500, behind a gateway whose link takes `gateway_mtu`, and a leader.
pub(crate) fn scene(gateway_mtu: u32) -> (Node, Leader) {
    let node = Node::with_pods();
    node.fabric_sh(&format!(
        "ip link set lo up; ip link set ens3 up mtu {gateway_mtu}; ip addr add 10.0.10.1/24 dev ens3
         ip addr add 2603:c020:0:10::1/64 dev ens3 nodad; ip addr add 10.0.20.9/32 dev lo"
    ));
    node.sh(
        "ip addr add 2603:c020:0:10::7/128 dev ens3 nodad; ip -6 route add default via 2603:c020:0:10::1 dev ens3 onlink
         ip route add 10.0.77.0/24 via 10.0.10.1 mtu 1400",
    );
    // A packet of the wire is one packet of the kernel: what is too long is dropped, as a network would.
    node.without_segmentation("ens3");
    let leader = Leader::new(&node);
    (node, leader)
}

pub(crate) fn mtu(node: &Node) -> u32 {
    node.on(|socket| socket.link(&crate::node::name("ens3")).unwrap().mtu.0)
}

/// What `ip` shows, but for times, once no address is being detected.
pub(crate) fn shown(node: &Node) -> String {
    let mut after_time = false;
    wait_for("addresses", || !node.sh("ip -6 addr").contains("tentative"), || node.sh("ip -6 addr"));
    let text = node.sh(SHOW);
    let words = text.split_inclusive(char::is_whitespace).map(|word| {
        let is_time =
            std::mem::replace(&mut after_time, matches!(word.trim(), "valid_lft" | "preferred_lft" | "expires"));
        if is_time && word.trim() != "forever" { "TIME " } else { word }
    });
    words.collect()
}

/// The state and the message of an item, once it is reported.
pub(crate) fn wait_item(leader: &Leader, agent: &Agent, item: &str, state: &str) -> Value {
    let find = || {
        let items = leader.answer()["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().find(|it| it["item"] == item && it["state"] == state)
    };
    wait_for(&format!("{item} {state}"), || find().is_some(), || format!("{}\n{}", leader.answer(), agent.log()));
    find().unwrap()
}

pub(crate) fn wait_state(leader: &Leader, agent: &Agent, state: &str) {
    let is_there = || leader.answer()["policies"][0]["state"] == state;
    wait_for(&format!("the policy {state}"), is_there, || format!("{}\n{}", leader.answer(), agent.log()));
}

#[test]
fn mtu_is_raised_where_peers_have_a_smaller_one_and_undone() {
    let (node, leader) = scene(1500);
    let (agent, before) = (leader.agent(&node), shown(&node));
    leader.send(&policy("Report", json!({"mtu": 9000, "txQueueLength": 500})));
    let drifted = wait_item(&leader, &agent, "link/ens3/mtu", "Drifted");
    assert_eq!((&drifted["current"], &drifted["desired"]), (&json!("1500"), &json!("9000")));
    assert_eq!(shown(&node), before, "mode Report changes nothing");
    leader.send(&policy("Apply", json!({"mtu": 9000, "txQueueLength": 500})));
    wait_state(&leader, &agent, "applied");
    assert_eq!((mtu(&node), leader.answer()["items"].is_array()), (9000, false), "{}", leader.answer());
    let changed = before.split_inclusive('\n').map(|line| match line.starts_with("2: ens3") {
        true => line.replace("mtu 1500", "mtu 9000").replace("qlen 1000", "qlen 500"),
        false => line.to_owned(),
    });
    assert_eq!(shown(&node), changed.collect::<String>());
    // Proven here, so the next agent needs no leader.
    drop(agent);
    leader.pause();
    node.sh("ip link set ens3 mtu 1500");
    let agent = leader.agent(&node);
    wait_for("the proven MTU", || mtu(&node) == 9000, || agent.log());
    leader.resume();
    leader.send(&json!({"policies": [], "links": []}));
    wait_for("the MTU of this boot", || mtu(&node) == 1500, || agent.log());
    wait_for("all as before", || shown(&node) == before, || format!("{}\n{before}", shown(&node)));
}

#[test]
fn mtu_that_loses_packets_to_the_leader_alone_is_restored() {
    let (node, leader) = scene(9000);
    let (agent, before) = (leader.agent(&node), shown(&node));
    // The way to the leader takes 1500 bytes, and its own link 9000: the agent does not report that.
    node.fabric_sh(
        "nft add table inet way; nft add chain inet way input '{ type filter hook input priority 0 ; }'
         nft add rule inet way input ip daddr 10.0.20.9 meta length '>' 1500 drop",
    );
    node.fabric_sh("ip route add 10.0.10.7/32 dev ens3 src 10.0.20.9");
    let begun = Instant::now();
    leader.send(&policy("Apply", json!({"mtu": 9000})));
    let failed = wait_item(&leader, &agent, "link/ens3/mtu", "Failed");
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    println!("restored and failed after {:?}: {failed}", begun.elapsed());
    assert_eq!(shown(&node), before);
    wait_state(&leader, &agent, "failed");
    // The same revision is not tried again.
    assert!(agent.events("policy.link_changed").len() == 1, "{}", agent.log());
}

#[test]
fn mtu_that_loses_packets_to_the_gateway_is_restored() {
    let (node, leader) = scene(9000);
    let (agent, before) = (leader.agent(&node), shown(&node));
    // What has the size of the new MTU is lost, and nothing else.
    node.fabric_sh(
        "nft add table inet way; nft add chain inet way input '{ type filter hook input priority 0 ; }'
         nft add rule inet way input ip daddr 10.0.10.1 meta length 1400 drop",
    );
    let begun = Instant::now();
    leader.send(&policy("Apply", json!({"mtu": 1400})));
    let failed = wait_item(&leader, &agent, "link/ens3/mtu", "Failed");
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    println!("restored and failed after {:?}: {failed}", begun.elapsed());
    assert_eq!(shown(&node), before);
    assert!(failed["message"].as_str().unwrap().contains("no longer answers"), "{failed}");
}

/// The gateway has a smaller MTU than the node's earlier one.
#[test]
fn smaller_mtu_is_probed_with_packets_that_the_gateway_takes() {
    let (node, leader) = scene(1500);
    node.sh("ip link set ens3 mtu 9000");
    let (agent, before) = (leader.agent(&node), shown(&node));
    // What has the size of the new MTU is lost, but not on the leader's way.
    node.fabric_sh(
        "ip route add 10.0.10.7/32 dev ens3 src 10.0.20.9
         nft add table inet way; nft add chain inet way input '{ type filter hook input priority 0 ; }'
         nft add rule inet way input ip daddr 10.0.10.1 meta length 1400 drop",
    );
    leader.send(&policy("Apply", json!({"mtu": 1400})));
    let failed = wait_item(&leader, &agent, "link/ens3/mtu", "Failed");
    assert!(failed["message"].as_str().unwrap().contains("packets of 1400 bytes"), "{failed}");
    assert_eq!(shown(&node), before);
}

/// A gateway that answers the new size must go on to do so.
#[test]
fn gateway_that_loses_packets_of_a_raised_mtu_is_noticed() {
    let (node, leader) = scene(9000);
    let (agent, before) = (leader.agent(&node), shown(&node));
    let begun = Instant::now();
    leader.send_while(&policy("Apply", json!({"mtu": 9000})), || {
        leader.pause();
        wait_for("the probes", || agent.events("policy.link_probed").len() == 1, || agent.log());
        node.fabric_sh(
            "nft add table inet way; nft add chain inet way input '{ type filter hook input priority 0 ; }'
             nft add rule inet way input ip daddr 10.0.10.1 meta length '>' 1500 drop",
        );
    });
    let answered = agent.events("policy.link_probed")[0]["answered"].to_string();
    assert!(answered.contains("the gateway (9000)"), "{answered}");
    wait_for("the earlier MTU", || mtu(&node) == 1500, || agent.log());
    assert!(begun.elapsed() < Duration::from_secs(90), "before it would be unconfirmed: {:?}", begun.elapsed());
    leader.resume();
    let failed = wait_item(&leader, &agent, "link/ens3/mtu", "Failed");
    assert!(failed["message"].as_str().unwrap().contains("packets of 9000 bytes"), "{failed}");
    assert_eq!(shown(&node), before);
}

/// The least values that a policy may set: entries of the gateway expire within seconds, and are found again.
#[test]
fn gateway_is_found_with_the_least_settings_of_neighbours() {
    let (node, leader) = scene(1500);
    let agent = leader.agent(&node);
    let least = tunables::link_keys::all().filter_map(|key| {
        let (_, name) = key.split_once(".neigh.")?;
        let value = match name {
            "base_reachable_time_ms" => "1000",
            "retrans_time_ms" => "100",
            "unres_qlen_bytes" => "4096",
            _ => "1",
        };
        Some((key, value))
    });
    let least: BTreeMap<String, &str> = least.collect();
    assert_eq!(least.len(), 12, "{least:?}");
    leader.send(&policy("Apply", json!({ "sysctls": least })));
    wait_state(&leader, &agent, "applied");
    // Without the leader's traffic, which shows that the gateway is reachable.
    leader.pause();
    for (family, address) in [("-4", "10.0.10.1"), ("-6", "2603:c020:0:10::1")] {
        let entry = || node.sh(&format!("ip {family} neigh show to {address} dev ens3"));
        let ping = || node.sh(&format!("ping -q -c 1 -W 1 {address}"));
        ping();
        wait_for("the end of the entry", || !entry().contains("REACHABLE"), entry);
        // Packets still use it for some seconds; then the kernel sends one request. None is lost.
        let is_renewed = || !ping().is_empty() && entry().contains("REACHABLE");
        wait_for("a new answer of the gateway", is_renewed, entry);
    }
    leader.resume();
    let items = leader.answer()["items"].clone();
    assert!(items.is_null(), "{items}");
}

#[test]
fn change_without_a_request_of_the_leader_is_unconfirmed() {
    let (node, leader) = scene(1500);
    let (agent, before) = (leader.agent(&node), shown(&node));
    leader.send_while(&policy("Apply", json!({"mtu": 9000})), || leader.pause());
    let begun = Instant::now();
    wait_for("the change", || mtu(&node) == 9000, || agent.log());
    // Another program's MTU removes IPv6 meanwhile.
    node.sh("ip link set ens3 mtu 1200; ip link set ens3 mtu 9000");
    wait_for("the earlier MTU", || mtu(&node) == 1500, || agent.log());
    wait_for("all as before", || shown(&node) == before, || format!("{}\n{before}", shown(&node)));
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    println!("restored {:?} after the change", begun.elapsed());
    leader.resume();
    wait_item(&leader, &agent, "link/ens3/mtu", "Unconfirmed");
    // The leader is there again: the next attempt is confirmed.
    wait_state(&leader, &agent, "applied");
    assert_eq!(mtu(&node), 9000);
}

#[test]
fn options_that_would_stop_a_node_are_refused() {
    let (node, leader) = scene(1500);
    let (agent, before) = (leader.agent(&node), shown(&node));
    let mut document = policy("Apply", json!({"mtu": 1200, "ring": {"rx": 512}, "sysctls": {"ipv6.accept_ra": "0"}}));
    document["links"]
        .as_array_mut()
        .unwrap()
        .push(json!({"link": {"select": {"name": "ens5"}, "mtu": 1400}, "policy": 0}));
    leader.send(&document);
    for (item, state) in [
        ("link/ens3/mtu", "Refused"),
        ("link/ens3/ipv6.accept_ra", "Refused"),
        ("link/ens5/mtu", "Refused"),
        ("link/ens3/ring.rx", "Unsupported"),
    ] {
        wait_item(&leader, &agent, item, state);
    }
    assert_eq!((leader.answer()["policies"][0]["state"].clone(), mtu(&node)), (json!("applied"), 1500));
    let primary = |text: &str| text.lines().filter(|line| line.contains("ens3")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(primary(&shown(&node)), primary(&before));
}
