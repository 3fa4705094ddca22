//! What the subnet and the connection table know of an address follows its owner. No agent listens here: the plugin does it
//! by itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::node::{Node, Pod, address};
use host_harness::{Families, PATIENCE, assert_success, ip, name, sh, within};
use ipnetwork::IpNetwork;
use netlink::{Neighbour, NeighbourFilter, Socket};
use vcn::MacAddr;

#[test]
fn the_subnet_learns_at_once_that_an_address_moved_here() {
    let node = Node::new(Families::Dual);
    let elsewhere = MacAddr([2, 0, 0, 0, 0, 0xd]);
    let mut router = Socket::open_in(&node.routers[0]).unwrap();
    let port = router.index_of(&name("port")).unwrap();
    let here = node.in_host(|socket| socket.link(&name("ens5")).unwrap().mac);
    for address in ["10.0.0.8", "2001:db8::8"].map(ip) {
        let stale = Neighbour { permanent: false, ..Neighbour::permanent(port, address, elsewhere) };
        router.replace_neighbour(&stale).unwrap();
    }
    node.add(&Pod::new("a"));
    for address in ["10.0.0.8", "2001:db8::8"].map(ip) {
        let filter = NeighbourFilter { index: Some(port), ..NeighbourFilter::default() };
        let mut believed = || router.neighbours(&filter).unwrap().into_iter().find(|n| n.address == address)?.mac;
        assert!(within(PATIENCE, || believed() == here), "{address}: the router still believes {:?}", believed());
    }
}

/// When the Service forgets the pod: before the connection table does, or, as a slow kube-proxy would, after.
#[derive(Clone, Copy, PartialEq)]
enum ServiceChanges {
    BeforeDel,
    AfterDel,
}

/// What the two families call the same things.
struct Words {
    families: Families,
    /// The only two addresses for pods.
    pods: [&'static str; 2],
    node: &'static str,
    /// The router of what is the primary VNIC here.
    primary: &'static str,
    any: &'static str,
    table: &'static str,
}

const V4: Words = Words {
    families: Families::V4,
    pods: ["10.0.0.8", "10.0.0.9"],
    node: "10.0.0.2",
    primary: "10.0.1.1",
    any: "0.0.0.0",
    table: "ip",
};

const V6: Words = Words {
    families: Families::V6,
    pods: ["2001:db8::8", "2001:db8::9"],
    node: "2001:db8::2",
    primary: "2001:db8:1::1",
    any: "::",
    table: "ip6",
};

/// A client's first packet is turned to a pod that does not answer. The pod goes, another gets its address, and the client
/// tries again by the same connection. It must reach the Service's present pod, not the pod that has the address now.
fn a_connection_to_the_old_owner_reaches_the_service_not_the_next_owner(words: &Words, when: ServiceChanges) {
    let node = Node::new(words.families);
    node.change_pools(|vnics| {
        vnics.truncate(1);
        let families = &mut vnics[0].families;
        let pool = if words.families == Families::V6 { families.ipv6.as_mut() } else { families.ipv4.as_mut() };
        pool.unwrap().addresses = words.pods.map(|address| IpNetwork::from(ip(address))).into();
    });
    let (old, present) = (Pod::new("old"), Pod::new("present"));
    let [first, second] = words.pods;
    let address = |pod: &Pod| address(&node.add(pod)).parse::<IpNetwork>().unwrap().ip();
    assert_eq!((address(&old), address(&present)), (ip(first), ip(second)));
    // Before the client's next try may come: a host that does not listen refuses.
    let listen = |pod: &Pod| pod.netns.run(|| TcpListener::bind((words.any, 80)).unwrap()).unwrap();
    let at_present = listen(&present);
    sh(&old.netns, "ip link set eth0 down");
    service(&node, words, first);
    // What has no pod leaves by the primary VNIC and is dropped by the fabric.
    node.sh(&format!("ip route add default via {} dev ens6 onlink", words.primary));
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            node.routers[0]
                .run(|| TcpStream::connect_timeout(&SocketAddr::new(ip(words.node), 30080), 2 * PATIENCE))
                .unwrap()
        });
        assert!(within(PATIENCE, || tracked(&node).contains("SYN_SENT")));
        if when == ServiceChanges::BeforeDel {
            service(&node, words, second);
        }
        node.del(&old);
        let next = Pod::new("next");
        if when == ServiceChanges::AfterDel {
            // The client's next try, 1 s after the first, finds the address without pod.
            assert!(within(PATIENCE, || tracked(&node).contains("SYN_SENT")));
            service(&node, words, second);
        }
        assert_eq!(address(&next), ip(first), "nothing else is free");
        let listeners = [(listen(&next), "next"), (at_present, "present")];
        let mut connection = connecting.join().unwrap().unwrap();
        listeners.iter().for_each(|(listener, _)| listener.set_nonblocking(true).unwrap());
        // The client notices before the listener does.
        let answered = |(listener, name): &(TcpListener, &str)| {
            listener.accept().is_ok_and(|(mut accepted, _)| accepted.write_all(name.as_bytes()).is_ok())
        };
        assert!(within(PATIENCE, || listeners.iter().any(answered)));
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "present");
    });
}

#[test]
fn connections_to_old_owner_are_deleted_with_pod_and_before_reuse() {
    for when in [ServiceChanges::BeforeDel, ServiceChanges::AfterDel] {
        for words in [V4, V6] {
            a_connection_to_the_old_owner_reaches_the_service_not_the_next_owner(&words, when);
        }
    }
}

/// Connections of a pod as the kernel knows them, of each protocol: from the pod, to the pod, and to it in the node's name.
fn know_connections(node: &Node, [pod, peer, own]: [&str; 3]) {
    for protocol in ["tcp --state ESTABLISHED", "udp"] {
        for (port, (from, to, answering)) in (4000..).zip([(pod, peer, peer), (peer, pod, pod), (peer, own, pod)]) {
            let known = format!(
                "conntrack -I -p {protocol} -s {from} -d {to} --sport {port} --dport 80 \
                 -r {answering} -q {from} --reply-port-src 80 --reply-port-dst {port} --timeout 36000"
            );
            node.sh(&known);
        }
    }
}

/// The connections that are known, but for what pings left.
fn known(node: &Node) -> Vec<String> {
    let shown = node.sh("conntrack -L -o extended -f ipv4; conntrack -L -o extended -f ipv6");
    // Without the time they have left.
    let words = |line: &str| {
        line.split_whitespace().enumerate().filter(|(at, _)| *at != 4).map(|(_, word)| word.to_owned()).collect()
    };
    let mut lines: Vec<Vec<String>> = shown.lines().map(words).collect();
    lines.retain(|words| ["tcp", "udp"].contains(&words[2].as_str()));
    let mut lines: Vec<String> = lines.into_iter().map(|words| words.join(" ")).collect();
    lines.sort();
    lines
}

#[test]
fn del_and_gc_delete_only_connections_of_the_deleted_pod() {
    for verb in ["DEL", "GC"] {
        let node = Node::new(Families::Dual);
        let (stays, goes) = (Pod::new("stays"), Pod::new("goes"));
        let addresses = [&stays, &goes].map(|pod| node.add(pod)["ips"].as_array().unwrap().clone());
        let address = |pod: usize, family: usize| {
            let address = addresses[pod][family]["address"].as_str().unwrap();
            address.split('/').next().unwrap()
        };
        let others = [["192.0.2.1", "10.0.0.2"], ["2001:db8:9::1", "2001:db8::2"]];
        for (family, [peer, own]) in others.into_iter().enumerate() {
            know_connections(&node, [address(0, family), peer, own]);
        }
        let kept = known(&node);
        assert_eq!(kept.len(), 12, "{kept:#?}");
        for (family, [_, own]) in others.into_iter().enumerate() {
            know_connections(&node, [address(1, family), ["192.0.2.3", "2001:db8:9::3"][family], own]);
        }
        assert_eq!(known(&node).len(), 24, "{:#?}", known(&node));
        if verb == "DEL" {
            node.del(&goes);
        } else {
            node.age();
            assert_success(&node.gc(&["stays"]));
        }
        assert_eq!(known(&node), kept, "{verb}");
    }
}

/// A port of the node that leads to a pod, as kube-proxy makes one.
fn service(node: &Node, words: &Words, pod: &str) {
    let (table, to) = (words.table, SocketAddr::new(ip(pod), 80));
    let rules = format!(
        "table {table} service; delete table {table} service; table {table} service {{ chain in {{ \
         type nat hook prerouting priority -100; tcp dport 30080 dnat to {to}; }}; }}"
    );
    node.sh(&format!("nft '{rules}'"));
}

fn tracked(node: &Node) -> String {
    node.sh("cat /proc/net/nf_conntrack")
}
