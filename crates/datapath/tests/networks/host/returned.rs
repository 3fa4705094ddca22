//! What a pod sent and the VCN brings back is dropped only where it would go round: not on its way to this host (a load balancer
//! that keeps sources chose this node's NodePort), to a pod here, or to where the node sends it on for others.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use datapath::{Places, apply};
use netlink::Netns;
use vcn::{Family, NFT_TABLE};

use crate::host::network::{network, todo};

const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const PORT: u16 = 9000;
/// What rules of other programs translate.
pub(crate) const NODE_PORT: u16 = 30080;

/// Addresses of a family.
pub(crate) struct Plan {
    pub(crate) family: Family,
    pub(crate) host: &'static str,
    /// The pod that sends.
    pub(crate) pod: &'static str,
    pub(crate) other_pod: &'static str,
    /// An address of the VNIC that no pod has.
    pub(crate) free: &'static str,
    pub(crate) elsewhere: &'static str,
}

pub(crate) const PLANS: [Plan; 2] = [
    Plan {
        family: Family::Ipv4,
        host: "10.0.4.5",
        pod: "10.0.4.7",
        other_pod: "10.0.4.8",
        free: "10.0.4.9",
        elsewhere: "10.0.9.9",
    },
    Plan {
        family: Family::Ipv6,
        host: "2001:db8::5",
        pod: "2001:db8::7",
        other_pod: "2001:db8::8",
        free: "2001:db8::9",
        elsewhere: "2001:db8:9::9",
    },
];

/// Runs a program where the calling thread is.
pub(crate) fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The host: its VNICs, the pods' links, and what the VCN would answer when asked for neighbours.
pub(crate) fn set_up(host: &Netns, vcn: &Netns, pod: &Netns) {
    let name = |netns: &Netns| format!("/proc/{}/fd/{}", std::process::id(), netns.as_fd().as_raw_fd());
    let (vcn_at, pod_at) = (name(vcn), name(pod));
    host.run(|| {
        for line in [
            "ip link add ens3 type veth peer name ens3 netns @VCN@",
            "ip link add ens5 type veth peer name ens5 address 00:00:17:00:00:01 netns @VCN@",
            "ip link add vcn000000000001 type veth peer name eth1 netns @POD@",
            "ip link add vcn000000000002 type veth peer name eth2 netns @POD@",
            "ip link set lo up",
            "ip link set ens3 up",
            "ip link set vcn000000000001 up",
            "ip link set vcn000000000002 up",
        ] {
            run(&line.replace("@VCN@", &vcn_at).replace("@POD@", &pod_at));
        }
        let mut places = Places::host(Path::new("/proc/sys")).unwrap();
        apply(&todo(&network(), &mut places), &mut places).unwrap();
        run("ip neighbour replace 10.0.4.1 lladdr 00:00:17:00:00:01 dev ens5");
        run("ip neighbour replace fe80::200:17ff:fe00:1 lladdr 00:00:17:00:00:01 dev ens5");
    })
    .unwrap();
    pod.run(|| ["lo", "eth1", "eth2"].map(|link| run(&format!("ip link set {link} up")))).unwrap();
    vcn.run(|| {
        // Here the pod's address is one of its own, and comes back from the host.
        run("sysctl -qw net.ipv4.conf.all.accept_local=1");
        ["lo", "ens3", "ens5"].map(|link| run(&format!("ip link set {link} up")))
    })
    .unwrap();
}

pub(crate) fn set_up_family(plan: &Plan, [host, vcn, pod]: [&Netns; 3]) {
    let Plan { pod: sender, other_pod, elsewhere, free, host: own, .. } = plan;
    let (ip, table, at_once) = match plan.family {
        Family::Ipv4 => ("ip", "ip", ""),
        Family::Ipv6 => ("ip -6", "ip6", "nodad"),
    };
    let to_pod = pod.run(|| {
        run(&format!("{ip} address add {other_pod} dev eth2 {at_once}"));
        run("ip -o link show eth2")
    });
    let mac = |link: &str| link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap().to_owned();
    let to_pod = mac(&to_pod.unwrap());
    host.run(|| {
        run(&format!("{ip} route add {sender} dev vcn000000000001 table 999 proto 157"));
        run(&format!("{ip} route add {other_pod} dev vcn000000000002 table 999 proto 157"));
        run(&format!("{ip} rule add pref 1536 from {sender} lookup 1001 proto 157"));
        run(&format!("{ip} neighbour replace {other_pod} lladdr {to_pod} dev vcn000000000002"));
        let to = SocketAddr::new(elsewhere.parse().unwrap(), PORT);
        run(&format!("nft add table {table} others"));
        run(&format!("nft add chain {table} others nat {{ type nat hook prerouting priority -100; }}"));
        run(&format!("nft add rule {table} others nat fib daddr type local udp dport {NODE_PORT} dnat to {to}"));
    })
    .unwrap();
    vcn.run(|| {
        run(&format!("{ip} address add {sender} dev lo {at_once}"));
        run(&format!("{ip} address add {elsewhere} dev lo {at_once}"));
        for address in [own, other_pod, free] {
            run(&format!("{ip} route add {address} dev ens5"));
            run(&format!("{ip} neighbour replace {address} lladdr 02:00:17:00:00:05 dev ens5"));
        }
    })
    .unwrap();
}

/// The packets that our rule for what was returned dropped.
fn dropped(host: &Netns) -> u64 {
    let listing = host.run(|| run(&format!("nft list table inet {NFT_TABLE}"))).unwrap();
    let of = |line: &&str| line.contains("in by ens5 from a pod of this node to none of it: drop");
    let line = listing.lines().find(of).unwrap_or_else(|| panic!("{listing}"));
    line.split_whitespace().skip_while(|word| *word != "packets").nth(1).unwrap().parse().unwrap()
}

#[test]
fn pod_packets_reach_receivers_and_are_not_returned_to_vcn() {
    let [host, vcn, pod] = [(); 3].map(|()| Netns::create().unwrap());
    set_up(&host, &vcn, &pod);
    for plan in &PLANS {
        set_up_family(plan, [&host, &vcn, &pod]);
        let before = dropped(&host);
        let [sender, own, other_pod, free, elsewhere] =
            [plan.pod, plan.host, plan.other_pod, plan.free, plan.elsewhere]
                .map(|text| text.parse::<IpAddr>().unwrap());
        let send = |to: (IpAddr, u16)| {
            vcn.run(|| UdpSocket::bind((sender, 0)).unwrap().send_to(b"back", to).unwrap()).unwrap();
        };
        let places =
            [("the host", &host, own, PORT), ("a pod", &pod, other_pod, PORT), ("others", &vcn, own, NODE_PORT)];
        for (who, netns, to, port) in places {
            let at = if port == PORT { to } else { elsewhere };
            let listener = netns.run(|| UdpSocket::bind((at, PORT)).unwrap()).unwrap();
            listener.set_nonblocking(true).unwrap();
            wait_for(&format!("{who}, {}", plan.family), || {
                send((to, port));
                match listener.recv_from(&mut [0; 4]) {
                    Ok((_, from)) => from.ip() == sender,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                    Err(error) => panic!("{error}"),
                }
            });
        }
        assert_eq!(dropped(&host), before);
        wait_for("what is for no pod is dropped", || {
            send((free, PORT));
            dropped(&host) > before
        });
    }
}
