//! Changes by other programs to the links of bare metal's VNICs: the agent reverts each within a second, and the pods on
//! them are connected again, judged by packets.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use netlink::{Address, LinkChange, NeighbourFilter, Socket};
use sandbox::{Agent, Attachment, Node, Pod, kept_waiting};
use vcn::{Family, IfName, MacAddr, MachineKind, Mtu, VlanTag};

use super::Cluster;
use crate::{DEADLINE, wait_for};

/// What the agent promises of repairs.
const SECOND: Duration = Duration::from_secs(1);

/// How often that is tried: other tests on the machine may delay one attempt.
const TRIES: usize = 5;

struct World {
    cluster: Cluster,
    pods: [(Pod, Attachment); 2],
    /// The VLAN link of the VNIC that serves pods of the node with the first of them.
    link: IfName,
}

/// A link, as far as it is anybody's to change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    name: IfName,
    mac: Option<MacAddr>,
    mtu: Mtu,
    up: bool,
    tag: Option<VlanTag>,
    /// Whether it is a tagged one that has an IPv6 link-local address: from another the kernel does not resolve the router.
    can_solicit: bool,
}

impl World {
    /// Only events can be the cause of what is seen within seconds.
    fn start() -> Self {
        let cluster = Cluster::start_as(MachineKind::BareMetal, "RESYNC_SECONDS=600\n");
        let pods = [cluster.add("node-a", "a"), cluster.add("node-b", "b")];
        let tagged = seen(cluster.node("node-a")).into_iter().find(|link| link.tag.is_some()).unwrap();
        let world = Self { cluster, pods, link: tagged.name };
        world.wait_connected();
        world
    }

    fn node(&self) -> &Node {
        self.cluster.node("node-a")
    }

    fn agent(&self) -> &Agent {
        let at = self.cluster.nodes.iter().position(|node| node.name() == "node-a").unwrap();
        self.cluster.agents.get(at).unwrap()
    }

    /// In both directions and families.
    fn wait_connected(&self) {
        let [(a, on_a), (b, on_b)] = &self.pods;
        let reaches = |from: &Pod, to: &Attachment| to.addresses().all(|address| from.ping(address).is_ok());
        wait_for("the pods' packets", || reaches(a, on_b) && reaches(b, on_a));
    }

    /// Broken, all links are within a second as they were; then packets pass, and no condition is left.
    fn assert_repaired(&self, what: &str, broken: impl Fn(&mut Socket)) {
        let whole = seen(self.node());
        let mut late = Vec::new();
        loop {
            let before = kept_waiting(self.agent().id());
            broken(&mut Socket::open_in(self.node().netns()).unwrap());
            let begun = Instant::now();
            while seen(self.node()) != whole {
                assert!(begun.elapsed() < DEADLINE, "{what}: {:#?} of {whole:#?}", seen(self.node()));
                thread::sleep(Duration::from_millis(5));
            }
            let took = begun.elapsed().saturating_sub(kept_waiting(self.agent().id()).saturating_sub(before));
            if took < SECOND {
                println!("{what}: {took:?}");
                break;
            }
            late.push(took);
            assert!(late.len() < TRIES, "{what}: not within {SECOND:?}, but after {late:?}");
        }
        self.wait_connected();
        let ready = || Agent::metrics(self.node()).unwrap().lines().all(|line| !is_raised(line));
        wait_for("no condition to stay", ready);
    }
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn changed_or_deleted_vlan_link_is_restored_within_a_second() {
    let world = World::start();
    let link = &world.link;
    let change = |socket: &mut Socket, change: LinkChange<'_>| socket.change_link_named(link, &[change]).unwrap();
    world
        .assert_repaired("the Ethernet address", |socket| change(socket, LinkChange::Mac(MacAddr([2, 0, 0, 0, 0, 9]))));
    world.assert_repaired("the MTU", |socket| change(socket, LinkChange::Mtu(Mtu(1500))));
    world.assert_repaired("a link that flaps", |socket| {
        for _ in 0..5 {
            change(socket, LinkChange::Down);
            change(socket, LinkChange::Up);
        }
        change(socket, LinkChange::Down);
    });
    world.assert_repaired("a link that was renamed", |socket| {
        change(socket, LinkChange::Down);
        change(socket, LinkChange::Rename("storage0".parse().unwrap()));
    });
    world.assert_repaired("a link without link-local address", |socket| {
        let index = socket.index_of(link).unwrap();
        let of_link = socket.addresses(Some(index)).unwrap();
        of_link.iter().filter(|it| is_link_local(it)).for_each(|it| socket.delete_address(it).unwrap());
        let known = NeighbourFilter { family: Some(Family::Ipv6), index: Some(index), proxy: false };
        // Unused entries may expire meanwhile.
        socket.neighbours(&known).unwrap().iter().for_each(|it| drop(socket.delete_neighbour(it)));
    });
    world.assert_repaired("a link that was deleted", |socket| {
        let index = socket.index_of(link).unwrap();
        socket.delete_link(index).unwrap();
    });
}

/// What is done to the port is done to what stands on it.
#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn changed_or_lowered_port_carries_vlans_again_within_a_second() {
    let world = World::start();
    let port: IfName = "ens300f0".parse().unwrap();
    let change = |socket: &mut Socket, change: LinkChange<'_>| socket.change_link_named(&port, &[change]).unwrap();
    world.assert_repaired("the port's MTU", |socket| change(socket, LinkChange::Mtu(Mtu(1500))));
    world.assert_repaired("a port that flaps", |socket| {
        for _ in 0..3 {
            change(socket, LinkChange::Down);
            change(socket, LinkChange::Up);
        }
    });
}

/// In the guest there is no nf_tables, and that condition stays throughout.
fn is_raised(line: &str) -> bool {
    line.starts_with("oke_node_agent_condition{") && line.ends_with(" 1.0") && !line.contains("KernelLacksNft")
}

/// The node's links, less those of pods.
fn seen(node: &Node) -> Vec<Seen> {
    let mut socket = Socket::open_in(node.netns()).unwrap();
    let (links, addresses) = (socket.links().unwrap(), socket.addresses(None).unwrap());
    let of_host = links.into_iter().filter(|link| !link.loopback && !link.name.as_str().starts_with("vcn"));
    let mut seen: Vec<Seen> = of_host
        .map(|link| Seen {
            can_solicit: link.vlan.is_some() && addresses.iter().any(|it| it.index == link.index && is_link_local(it)),
            tag: link.vlan,
            name: link.name,
            mac: link.mac,
            mtu: link.mtu,
            up: link.up,
        })
        .collect();
    seen.sort();
    seen
}

fn is_link_local(address: &Address) -> bool {
    matches!(address.address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}
