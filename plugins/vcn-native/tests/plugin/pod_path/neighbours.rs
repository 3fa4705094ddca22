//! A pod that floods the host with forged ARP and neighbour discovery: the host's tables of neighbours, which all namespaces of a
//! kernel share, keep room for others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use datapath::host::PodServices;
use host_harness::{Families, PATIENCE, ip, name, reaches, within};
use netlink::{Address, Link, NeighbourFilter, Netns, Route, Socket};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use vcn::{Family, MacAddr, TableId};

use crate::node::{Node, Pod};
use crate::pod_path::advertised::{host_end, make_agents_tables, set};

/// What the agent's rules let pass of a link's packets of a kind (crates/datapath/src/object/nft.rs).
const PER_SECOND: u64 = 10;
const BURST: u64 = 20;
/// The pod's own, and what the kernel keeps of multicast addresses.
const OTHERS: u64 = 32;
/// Frames of each kind before the flood stops for a moment: together more than ten times what the tables have room for, each second.
const AT_ONCE: u16 = 50;
const PAUSE: Duration = Duration::from_millis(5);
/// Frames of each kind that show what happens without the rules. Other tests share the tables, so they must not fill them.
const FRAME_COUNT: u16 = 100;

const HOST_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const HOST_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const ICMPV6: u8 = 58;

/// Makes the frame of a sender of this number, from an Ethernet address to another.
type Frame = fn(u16, MacAddr, MacAddr) -> Vec<u8>;

/// Kinds of frames that have the host make an entry for the sender that they name.
const KINDS: [Frame; 4] = [
    arp_request,
    |number, from, to| solicitation(link_local(9, number), from, to),
    |number, from, to| solicitation(Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, number), from, to),
    |number, from, to| echo_request(link_local(10, number), from, to),
];

fn link_local(group: u16, number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, group, number)
}

fn arp_request(number: u16, MacAddr(from): MacAddr, _: MacAddr) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let head = [0, 1, 0x08, 0, 6, 4, 0, 1];
    [&[0xff; 6], &from, &[0x08, 0x06][..], &head, &from, &[10, 9, high, low], &[0; 6], &HOST_V4.octets()].concat()
}

fn solicitation(source: Ipv6Addr, from: MacAddr, to: MacAddr) -> Vec<u8> {
    icmpv6(&[&[135, 0, 0, 0, 0, 0, 0, 0], &HOST_LINK_LOCAL.octets()[..], &[1, 1], &from.0].concat(), source, from, to)
}

fn echo_request(source: Ipv6Addr, from: MacAddr, to: MacAddr) -> Vec<u8> {
    icmpv6(&[128, 0, 0, 0, 0, 1, 0, 1], source, from, to)
}

/// A message to the host's end, with its checksum (RFC 1071).
fn icmpv6(message: &[u8], source: Ipv6Addr, MacAddr(from): MacAddr, MacAddr(to): MacAddr) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    let (source, target) = (source.octets(), HOST_LINK_LOCAL.octets());
    let summed = [&source[..], &target, &[0, 0], &length, &[0, 0, 0, ICMPV6], message].concat();
    let words = summed.chunks(2).map(|pair| pair.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let mut message = message.to_vec();
    message[2..4].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    [&to[..], &from, &[0x86, 0xdd, 0x60, 0, 0, 0], &length, &[ICMPV6, 255], &source, &target, &message].concat()
}

/// A packet socket of a pod's, with its link.
struct Flood {
    socket: OwnedFd,
    link: Link,
    host_end: MacAddr,
}

impl Flood {
    fn of(pod: &Pod, host_end: &Link) -> Self {
        let open = || {
            let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None).unwrap();
            let links = Socket::open().unwrap().links().unwrap();
            (socket, links.into_iter().find(|link| link.name == name("eth0")).unwrap())
        };
        let (socket, link) = pod.netns.run(open).unwrap();
        Self { socket, link, host_end: host_end.mac.unwrap() }
    }

    /// Frames of each kind, each from a sender of its own.
    fn send(&self, numbers: RangeInclusive<u16>) {
        for number in numbers {
            for kind in KINDS {
                self.send_frame(&kind(number, self.link.mac.unwrap(), self.host_end));
            }
        }
    }

    #[expect(unsafe_code, reason = "nix makes no packet socket addresses")]
    fn send_frame(&self, frame: &[u8]) {
        // SAFETY: an all-zero sockaddr_ll is valid: it is plain numbers.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        to.sll_ifindex = i32::try_from(self.link.index).unwrap();
        let length = u32::try_from(size_of::<libc::sockaddr_ll>()).unwrap();
        // SAFETY: the kernel reads the frame and the address, each within its length.
        let sent = unsafe {
            libc::sendto(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), length)
        };
        Errno::result(sent).unwrap();
    }
}

/// The flood ends when the test does what it does next, also by panicking.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The entries that the host has of neighbours on a link.
fn entries(node: &Node, link: &Link, family: Family) -> u64 {
    let filter = NeighbourFilter { family: Some(family), index: Some(link.index), proxy: false };
    let found = node.in_host(|socket| socket.neighbours(&filter).unwrap());
    u64::try_from(found.len()).unwrap()
}

/// A host whose kernel checks no sources by itself, which is the default, and a pod.
fn node_with_a_pod() -> (Node, Pod, Link) {
    let node = Node::new(Families::Dual);
    for link in ["all", "default"] {
        set(&node, &format!("net/ipv4/conf/{link}/rp_filter"), "0");
    }
    let pod = Pod::new("a");
    node.add(&pod);
    let link = host_end(&node);
    (node, pod, link)
}

fn addresses(result: &serde_json::Value) -> Vec<String> {
    let ips = result["ips"].as_array().unwrap().iter();
    ips.map(|it| it["address"].as_str().unwrap().split('/').next().unwrap().to_owned()).collect()
}

/// Neighbours that the host has not resolved yet, by its VNIC.
fn add_new_neighbours(node: &Node) -> [&'static str; 2] {
    let neighbours = ["10.0.0.77", "2001:db8::77"];
    let add = || {
        let mut socket = Socket::open().unwrap();
        let port = socket.index_of(&name("port")).unwrap();
        for address in neighbours {
            socket.add_address(&Address { nodad: true, ..Address::new(port, ip(address).into()) }).unwrap();
        }
    };
    node.routers[0].run(add).unwrap();
    node.in_host(|socket| {
        let link = socket.index_of(&name("ens5")).unwrap();
        for address in neighbours {
            socket.add_route(&Route::new(IpAddr::into(ip(address)), link, TableId::MAIN, 4)).unwrap();
        }
    });
    neighbours
}

#[test]
fn neighbour_flood_of_a_pod_leaves_room_for_new_peers() {
    let (node, pod, link) = node_with_a_pod();
    // Pods may spoof, so that only the limit stops forged sources.
    make_agents_tables(&node, PodServices { may_use_metadata: true, may_spoof: true, ipv6: true });
    let neighbours = add_new_neighbours(&node);
    let flood = Flood::of(&pod, &link);
    let reached = |netns: &Netns, whom: &[String]| whom.iter().for_each(|it| assert!(reaches(netns, it), "{it}"));
    let (begun, done) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for from in (1..u16::MAX - AT_ONCE).step_by(usize::from(AT_ONCE)).cycle() {
                flood.send(from..=from + AT_ONCE);
                if done.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(PAUSE);
            }
        });
        let _end = End(&done);
        // As many as the tables have room for.
        assert!(within(PATIENCE, || dropped(&node) > 3 * 1024));
        reached(&node.host, &neighbours.map(str::to_owned));
        let later = Pod::new("b");
        reached(&node.host, &addresses(&node.add(&later)));
    });
    let most = BURST + PER_SECOND * (begun.elapsed().as_secs() + 1) + OTHERS;
    for family in Family::ALL {
        let entries = entries(&node, &link, family);
        assert!(entries <= most, "{entries} {family} entries, at most {most} pass");
    }
    // Afterwards the pod is reached again, and reaches the host.
    for target in ["10.0.0.2", "2001:db8::2"] {
        assert!(pod.reaches(target), "{target}");
    }
    for address in pod_addresses(&pod) {
        assert!(reaches(&node.host, &address), "{address}");
    }
}

/// The packets that the limits dropped.
fn dropped(node: &Node) -> u64 {
    let listing = node.sh("nft list ruleset");
    let limits = listing.lines().filter(|line| line.contains("a second per link: drop"));
    let packets = limits.map(|line| line.split_once("counter packets ").unwrap().1.split(' ').next().unwrap());
    packets.map(|number| number.parse::<u64>().unwrap()).sum()
}

fn pod_addresses(pod: &Pod) -> Vec<String> {
    let list = || Socket::open().unwrap().addresses(None).unwrap();
    let addresses = pod.netns.run(list).unwrap().into_iter().map(|it| it.address.ip().to_string());
    addresses.filter(|it| it.starts_with("10.") || it.starts_with("2001:")).collect()
}

/// What the tables would hold without the rules: else the test above proves nothing.
#[test]
fn without_the_agents_tables_each_forged_sender_is_an_entry() {
    let (node, pod, link) = node_with_a_pod();
    let flood = Flood::of(&pod, &link);
    let most = BURST + OTHERS;
    assert!(within(PATIENCE, || {
        flood.send(1..=FRAME_COUNT);
        Family::ALL.into_iter().all(|family| entries(&node, &link, family) > most)
    }));
}
