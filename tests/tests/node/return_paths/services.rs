//! The VCN's resolver, time server and metadata service answer on the primary VNIC only, at an IPv4 and an IPv6 address. Pods of
//! secondary VNICs reach them through it, in its name, whatever family they have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use netlink::{Address, Socket};
use sandbox::{Container, DropReason, Pod};
use vcn::{Family, METADATA_ADDRESS, METADATA_ADDRESS_V6};

use super::surroundings::counted;
use super::world::{PORT, World};
use crate::wait_for;

const ANSWER: Duration = Duration::from_secs(3);
/// After which there is none: what is dropped is counted besides.
const NO_ANSWER: Duration = Duration::from_secs(1);
const RESOLVER: u16 = 53;
const TIME: u16 = 123;
const METADATA: u16 = 80;
/// A Service's on every node.
const NODE_PORT: u16 = 30090;
/// An address that no pod may reach, whatever listens there.
const OTHER: u16 = 3260;

fn gets_time(pod: &Pod, server: IpAddr, within: Duration) -> bool {
    let exchange = || {
        let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.set_read_timeout(Some(within)).unwrap();
        // Version 4, client.
        let mut query = [0; 48];
        query[0] = 0x23;
        socket.connect((server, TIME))?;
        socket.send(&query)?;
        socket.recv(&mut query)
    };
    pod.run(exchange).unwrap().is_ok_and(|length| length >= 48)
}

fn connects(pod: &Pod, server: IpAddr, port: u16, within: Duration) -> bool {
    pod.run(|| TcpStream::connect_timeout(&SocketAddr::new(server, port), within)).unwrap().is_ok()
}

/// Takes a pod's IPv4 address away.
fn without_ipv4(pod: &Pod, address: IpAddr) {
    let remove = || {
        let mut socket = Socket::open().unwrap();
        let index = socket.index_of(&"eth0".parse().unwrap()).unwrap();
        socket.delete_address(&Address::new(index, address.into())).unwrap();
    };
    pod.run(remove).unwrap();
}

#[test]
fn ipv6_only_pod_reaches_only_dns_ntp_and_metadata() {
    let world = World::start();
    let [one, two] = world.servers();
    let (v4, v6) = (IpAddr::V4(METADATA_ADDRESS), IpAddr::V6(METADATA_ADDRESS_V6));
    for server in [&one, &two] {
        wait_for(&server.label, || gets_time(&server.pod, v4, ANSWER));
        without_ipv4(&server.pod, server.address.ipv4.unwrap());
        assert!(!gets_time(&server.pod, v4, NO_ANSWER), "{} has no IPv4 any more", server.label);
        wait_for(&server.label, || gets_time(&server.pod, v6, ANSWER));
        for port in [RESOLVER, METADATA] {
            wait_for(&format!("{}, port {port}", server.label), || connects(&server.pod, v6, port, ANSWER));
        }
        assert!(!connects(&server.pod, v6, OTHER, NO_ANSWER), "{}", server.label);
    }
    // Dropped by us and not by the fabric; and what arrived was sent by the primary VNIC, in its name.
    let reached = |drop: &sandbox::Dropped| {
        matches!(drop.reason, DropReason::MetadataFromSecondary | DropReason::ForeignSource(_))
    };
    assert!(!world.vcn.drops().iter().any(reached), "{:?}", world.vcn.drops());
    let listing = world.on_node("nft", &["list", "table", "inet", vcn::NFT_TABLE], "");
    let dropped = listing.lines().find(|line| line.contains("to other ports of fd00:c1::a9fe:a9fe: drop")).unwrap();
    assert!(!dropped.contains("packets 0 "), "{dropped}");
}

/// Has the node translate a port of its own as kube-proxy does a Service's node port.
fn publish(world: &World, family: Family, to: SocketAddr) {
    let name = match family {
        Family::Ipv4 => "ip",
        Family::Ipv6 => "ip6",
    };
    let rules = format!(
        "table {name} service
        delete table {name} service
        table {name} service {{
            chain nat-prerouting {{
                type nat hook prerouting priority dstnat; policy accept;
                fib daddr type local tcp dport {NODE_PORT} dnat to {to}
            }}
            chain nat-postrouting {{
                type nat hook postrouting priority srcnat - 1; policy accept;
                ct status dnat masquerade
            }}
        }}"
    );
    world.on_node("nft", &["-f", "-"], &rules);
}

/// The same by IPVS: what it translates is never forwarded.
fn publish_by_ipvs(world: &World, family: Family, to: SocketAddr) {
    // Has the kernel load it, if it was not, and the settings appear.
    world.on_node("ipvsadm", &["--clear"], "");
    world.on_node("tee", &["/proc/sys/net/ipv4/vs/conntrack"], "1");
    let own = world.own_addresses(family).into_iter().map(|address| SocketAddr::new(address, NODE_PORT));
    let services: String = own.map(|at| format!("-A -t {at} -s rr\n-a -t {at} -r {to} -m -w 1\n")).collect();
    world.on_node("ipvsadm", &["-R"], &services);
    let masquerade = format!(
        "table inet service
        delete table inet service
        table inet service {{
            chain nat-postrouting {{
                type nat hook postrouting priority srcnat - 1; policy accept;
                iifname \"ens*\" tcp dport {} masquerade
            }}
        }}",
        to.port()
    );
    world.on_node("nft", &["-f", "-"], &masquerade);
}

/// A Service's endpoint may be any address that the API server accepts, also the metadata service's IPv6 address. A user who
/// writes endpoints would get the instance's credentials from outside, whether pods may request them or not.
fn assert_metadata_ignores_outside_requests(world: &World, publish: impl Fn(&World, Family, SocketAddr)) {
    let node = Arc::clone(&world.node);
    let [server, _] = world.servers();
    for (family, metadata) in [(Family::Ipv4, METADATA_ADDRESS.into()), (Family::Ipv6, METADATA_ADDRESS_V6.into())] {
        let metadata = SocketAddr::new(metadata, METADATA);
        let answers = || node.run(|| TcpStream::connect_timeout(&metadata, ANSWER)).unwrap().is_ok();
        wait_for("the node reads its own metadata", answers);
        let own = world.own_addresses(family).into_iter().map(|address| SocketAddr::new(address, NODE_PORT));
        let own: Vec<SocketAddr> = own.collect();
        publish(world, family, SocketAddr::new(*server.address.of(family).unwrap(), PORT));
        for at in &own {
            let connection = world.client.run(|| TcpStream::connect_timeout(at, ANSWER)).unwrap();
            world.works(&format!("a pod's port by {at}"), connection);
        }
        publish(world, family, metadata);
        // All at once, since each waits for its timeout.
        let connect_all = || {
            let attempts: Vec<_> = own
                .iter()
                .map(|at| {
                    let at = *at;
                    thread::spawn(move || TcpStream::connect_timeout(&at, NO_ANSWER))
                })
                .collect();
            attempts.into_iter().map(|attempt| attempt.join().unwrap().is_ok()).collect::<Vec<_>>()
        };
        assert!(!world.client.run(connect_all).unwrap().contains(&true), "{family}");
    }
    // By us: nothing of it reached the fabric.
    let listing = world.on_node("nft", &["list", "table", "inet", vcn::NFT_TABLE], "");
    for vnic in node.vnics() {
        for to in ["169.254.0.0/16", "fd00:c1::a9fe:a9fe"] {
            let rule = format!("in by {} to {to}: drop", vnic.link);
            assert!(counted(&listing, &rule) > 0, "{rule}: {listing}");
        }
    }
}

#[test]
fn metadata_service_ignores_outside_requests_when_pods_are_denied() {
    let setting = tempfile::tempdir().unwrap();
    std::fs::write(setting.path().join("agent.conf"), "PODS_MAY_USE_METADATA=deny\n").unwrap();
    let container = Container::node_agent().unwrap().with_config_map("oke-node-agent", setting.path());
    let mut world = World::booted();
    let node = Arc::clone(&world.node);
    world.start_agent_in(&container, &node);
    assert_metadata_ignores_outside_requests(&world, publish);
}

#[test]
fn metadata_service_ignores_outside_requests_when_pods_are_allowed() {
    assert_metadata_ignores_outside_requests(&World::start(), publish);
}

#[test]
#[ignore = "needs IPVS and nf_tables in one kernel: run by tests/qemu/run"]
fn metadata_service_ignores_outside_requests_through_ipvs() {
    assert_metadata_ignores_outside_requests(&World::start(), publish_by_ipvs);
}
