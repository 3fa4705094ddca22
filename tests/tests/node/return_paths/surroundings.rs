//! What else is on a node, and must neither be disturbed nor disturb.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use sandbox::{BOOT_DISK_V4, DropReason};
use vcn::Family;

use super::kube_proxy::{CLUSTER, LOCAL, Mode};
use super::world::{Connection, World, serve};
use crate::{DEADLINE, wait_for};

/// The packets that rules with this comment of a table counted.
pub(crate) fn counted(listing: &str, comment: &str) -> u64 {
    let lines = listing.lines().filter(|line| line.contains(&format!("comment \"{comment}\"")));
    let packets = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "packets").unwrap();
        words.get(at + 1).and_then(|number| number.parse::<u64>().ok()).unwrap()
    };
    lines.map(packets).sum()
}

/// Oracle Linux's firewall drops what it would answer by another link, IPv6 only, and reads routes with the mark.
#[test]
fn firewall_with_reverse_path_check_accepts_node_ports() {
    let world = World::start();
    let [one, two] = world.servers();
    let firewalld = "table inet firewalld {
        chain filter_PREROUTING {
            type filter hook prerouting priority filter + 10;
            icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
            meta nfproto ipv6 fib saddr . mark . iif oif missing drop
        }
    }";
    world.on_node("nft", &["-f", "-"], firewalld);
    for server in [&one, &two] {
        Mode::Nftables.publish(&world, server);
        for port in [LOCAL, CLUSTER] {
            let mut connection = world.works(&server.label, world.connect(world.address(Family::Ipv6), port));
            world.works(&server.label, connection.echo());
        }
    }
}

/// A connection to what stands for the boot disk: a line there and back.
struct Disk(BufReader<TcpStream>);

impl Disk {
    fn open(patience: Duration) -> std::io::Result<Self> {
        let target = SocketAddr::from((BOOT_DISK_V4, 3260));
        let stream = TcpStream::connect_timeout(&target, patience)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn works(&mut self) -> bool {
        let mut line = String::new();
        self.0.get_mut().write_all(b"read(10)\n").is_ok()
            && self.0.read_line(&mut line).is_ok_and(|_| line == "read(10)\n")
    }
}

#[test]
fn boot_disk_of_host_works_and_is_unreachable_for_pods() {
    let mut world = World::booted();
    let node = Arc::clone(&world.node);
    let mut disk = world.works("the boot disk", node.run(|| Disk::open(DEADLINE)).unwrap());
    assert!(disk.works(), "before the agent");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let during = std::thread::spawn(move || {
        let mut reads = 0_u64;
        while stopped.try_recv().is_err() {
            assert!(disk.works(), "after {reads} reads");
            reads += 1;
        }
        (disk, reads)
    });
    world.start_agent(&node);
    let [one, two] = world.servers();
    Mode::Nftables.publish(&world, &one);
    stop.send(()).unwrap();
    let (mut disk, reads) = during.join().unwrap();
    assert!(reads > 10 && disk.works(), "{reads} reads while the agent started");
    let mut new = world.works("a new connection", node.run(|| Disk::open(DEADLINE)).unwrap());
    for server in [&one, &two] {
        let outcome = server.pod.run(|| Disk::open(Duration::from_secs(1))).unwrap();
        assert!(outcome.is_err(), "{}", server.label);
        server.pod.resolve("client.vcn.oraclevcn.com").or_else(|_| server.pod.query_time()).unwrap();
    }
    // Dropped by us, not by the fabric: nothing of it was sent by a secondary VNIC, nor as the node's.
    let reached = |drop: &sandbox::Dropped| {
        matches!(drop.reason, DropReason::MetadataFromSecondary | DropReason::ForeignSource(_))
    };
    assert!(!world.vcn.drops().iter().any(reached), "{:?}", world.vcn.drops());
    let listing = world.on_node("nft", &["list", "table", "inet", vcn::NFT_TABLE], "");
    assert!(counted(&listing, "vcn* to the rest of 169.254.0.0/16: drop") >= 2, "{listing}");
    for agent in world.agents.drain(..) {
        agent.stop().unwrap();
    }
    assert!(disk.works() && new.works(), "after the agent");
}

#[test]
fn services_of_host_are_undisturbed() {
    let mut world = World::booted();
    let node = Arc::clone(&world.node);
    node.run(|| serve(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 22)))).unwrap();
    let client = |family| world.client.address(family).unwrap();
    let clients = Family::ALL.map(client);
    let mut before: Vec<Connection> =
        Family::ALL.map(|family| world.works("before the agent", world.connect(world.address(family), 22))).into();
    world.start_agent(&node);
    let [one, _] = world.servers();
    Mode::Nftables.publish(&world, &one);
    for connection in &mut before {
        world.works("a connection from before the agent", connection.echo());
    }
    for family in Family::ALL {
        for address in world.own_addresses(family) {
            let mut connection = world.works(&format!("the host by {address}"), world.connect(address, 22));
            assert!(clients.contains(&connection.seen));
            world.works("the host", connection.echo());
        }
    }
    // The host calls its own node port, and itself.
    for (address, port) in [(world.address(Family::Ipv4), CLUSTER), (IpAddr::V4(Ipv4Addr::LOCALHOST), 22)] {
        let mut connection = world.works("the host", node.run(|| Connection::open((address, port).into())).unwrap());
        world.works("the host", connection.echo());
    }
    world.assert_nothing_spoofed();
}

/// As made by a version that knew no marks, or before another program flushed the rules.
#[test]
fn connections_that_lost_their_mark_or_our_table_go_on() {
    let mut world = World::start();
    let [one, _] = world.servers();
    Mode::Iptables.publish(&world, &one);
    let open = |family| world.works("a node port", world.connect(world.address(family), LOCAL));
    let mut connections = Family::ALL.map(open);
    let mut go_on = |when: &str| {
        for connection in &mut connections {
            world.works(when, connection.echo());
        }
    };
    go_on("at first");
    for family in ["ipv4", "ipv6"] {
        world.on_node("conntrack", &["-U", "-f", family, "--mark", "0"], "");
    }
    go_on("without marks");
    world.on_node("nft", &["delete", "table", "inet", vcn::NFT_TABLE], "");
    // The agent hears of rules, not of nft tables, and then checks everything.
    world.on_node("ip", &["rule", "del", "pref", "1024"], "");
    let table = || world.node.command("nft").args(["list", "table", "inet", vcn::NFT_TABLE]).output().unwrap();
    wait_for("the agent's repair", || table().status.success());
    go_on("after the repair");
    let node = Arc::clone(&world.node);
    let agent = world.agents.remove(0);
    agent.stop().unwrap();
    let mut go_on = |world: &World, when: &str| {
        for connection in &mut connections {
            world.works(when, connection.echo());
        }
    };
    go_on(&world, "without the agent");
    world.start_agent(&node);
    go_on(&world, "after its restart");
    world.assert_nothing_spoofed();
}
