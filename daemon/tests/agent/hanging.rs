//! A plugin of the chain that hangs when it is asked which versions it speaks: a repair waits no longer than its deadline, and
//! the chain stays what it is.

use std::fs;
use std::time::Duration;

use vcn::{CONFLIST_FILE, Family};

use crate::node::{Node, wait_for};
use crate::running::{SECOND, in_time};

/// The time that the installer gives a plugin.
const DEADLINE: Duration = Duration::from_secs(2);

fn portmap(node: &Node, script: &str) {
    sandbox::write_program(&node.path("bin/portmap"), format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
}

/// It notes that it was called, and reads from a pipe without a writer.
pub(crate) fn hangs(node: &Node) {
    let pipe = node.path("bin/pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    portmap(node, "echo >>/run/vcn-native/asked\nread line <${0%/*}/pipe");
}

fn asked(node: &Node) -> usize {
    fs::read_to_string(node.path("run/asked")).map_or(0, |text| text.lines().count())
}

#[test]
fn hanging_plugin_delays_repair_only_until_its_deadline() {
    let node = Node::with_pods();
    hangs(&node);
    let agent = node.ready_agent(&["--resync-seconds", "0.2"]);
    node.wait_conditions(&agent, &["PluginUnanswered"]);
    let conflist = fs::read_to_string(node.path("net.d").join(CONFLIST_FILE)).unwrap();
    assert!(!conflist.contains("portmap"), "{conflist}");
    let whole = node.rules(Family::Ipv4);
    in_time(DEADLINE + SECOND, "repaired while a plugin hangs", || {
        let before = asked(&node);
        wait_for("it to be asked again", || asked(&node) > before, || agent.log());
        node.on(|socket| {
            for rule in socket.rules(Family::Ipv4).unwrap().iter().filter(|rule| rule.protocol == vcn::PROTOCOL) {
                socket.delete_rule(rule).unwrap();
            }
        });
        agent.timed(|| wait_for("the rules", || node.rules(Family::Ipv4) == whole, || agent.log()))
    });
    assert_eq!(node.conditions(), ["PluginUnanswered"]);
}

#[test]
fn agent_keeps_a_hanging_plugin_in_the_chain_at_start() {
    let node = Node::with_pods();
    portmap(&node, r#"echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'"#);
    let agent = node.ready_agent(&[]);
    let conflist = node.path("net.d").join(CONFLIST_FILE);
    let chained = || fs::read_to_string(&conflist).is_ok_and(|text| text.contains("portmap"));
    wait_for("portmap in the chain", chained, || agent.log());
    let whole = fs::read(&conflist).unwrap();
    agent.stop();

    hangs(&node);
    let agent = node.ready_agent(&[]);
    node.wait_conditions(&agent, &["PluginUnanswered"]);
    wait_for("it to be asked again", || asked(&node) > 1, || agent.log());
    assert_eq!(fs::read(&conflist).unwrap(), whole);
    let (_, said) = node.run(&["status"]);
    assert!(said.contains("portmap stays in the chain, although no answer within 2s"), "{said}");
}
