//! Policy rules of other programs: those that lead packets of pods or of the host another way are reported with their cause, all
//! others are not. The agent changes none.

use serde_json::Value;

use crate::follow_up::dual_stack_node;
use crate::node::{Agent, Node, SLOW_RESYNC, wait_for};
use crate::pod::Pod;

/// The conditions of these reasons, as `subject: message`.
fn reported(node: &Node) -> Vec<String> {
    let body: Value = serde_json::from_str(&node.get("/readyz").1).unwrap_or_default();
    let all = body["conditions"].as_array().cloned().unwrap_or_default();
    let part = |it: &Value, key: &str| it[key].as_str().unwrap().replace('"', "");
    let text = |it: &Value| format!("{} {}: {}", part(it, "reason"), part(it, "subject"), part(it, "message"));
    all.iter().map(text).filter(|it| it.starts_with("RoutingOverridden ") || it.starts_with("MainTable")).collect()
}

fn wait_reported(node: &Node, agent: &Agent, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
    let seen = || format!("{:#?}\n{}\n{}", reported(node), node.sh("ip rule; ip -6 rule"), agent.log());
    wait_for(what, || is_so(&reported(node)), seen);
    reported(node)
}

/// Only events can be the cause of what is seen within seconds.
#[test]
fn foreign_rule_that_misleads_packets_is_named_until_it_goes() {
    let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
    let pods = [Pod::add(&node, "a"), Pod::add(&node, "b")];
    pods.iter().for_each(Pod::wait_connected);
    node.sh(
        "ip addr add 2603:c020:0:10::7/64 dev ens3 nodad
         ip route add default via 10.0.10.1 dev ens3 table 51820; ip route add default via 10.0.10.1 dev ens3 table 100
         ip -6 route add default via 2603:c020:0:10::1 dev ens3 table 100; ip -6 route add default via 2603:c020:0:10::1 dev ens3",
    );
    let second = pods[1].addresses();
    // The kernel puts a rule without a preference before the second one.
    for (rule, named, owner) in [
        (
            "-4 rule add not fwmark 51820 lookup 51820",
            "pref 511 not from all fwmark 0xca6c/0xffffffff lookup 51820",
            "wg-quick",
        ),
        ("-4 rule add pref 100 lookup 100 proto static", "pref 100 from all lookup 100", "netplan"),
        ("-6 rule add pref 100 lookup 100 proto static", "pref 100 from ::/0 lookup 100", "netplan"),
        (
            &format!("-4 rule add pref 200 from {} lookup main", second[0]),
            &format!("pref 200 from {} lookup main", second[0]),
            "ip rule add",
        ),
        (
            &format!("-6 rule add pref 200 from {} lookup main", second[1]),
            &format!("pref 200 from {} lookup main", second[1]),
            "ip rule add",
        ),
        (
            &format!("-4 rule add pref 1530 from {} prohibit", second[0]),
            &format!("pref 1530 from {} prohibit", second[0]),
            "ip rule add",
        ),
        ("-4 rule add pref 1200 from 10.0.33.7 lookup 100", "pref 1200 from 10.0.33.7 lookup 100", "ip rule add"),
        (
            "-4 rule add pref 600 to 169.254.0.0/16 unreachable",
            "pref 600 from all to 169.254.0.0/16 unreachable",
            "ip rule add",
        ),
    ] {
        node.sh(&format!("ip {rule}"));
        let expected = |said: &[String]| {
            said.iter().any(|it| it.contains(&format!("rule {named} of another")) && it.contains(owner))
        };
        let said = wait_reported(&node, &agent, rule, expected);
        assert!(said.iter().all(|it| it.contains("ip route get ")), "{said:?}");
        assert_eq!(node.get("/readyz").0, 200, "pods start nevertheless");
        node.sh(&format!("ip {}", rule.replace(" add ", " del ")));
        wait_reported(&node, &agent, "its end", <[String]>::is_empty);
    }
    node.sh(&format!("ip rule add pref 200 from {} lookup main", second[0]));
    wait_reported(&node, &agent, "the pod's", |said| said.len() == 1);
    let (_, attachments) = node.run(&["attachments"]);
    assert!(attachments.contains(&format!("packets from {} use ens3", second[0])), "{attachments}");
    assert!(node.run(&["plan"]).1.contains("RoutingOverridden"));
    assert!(!pods[1].is_connected() && pods[0].is_connected());
    let rules = node.sh("ip rule");
    node.wait_timer_passes(&agent, 0);
    assert_eq!(node.sh("ip rule"), rules, "it is left alone");
}

#[test]
fn foreign_rules_that_mislead_nothing_are_not_reported() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    node.sh("ip route add default via 10.0.10.1 dev ens3 table 77");
    for family in ["-4", "-6"] {
        let other = if family == "-4" { "10.99.0.0/16" } else { "fd00:99::/64" };
        for rule in [
            // Cilium's, with its own place for the local table.
            "pref 9 fwmark 0x200/0xf00 lookup 2004",
            "pref 10 fwmark 0xa00/0xf00 lookup 2005",
            "pref 100 lookup local",
            // wg-quick's for packets of its own mark; Tailscale's.
            "pref 20 fwmark 0xca6c lookup 77",
            "pref 21 fwmark 0x4000/0x4000 lookup 77",
            "pref 5270 lookup 52",
            // Of other networks, links and users; a table without routes.
            &format!("pref 30 from {other} lookup 77"),
            &format!("pref 31 to {other} lookup 77"),
            "pref 32 iif docker0 lookup 77",
            "pref 33 uidrange 1000-1001 lookup 77",
            "pref 34 lookup 78",
        ] {
            node.sh(&format!("ip {family} rule add {rule}"));
        }
        node.sh(&format!("ip {family} rule del pref 0"));
    }
    node.wait_timer_passes(&agent, 3);
    assert_eq!(reported(&node), [""; 0]);
    assert!(pod.is_connected());
}

#[test]
fn main_table_that_no_rule_leads_to_is_reported() {
    let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
    node.sh("ip addr add 2603:c020:0:10::7/64 dev ens3 nodad");
    for (flag, family) in [("-4", "IPv4"), ("-6", "IPv6")] {
        node.sh(&format!("ip {flag} rule del pref 32766"));
        let expected = format!("MainTableUnreachable {family}: no {family} rule leads to the main table");
        let found = |said: &[String]| said.iter().any(|it| it.starts_with(&expected));
        wait_reported(&node, &agent, &expected, found);
        // Wherever the rule is.
        node.sh(&format!("ip {flag} rule add pref 32000 lookup main"));
        wait_reported(&node, &agent, "its end", |said| !found(said));
    }
}

/// The check takes long with so many rules, and postpones later ones.
#[test]
fn rule_that_goes_soon_after_a_check_is_not_reported_for_longer() {
    let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    node.sh(
        "ip addr add 2603:c020:0:10::7/64 dev ens3 nodad; ip -6 route add default via 2603:c020:0:10::1 dev ens3
         for family in -4 -6; do seq 1000 | sed 's/.*/rule add pref 300 iif docker& lookup 77/' | ip $family -batch -; done",
    );
    let address = pod.addresses()[1];
    for _ in 0..2 {
        node.sh(&format!("ip -6 rule add pref 200 from {address} lookup main"));
        wait_reported(&node, &agent, "the rule", |said| said.len() == 1);
        node.sh(&format!("ip -6 rule del pref 200 from {address} lookup main"));
        wait_reported(&node, &agent, "its end", <[String]>::is_empty);
    }
}
