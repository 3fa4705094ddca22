//! Host ports, by the reference portmap chained behind our plugin.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandbox::{Node, Runtime};
use serde_json::json;
use vcn::Family;

use super::kube_proxy::{LOCAL, Mode, withdraw_nftables};
use super::surroundings::counted;
use super::world::{Connection, PORT, World};
use crate::wait_for;

/// A node with portmap from the distribution's package; the agent chains it where it is.
fn world_with_portmap() -> World {
    let mut world = World::booted();
    let node = Arc::clone(&world.node);
    let copy = || sandbox::copy_program(Path::new("/usr/lib/cni/portmap"), Path::new("/opt/cni/bin/portmap"));
    node.run(copy).unwrap().unwrap();
    world.start_agent(&node);
    world
}

/// A runtime that requests a host port.
fn with_host_port(node: &Node, port: u16) -> Runtime<'_> {
    let mappings = json!([{ "hostPort": port, "containerPort": PORT, "protocol": "tcp" }]);
    Runtime::of(node).unwrap().with_capability("portMappings", mappings)
}

/// portmap has the pod's host end carry packets for 127.0.0.0/8, so that the node itself can reach a host port there.
#[test]
fn pod_with_host_port_cannot_reach_loopback_of_node() {
    let world = world_with_portmap();
    let node = Arc::clone(&world.node);
    let (server, _) = world.server_by(&node, "one", &with_host_port(&node, 9001));
    let own = server.address.ipv4.unwrap();
    let way = world.on_node("ip", &["-o", "route", "get", &own.to_string()], "");
    let link = way.split_whitespace().skip_while(|word| *word != "dev").nth(1).unwrap();
    let setting = format!("/proc/sys/net/ipv4/conf/{link}/route_localnet");
    assert_eq!(world.on_node("cat", &[&setting], ""), "1\n", "{link}");

    let output = server.pod.command("ip").args(["address", "delete", "127.0.0.1/8", "dev", "lo"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let listener = |address: IpAddr| node.run(|| UdpSocket::bind((address, 0)).unwrap()).unwrap();
    let (loopback, other) = (listener(Ipv4Addr::LOCALHOST.into()), listener(world.address(Family::Ipv4)));
    loopback.set_nonblocking(true).unwrap();
    other.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let dropped = || {
        let listing = world.on_node("nft", &["list", "table", "inet", vcn::NFT_TABLE], "");
        counted(&listing, "vcn* to 127.0.0.0/8: drop")
    };
    // What is sent behind it arrives.
    wait_for("datagrams of the pod's", || {
        let send = |to: &UdpSocket| {
            UdpSocket::bind((own, 0)).unwrap().send_to(b"hello", to.local_addr().unwrap()).unwrap();
        };
        server.pod.run(|| [&loopback, &other].map(send)).unwrap();
        other.recv(&mut [0; 8]).is_ok() && dropped() >= 5
    });
    assert!(loopback.recv(&mut [0; 8]).is_err(), "the pod reached the node's loopback");

    let at_node = node.run(|| Connection::open((Ipv4Addr::LOCALHOST, 9001).into())).unwrap();
    let outside = world.connect(world.address(Family::Ipv4), 9001);
    for (who, connection) in [("the node by 127.0.0.1", at_node), ("the client", outside)] {
        let mut connection = world.works(who, connection);
        world.works(who, connection.echo());
    }
}

#[test]
fn host_port_reply_keeps_its_path() {
    let world = world_with_portmap();
    let node = Arc::clone(&world.node);
    let runtime = |port| with_host_port(&node, port);
    let (one, on_one) = world.server_by(&node, "one", &runtime(9001));
    let (two, on_two) = world.server_by(&node, "two", &runtime(9002));
    assert_ne!(world.vnic_of(&one), world.vnic_of(&two), "pods are spread over VNICs");
    // Its rules and kube-proxy's are in the same chains on most nodes.
    for kube_proxy in [None, Some(Mode::Nftables), Some(Mode::Iptables)] {
        if matches!(kube_proxy, Some(Mode::Iptables)) {
            withdraw_nftables(&world);
        }
        if let Some(mode) = kube_proxy {
            mode.publish(&world, &one);
        }
        for (server, port) in [(&one, 9001), (&two, 9002)] {
            for family in Family::ALL {
                for address in world.own_addresses(family) {
                    let what = format!("{kube_proxy:?}, {} reached by {address} port {port}", server.label);
                    let mut connection = world.works(&what, world.connect(address, port));
                    assert_eq!(Some(connection.seen), world.client.address(family), "{what}");
                    world.works(&what, connection.echo());
                    // Another pod calls, then the pod itself.
                    for caller in [&one, &two] {
                        let outcome = caller.pod.run(|| Connection::open((address, port).into())).unwrap();
                        let what = format!("{what}, by {}", caller.label);
                        let mut connection = world.works(&what, outcome);
                        world.works(&what, connection.echo());
                    }
                }
            }
        }
    }
    // Its rules and kube-proxy's are both there.
    let mut connection = world.works("a node port", world.connect(world.address(Family::Ipv4), LOCAL));
    world.works("a node port", connection.echo());
    world.assert_nothing_spoofed();
    for (server, attachment, port) in [(one, on_one, 9001), (two, on_two, 9002)] {
        runtime(port).del(&server.pod, &attachment).unwrap();
        assert!(world.connect(world.address(Family::Ipv4), port).is_err(), "{} is gone", server.label);
    }
}
