//! NodePorts, with kube-proxy's rules in each of its modes.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use vcn::{Family, MachineKind};

use super::ipvs::wait_until_nothing_is_open;
use super::kube_proxy::{CLUSTER, LOCAL, Mode, SERVICE_PORT, cluster_ip};
use super::surroundings::counted;
use super::world::{Connection, Server, World};
use crate::wait_for;

/// By the address of every VNIC of the node: with Local to a pod of this node, with Cluster to any pod.
pub(super) fn node_port_answers_at_the_same_vnic(mode: Mode, world: &World) {
    let [one, two] = world.servers();
    let elsewhere = world.server(&world.other, "elsewhere");
    for (server, ports) in [(&one, &[LOCAL, CLUSTER][..]), (&two, &[LOCAL, CLUSTER]), (&elsewhere, &[CLUSTER])] {
        publish(mode, world, [&one, &two, &elsewhere], server);
        for family in Family::ALL {
            let client = world.client.address(family).unwrap();
            for address in world.own_addresses(family) {
                for port in ports {
                    let what = format!("{mode:?}, {} reached by {address} port {port}", server.label);
                    let mut connection = world.works(&what, world.connect(address, *port));
                    // Local keeps the client's address, Cluster puts one of the node's in its place.
                    assert_eq!(connection.seen == client, *port == LOCAL, "{what}: seen as {}", connection.seen);
                    world.works(&what, connection.echo());
                }
            }
        }
    }
    world.assert_nothing_spoofed();
    nothing_was_taken_for_returned(mode, world);
}

fn publish(mode: Mode, world: &World, pods: [&Server; 3], endpoint: &Server) {
    if mode == Mode::Ipvs {
        wait_until_nothing_is_open(pods);
    }
    mode.publish(world, endpoint);
}

/// Our rules for packets to unassigned addresses matched nothing. (A kernel with IPVS may have no nf_tables.)
fn nothing_was_taken_for_returned(mode: Mode, world: &World) {
    if mode == Mode::Ipvs {
        return;
    }
    let listing = world.on_node("nft", &["list", "table", "inet", vcn::NFT_TABLE], "");
    for vnic in world.node.vnics() {
        for rule in ["from a pod of this node to none of it: drop", "from this node to elsewhere: drop"] {
            let rule = format!("in by {} {rule}", vnic.link);
            assert!(listing.contains(&rule), "{rule}: {listing}");
            assert_eq!(counted(&listing, &rule), 0, "{rule}");
        }
    }
}

#[test]
fn node_port_reply_keeps_its_path_with_iptables() {
    node_port_answers_at_the_same_vnic(Mode::Iptables, &World::start());
}

#[test]
fn node_port_reply_keeps_its_path_with_nftables() {
    node_port_answers_at_the_same_vnic(Mode::Nftables, &World::start());
}

/// WireGuard's tools, among others, have the kernel look at marks when it reads the route back.
#[test]
fn node_port_reply_keeps_its_path_with_src_valid_mark() {
    let world = World::start();
    world.on_node("tee", &["/proc/sys/net/ipv4/conf/all/src_valid_mark"], "1");
    node_port_answers_at_the_same_vnic(Mode::Nftables, &world);
}

#[test]
#[ignore = "needs VLANs and nf_tables in one kernel: run by tests/qemu/run"]
fn node_port_reply_keeps_its_path_on_bare_metal() {
    node_port_answers_at_the_same_vnic(Mode::Nftables, &World::start_as(MachineKind::BareMetal));
}

/// kube-proxy removes an endpoint from its Service, not from its connections. conntrack forgets a connection whole, the mark with
/// the translation. So nothing leaves through the requested VNIC in the pod's name.
fn an_open_connection_outlives_its_endpoint_and_is_forgotten_whole(mode: Mode) {
    let world = World::start();
    let [one, two] = world.servers();
    mode.publish(&world, &one);
    let own: Vec<_> = Family::ALL.into_iter().flat_map(|family| world.own_addresses(family)).collect();
    let requested = own.into_iter().flat_map(|address| [(address, LOCAL), (address, CLUSTER)]);
    let connections = requested.map(|(address, port)| {
        let what = format!("{mode:?}, {} reached by {address} port {port}", one.label);
        let mut connection = world.works(&what, world.connect(address, port));
        let lines = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lines);
        let until_it_fails = thread::spawn(move || {
            while connection.echo().is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        (what, lines, until_it_fails)
    });
    let connections: Vec<_> = connections.collect();
    mode.publish(&world, &two);
    for (what, lines, _) in &connections {
        let then = lines.load(Ordering::Relaxed);
        wait_for(what, || lines.load(Ordering::Relaxed) > then + 10);
    }
    world.on_node("conntrack", &["--flush"], "");
    for (what, _, until_it_fails) in connections {
        wait_for(&format!("the end of {what}"), || until_it_fails.is_finished());
    }
    world.assert_nothing_spoofed();
}

#[test]
fn open_connection_survives_its_endpoint_until_deleted_with_iptables() {
    an_open_connection_outlives_its_endpoint_and_is_forgotten_whole(Mode::Iptables);
}

#[test]
fn open_connection_survives_its_endpoint_until_deleted_with_nftables() {
    an_open_connection_outlives_its_endpoint_and_is_forgotten_whole(Mode::Nftables);
}

fn from(server: &Server, to: IpAddr, port: u16) -> std::io::Result<Connection> {
    server.pod.run(|| Connection::open((to, port).into())).unwrap()
}

/// A pod calls a Service: nothing of it comes in by a VNIC for this host, so none of it is steered.
pub(super) fn pods_reach_services(mode: Mode, world: &World) {
    let [one, two] = world.servers();
    let elsewhere = world.server(&world.other, "elsewhere");
    for endpoint in [&one, &two, &elsewhere] {
        publish(mode, world, [&one, &two, &elsewhere], endpoint);
        for caller in [&one, &two] {
            let itself = caller.address == endpoint.address;
            for family in Family::ALL {
                let what = format!("{mode:?}, {} calls the Service of {}", caller.label, endpoint.label);
                let mut connection = world.works(&what, from(caller, cluster_ip(family), SERVICE_PORT));
                let own = caller.address.of(family) == Some(&connection.seen);
                assert_eq!(own, !itself, "{what}: seen as {}", connection.seen);
                world.works(&what, connection.echo());
                for address in world.own_addresses(family) {
                    let mut connection = world.works(&what, from(caller, address, CLUSTER));
                    world.works(&what, connection.echo());
                }
            }
        }
    }
    world.assert_nothing_spoofed();
    nothing_was_taken_for_returned(mode, world);
}

#[test]
fn pods_reach_own_and_remote_services_with_iptables() {
    pods_reach_services(Mode::Iptables, &World::start());
}

#[test]
fn pods_reach_own_and_remote_services_with_nftables() {
    pods_reach_services(Mode::Nftables, &World::start());
}
