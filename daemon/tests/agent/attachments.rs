//! `attachments`: who has what, and what is wrong with it.

use serde_json::Value;

use crate::follow_up::dual_stack_node;
use crate::node::{Node, RARELY, wait_for};
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
    let told: Vec<&str> =
        one["addresses"].as_array().unwrap().iter().map(|it| it["address"].as_str().unwrap()).collect();
    assert_eq!(told, addresses);
    assert_eq!(one["addresses"][0]["vnicId"], "ocid1.vnic.oc1.iad.pods");
    assert_eq!((&one["addresses"][0]["vnicLink"], &one["addresses"][0]["table"]), (&"ens5".into(), &1000.into()));
    assert!(one["ageSeconds"].as_u64().unwrap() < 60);
    assert_eq!(problems(one), [""; 0]);
    let (ok, text) = node.run(&["attachments"]);
    assert!(ok && text.contains(&addresses[0]) && text.contains("2 attachment(s), 0 with problems"), "{text}");
}

#[test]
fn problems_are_shown_with_and_without_an_agent() {
    let (node, agent) = dual_stack_node().with_agent(&RARELY);
    let (broken, dead, adding) = (Pod::add(&node, "broken"), Pod::add(&node, "dead"), Pod::add(&node, "adding"));
    adding.reopen(&node);
    agent.stop();
    let (address, link) = (broken.addresses()[0], dead.host_link());
    node.sh(&format!("ip rule del pref 1536 from {address}; ip link del {link}; ip link set ens5 down"));
    let output = node.output(&["attachments", "-o", "json"]);
    assert_eq!(output.status.code(), Some(3));
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let of = |container: &str| all.iter().find(|it| it["container"] == container).unwrap();
    let lacks = format!("missing on the host: rule add pref 1536 from {address} lookup 1000");
    assert!(problems(of("broken")).contains(&lacks), "{:?}", problems(of("broken")));
    assert!(problems(of("broken")).iter().any(|it| it.starts_with("the VNIC's link ens5 is down")));
    assert_eq!(of("dead")["state"], "link-gone");
    assert_eq!(of("adding")["state"], "adding");
    adding.expire(&node);
    let all = attachments(&node);
    assert_eq!(all.iter().find(|it| it["container"] == "adding").unwrap()["state"], "void");
}

#[test]
fn address_outside_the_pools_is_shown() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let _pod = Pod::add(&node, "one");
    node.publish("SUCCESS", &[("pods", 99)]);
    let gone = || attachments(&node).iter().any(|it| problems(it).iter().any(|it| it.contains("in no pool")));
    wait_for("the pools to follow", gone, || agent.log());
}
