//! A pod that made more connections than there is time to forget holds no verb up for long, and as a rule leaves none of them to
//! the next pod. The kernel is made slow by strace: each of its answers comes late.

use std::net::UdpSocket;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use host_harness::{PATIENCE, ip, json_of, within};
use ipam::FreedAddress;
use netlink::conntrack;
use telemetry::{Listener, VerbRecord};

use crate::node::{Node, PLUGIN, Pod, address};

/// More than are forgotten in the time of four tries, an answer each of 4 ms.
const CONNECTION_COUNT: u16 = 4000;

/// A verb's patience, four times, and what the rest of it may take here.
const FOUR_TRIES: Duration = Duration::from_secs(60);

/// A node that tracks connections, with these addresses for pods.
fn node_with(addresses: &[&str]) -> Node {
    let node = Node::with_addresses(addresses);
    node.sh("nft 'table ip track { chain seen { type filter hook prerouting priority 0; ct state new counter; }; }'
         echo 600 >/proc/sys/net/netfilter/nf_conntrack_udp_timeout");
    node
}

/// Packets to each of many ports of a host that does not answer. So many at once are lost in part where the kernel has no
/// time for them, so they are sent until nearly all are known.
fn flood(node: &Node, pod: &Pod, from: &str) {
    assert!(pod.reaches("10.0.0.1"));
    let send = || {
        let sender = UdpSocket::bind(("0.0.0.0", 4000)).unwrap();
        (1..=CONNECTION_COUNT).all(|port| sender.send_to(b"hello", (ip("203.0.113.9"), port)).is_ok())
    };
    let enough = || pod.netns.run(send).unwrap() && tracked(node, from) > usize::from(CONNECTION_COUNT) / 10 * 9;
    assert!(within(PATIENCE, enough), "{} of {CONNECTION_COUNT}", tracked(node, from));
}

fn tracked(node: &Node, address: &str) -> usize {
    let list = || std::fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap();
    node.host.run(list).unwrap().lines().filter(|line| line.contains(&format!("src={address} dst=203."))).count()
}

/// A verb to which the kernel answers late, how long it took, and what an operator reads of it.
fn slowly(node: &Node, verb: &str, pod: &Pod) -> (Output, Duration, VerbRecord) {
    let mut strace = Command::new("strace");
    strace.args(["--quiet=all", "--output=/dev/null", "--trace=recvfrom", "--inject=recvfrom:delay_exit=4000", PLUGIN]);
    let begun = Instant::now();
    let output = node.start_by(strace, verb, pod, &node.conf("1.0.0")).wait_with_output().unwrap();
    let took = begun.elapsed();
    (output, took, telemetry::read_log(node.state.path()).unwrap().pop().unwrap())
}

#[test]
fn del_and_add_log_connections_they_cannot_delete_in_time() {
    let node = node_with(&["10.0.0.8/32"]);
    let pod = Pod::new("old");
    node.add(&pod);
    flood(&node, &pod, "10.0.0.8");
    let before = tracked(&node, "10.0.0.8");

    let (output, took, line) = slowly(&node, "DEL", &pod);
    assert!(output.status.success() && took < FOUR_TRIES, "{took:?}");
    assert!(line.message.contains("there are more connections than can be forgotten"), "{line:?}");
    let left = tracked(&node, "10.0.0.8");
    assert!((1..before).contains(&left), "{left} of {before}");
    assert!(matches!(node.store().freed().unwrap().as_slice(), [FreedAddress { forgotten: false, .. }]));

    // The only address there is: each try forgets some more, and a pod without network is of no use.
    let (output, took, line) = slowly(&node, "ADD", &Pod::new("next"));
    assert_eq!(address(&json_of(&output)), "10.0.0.8/32");
    assert!(took < FOUR_TRIES, "{took:?}");
    assert!(line.message.contains("there are more connections than can be forgotten"), "{line:?}");
    assert!(tracked(&node, "10.0.0.8") < left);
}

#[test]
fn add_avoids_address_with_undeleted_connections() {
    let node = node_with(&["10.0.0.8/32", "10.0.0.9/32"]);
    let (old, quiet) = (Pod::new("old"), Pod::new("quiet"));
    node.add(&old);
    node.add(&quiet);
    flood(&node, &old, "10.0.0.8");
    // An agent takes the records and comes to nothing more.
    let agent = Listener::bind(node.state.path()).unwrap();
    node.del(&old);
    node.del(&quiet);
    drop(agent);
    let (output, _, line) = slowly(&node, "ADD", &Pod::new("next"));
    assert_eq!(address(&json_of(&output)), "10.0.0.9/32", "the one that has rested longest is 10.0.0.8");
    assert_eq!(line.addresses, [ip("10.0.0.9")]);
    assert!(tracked(&node, "10.0.0.8") > 0);
    let freed = node.store().freed().unwrap();
    assert!(
        matches!(freed.as_slice(), [FreedAddress { forgotten: false, address, .. }] if *address == ip("10.0.0.8")),
        "{freed:?}"
    );
    // A later run goes on.
    let all = node
        .host
        .run(|| {
            conntrack::ConntrackSocket::open()
                .unwrap()
                .delete_by_addresses(&[ip("10.0.0.8")].into(), || true)
                .unwrap()
                .connections
        })
        .unwrap();
    assert!(all > 0 && tracked(&node, "10.0.0.8") == 0);
}
