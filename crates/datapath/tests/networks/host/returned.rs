//! What a pod sent and the VCN brings back is dropped only where it would loop. It is not dropped on its way to this host (a load
//! balancer that keeps sources chose this node's NodePort) or to a pod here. Nor is it where the node forwards it for others.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use datapath::{Places, apply};
use host_harness::{PATIENCE, path_of, sh, within};
use netlink::Netns;
use vcn::{Family, NFT_TABLE};

use crate::host::network::{network, todo};

const PORT: u16 = 9000;
/// What rules of other programs translate.
const NODE_PORT: u16 = 30080;

/// Addresses of a family.
struct Plan {
    family: Family,
    host: &'static str,
    /// The pod that sends.
    pod: &'static str,
    other_pod: &'static str,
    /// An address of the VNIC that no pod has.
    free: &'static str,
    elsewhere: &'static str,
}

const PLANS: [Plan; 2] = [
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

/// The host: its VNICs, the pods' links, and what the VCN would answer to requests for neighbours.
fn set_up(host: &Netns, vcn: &Netns, pod: &Netns) {
    let (vcn_at, pod_at) = (path_of(vcn), path_of(pod));
    let (vcn_at, pod_at) = (vcn_at.display(), pod_at.display());
    let links = format!(
        "ip link add ens3 type veth peer name ens3 netns {vcn_at}
         ip link add ens5 type veth peer name ens5 address 00:00:17:00:00:01 netns {vcn_at}
         ip link add vcn000000000001 type veth peer name eth1 netns {pod_at}
         ip link add vcn000000000002 type veth peer name eth2 netns {pod_at}
         for link in lo ens3 vcn000000000001 vcn000000000002; do ip link set $link up; done"
    );
    sh(host, &links);
    let agent = || {
        let mut places = Places::host(Path::new("/proc/sys")).unwrap();
        apply(&todo(&network(), &mut places), &mut places).unwrap();
    };
    host.run(agent).unwrap();
    sh(
        host,
        "for router in 10.0.4.1 fe80::200:17ff:fe00:1; do ip neighbour replace $router lladdr 00:00:17:00:00:01 dev ens5; done",
    );
    sh(pod, "for link in lo eth1 eth2; do ip link set $link up; done");
    // Here the pod's address is one of its own, and comes back from the host.
    sh(vcn, "sysctl -qw net.ipv4.conf.all.accept_local=1; for link in lo ens3 ens5; do ip link set $link up; done");
}

fn set_up_family(plan: &Plan, [host, vcn, pod]: [&Netns; 3]) {
    let Plan { pod: sender, other_pod, elsewhere, free, host: own, .. } = plan;
    let (ip, table, at_once) = match plan.family {
        Family::Ipv4 => ("ip", "ip", ""),
        Family::Ipv6 => ("ip -6", "ip6", "nodad"),
    };
    sh(pod, &format!("{ip} address add {other_pod} dev eth2 {at_once}"));
    let to_pod = sh(pod, "ip -brief link show eth2 | tr -s ' ' | cut -d ' ' -f 3");
    let to = SocketAddr::new(elsewhere.parse().unwrap(), PORT);
    let routes = format!(
        "{ip} route add {sender} dev vcn000000000001 table 999 proto 157
         {ip} route add {other_pod} dev vcn000000000002 table 999 proto 157
         {ip} rule add pref 1536 from {sender} lookup 1001 proto 157
         {ip} neighbour replace {other_pod} lladdr {} dev vcn000000000002
         nft add table {table} others
         nft add chain {table} others nat '{{ type nat hook prerouting priority -100; }}'
         nft add rule {table} others nat fib daddr type local udp dport {NODE_PORT} dnat to {to}",
        to_pod.trim()
    );
    sh(host, &routes);
    let fabric = format!(
        "{ip} address add {sender} dev lo {at_once}
         {ip} address add {elsewhere} dev lo {at_once}
         for address in {own} {other_pod} {free}; do
             {ip} route add $address dev ens5
             {ip} neighbour replace $address lladdr 02:00:17:00:00:05 dev ens5
         done"
    );
    sh(vcn, &fabric);
}

/// The packets that our rule for what was returned dropped.
fn dropped(host: &Netns) -> u64 {
    let listing = sh(host, &format!("nft list table inet {NFT_TABLE}"));
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
            let received = || {
                send((to, port));
                match listener.recv_from(&mut [0; 4]) {
                    Ok((_, from)) => from.ip() == sender,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                    Err(error) => panic!("{error}"),
                }
            };
            assert!(within(PATIENCE, received), "{who}, {}", plan.family);
        }
        assert_eq!(dropped(&host), before);
        let falls = || {
            send((free, PORT));
            dropped(&host) > before
        };
        assert!(within(PATIENCE, falls), "what is for no pod is dropped");
    }
}
