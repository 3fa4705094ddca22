//! A plugin of the chain that hangs in VERSION: a repair waits no longer than its deadline.

use std::fs;
use std::time::Duration;

use vcn::{CONFLIST_FILE, Family};

use crate::node::{Node, wait_for};
use crate::running::{SECOND, in_time};

/// The time that the installer gives a plugin.
const DEADLINE: Duration = Duration::from_secs(2);

/// It notes that it was called, and reads from a pipe without a writer.
pub(crate) fn hangs(node: &Node) {
    let pipe = node.path("bin/pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = b"#!/bin/sh\necho >>/run/vcn-native/calls\nread line <${0%/*}/pipe\n";
    sandbox::write_program(&node.path("bin/portmap"), script).unwrap();
}

fn request_count(node: &Node) -> usize {
    fs::read_to_string(node.path("run/calls")).map_or(0, |text| text.lines().count())
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
        let before = request_count(&node);
        wait_for("another request to the plugin", || request_count(&node) > before, || agent.log());
        node.sh("ip rule flush protocol 157");
        agent.timed(|| wait_for("the rules", || node.rules(Family::Ipv4) == whole, || agent.log()))
    });
    assert_eq!(node.conditions(), ["PluginUnanswered"]);
}
