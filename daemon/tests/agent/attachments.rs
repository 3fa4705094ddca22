//! `attachments`: who has what, and what is wrong with it.

use serde_json::Value;

use crate::follow_up::dual_stack_node;
use crate::node::{Node, SLOW_RESYNC, wait_for};
use crate::pod::Pod;

fn attachments(node: &Node) -> Vec<Value> {
    let output = node.output(&["attachments", "-o", "json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn problems(one: &Value) -> Vec<String> {
    one["problems"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

#[test]
fn attachments_have_addresses_vnic_link_age_and_state() {
    let (node, _agent) = dual_stack_node().with_agent(&[]);
    let pods = [Pod::add(&node, "one"), Pod::add(&node, "two")];
    let all = attachments(&node);
    assert_eq!(all.len(), 2);
    let of = |container: &str| all.iter().find(|it| it["container"] == container).unwrap();
    let one = of("one");
    assert_eq!(one["hostLink"], pods[0].host_link().to_string());
    assert_eq!(one["state"], "running");
    assert_eq!((&one["interface"], &one["network"]), (&"eth0".into(), &"vcn-native".into()));
    let addresses: Vec<String> = pods[0].addresses().iter().map(ToString::to_string).collect();
    let reported: Vec<&str> =
        one["addresses"].as_array().unwrap().iter().map(|it| it["address"].as_str().unwrap()).collect();
    assert_eq!(reported, addresses);
    assert_eq!(one["addresses"][0]["vnicId"], "ocid1.vnic.oc1.iad.pods");
    assert_eq!((&one["addresses"][0]["vnicLink"], &one["addresses"][0]["table"]), (&"ens5".into(), &1000.into()));
    assert!(one["ageSeconds"].as_u64().unwrap() < 60);
    assert_eq!(problems(one), [""; 0]);
    let (ok, text) = node.run(&["attachments"]);
    assert!(ok && text.contains(&addresses[0]) && text.contains("2 attachment(s), 0 with problems"), "{text}");
}

#[test]
fn problems_and_states_are_shown() {
    let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
    let (broken, dead, adding) = (Pod::add(&node, "broken"), Pod::add(&node, "dead"), Pod::add(&node, "adding"));
    adding.reopen(&node);
    node.sh(&format!("ip link del {}", dead.host_link()));
    let of = |container: &str| attachments(&node).into_iter().find(|it| it["container"] == container).unwrap();
    assert_eq!((&of("dead")["state"], &of("adding")["state"]), (&"link-gone".into(), &"adding".into()));
    adding.expire(&node);
    assert_eq!(of("adding")["state"], "void");
    // As often as the agent repairs it before it answers.
    let shows = |problem: &str, cause: &str| {
        let is_shown = || {
            node.sh(cause);
            problems(&of("broken")).iter().any(|it| it.starts_with(problem))
        };
        wait_for(problem, is_shown, || format!("{:?}\n{}", of("broken"), agent.log()));
    };
    let rule = format!("pref 1536 from {}", broken.addresses()[0]);
    shows(&format!("missing on the host: rule add {rule} lookup 1000"), &format!("ip rule del {rule} || :"));
    shows("the VNIC's link ens5 is down", "ip link set ens5 down");
}

#[test]
fn address_outside_the_pools_is_shown() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let _pod = Pod::add(&node, "one");
    node.publish("SUCCESS", &[("pods", 99)]);
    let gone = || attachments(&node).iter().any(|it| problems(it).iter().any(|it| it.contains("in no pool")));
    wait_for("the pools to follow", gone, || agent.log());
}
