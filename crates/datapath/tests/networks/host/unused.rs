//! Packets from the VCN to an address of a pods' VNIC that no pod has: the node drops them, and does not send them back to the VCN by
//! the primary VNIC. What the node forwards for others passes, and a pod that is given the address gets its packets at once.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};

use netlink::Netns;
use vcn::Family;

use crate::host::returned::{PLANS, PORT, Plan, run, set_up, set_up_family, wait_for};

/// A port of the host that another program's rule translates to a pod of another node.
const REMOTE_PORT: u16 = 30081;

/// Addresses of a family that no pod of the node has.
struct OtherAddresses {
    /// The VNIC's subnet has it, and it is a pod's of another node.
    remote_pod: &'static str,
    /// The VNIC's subnet has it, and a network of another program has it on this node.
    another_network: &'static str,
    /// Of a network that the node routes to.
    beyond: &'static str,
    router: &'static str,
}

fn other_addresses(family: Family) -> OtherAddresses {
    match family {
        Family::Ipv4 => OtherAddresses {
            remote_pod: "10.0.4.200",
            another_network: "10.0.4.77",
            beyond: "198.51.100.7",
            router: "192.0.2.1",
        },
        Family::Ipv6 => OtherAddresses {
            remote_pod: "2001:db8::200",
            another_network: "2001:db8::77",
            beyond: "2001:db8:77::7",
            router: "fe80::99",
        },
    }
}

/// The main table leads out by the primary VNIC's link; what leaves is counted per link.
fn add_ways_out(host: &Netns, plan: &Plan) {
    let OtherAddresses { remote_pod, another_network, router, .. } = other_addresses(plan.family);
    let (ip, family, onlink) = match plan.family {
        Family::Ipv4 => ("ip", "ip", "onlink"),
        Family::Ipv6 => ("ip -6", "ip6", ""),
    };
    host.run(|| {
        for line in [
            format!("{ip} route add default via {router} dev ens3 {onlink}"),
            format!("{ip} neighbour replace {router} lladdr 00:00:17:00:00:99 dev ens3"),
            format!("{ip} route add {another_network} dev others"),
            format!("{ip} neighbour replace {another_network} lladdr 00:00:17:00:00:77 dev others"),
            format!(
                "nft add rule {family} others nat fib daddr type local udp dport {REMOTE_PORT} dnat to {remote_pod}"
            ),
            format!("nft add table {family} counting"),
            format!("nft add chain {family} counting out {{ type filter hook postrouting priority 300; }}"),
        ] {
            run(&line);
        }
        for link in ["ens3", "others"] {
            run(&format!("nft add rule {family} counting out udp dport {PORT} oifname {link} counter comment {link}"));
            let translated = format!("udp dport {REMOTE_PORT} oifname {link} counter comment {link}");
            run(&format!("nft add rule {family} counting out {translated}"));
        }
    })
    .unwrap();
}

/// The packets that rules with a text in them counted.
fn counted(host: &Netns, text: &str) -> u64 {
    let listing = host.run(|| run("nft list ruleset")).unwrap();
    let packets = |line: &str| {
        let number = line.split_whitespace().skip_while(|word| *word != "packets").nth(1).unwrap();
        number.parse::<u64>().unwrap()
    };
    listing.lines().filter(|line| line.contains("packets") && line.contains(text)).map(packets).sum()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story")]
fn packets_to_unassigned_address_are_dropped_until_assigned() {
    let [host, vcn, pod] = [(); 3].map(|()| Netns::create().unwrap());
    set_up(&host, &vcn, &pod);
    host.run(|| {
        run("ip link add others type veth peer name others-end");
        ["others", "others-end"].map(|link| run(&format!("ip link set {link} up")))
    })
    .unwrap();
    for plan in &PLANS {
        set_up_family(plan, [&host, &vcn, &pod]);
        add_ways_out(&host, plan);
        let OtherAddresses { another_network, beyond, .. } = other_addresses(plan.family);
        let (ip, at_once) = if plan.family == Family::Ipv4 { ("ip", "") } else { ("ip -6", "nodad") };
        vcn.run(|| {
            for address in [another_network, beyond] {
                run(&format!("{ip} route add {address} dev ens5"));
                run(&format!("{ip} neighbour replace {address} lladdr 02:00:17:00:00:05 dev ens5"));
            }
        })
        .unwrap();
        let [from, own, free, beyond, another_network] =
            [plan.elsewhere, plan.host, plan.free, beyond, another_network].map(|it| it.parse::<IpAddr>().unwrap());
        let send = |to: (IpAddr, u16)| {
            vcn.run(|| UdpSocket::bind((from, 0)).unwrap().send_to(b"in", to).unwrap()).unwrap();
        };
        let out = |link: &str| counted(&host, &format!("comment \"{link}\""));
        let subnet = if plan.family == Family::Ipv4 { "10.0.4.0/24" } else { "2001:db8::/64" };
        let rule = format!("in by ens5 to {subnet}, which no pod here has, out by ens3: drop");
        let passing = [
            ("what the node routes for others", (beyond, PORT), "ens3"),
            ("a NodePort of a pod elsewhere", (own, REMOTE_PORT), "ens3"),
            ("another network's pod", (another_network, PORT), "others"),
        ];
        for (what, to, link) in passing {
            let before = out(link);
            wait_for(&format!("{what}, {}", plan.family), || {
                send(to);
                out(link) > before
            });
        }
        assert_eq!(counted(&host, &rule), 0, "{}", plan.family);
        // The last of those may be on its way yet.
        let last = out("ens3");
        wait_for(&format!("the drop, {}", plan.family), || {
            send((free, PORT));
            counted(&host, &rule) >= 5
        });
        assert_eq!(out("ens3"), last, "{}", plan.family);

        let listener = pod.run(|| {
            run(&format!("{ip} address add {free} dev eth2 {at_once}"));
            UdpSocket::bind((free, PORT)).unwrap()
        });
        let (listener, dropped) = (listener.unwrap(), counted(&host, &rule));
        listener.set_nonblocking(true).unwrap();
        host.run(|| {
            let known = run(&format!("{ip} neighbour show {} dev vcn000000000002", plan.other_pod));
            let mac = known.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).unwrap();
            run(&format!("{ip} neighbour replace {free} lladdr {mac} dev vcn000000000002"));
            run(&format!("{ip} route add {free} dev vcn000000000002 table 999 proto 157"));
        })
        .unwrap();
        wait_for(&format!("the pod that has it now, {}", plan.family), || {
            send((free, PORT));
            match listener.recv_from(&mut [0; 4]) {
                Ok((_, sender)) => sender.ip() == from,
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                Err(error) => panic!("{error}"),
            }
        });
        assert_eq!(counted(&host, &rule), dropped, "{}", plan.family);
    }
}
