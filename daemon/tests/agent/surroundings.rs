//! Foreign objects are the same before, during and after the agent's life, byte for byte, as other programs show
//! them (promise P2). Our objects are: what carries our protocol number, our nft table, and of VNICs' links the secondary one's alias, MTU
//! and addresses, and some settings.

use host_harness::{differences, foreign_lines, text_of};
use serde_json::{Value, json};
use vcn::Family;

use crate::follow_up::dual_stack_node;
use crate::metadata::vnic;
use crate::node::{Node, SLOW_RESYNC, wait_for};

/// Our settings of VNIC links, and what the kernel derives from an MTU.
const OURS: [&str; 9] = [
    "/net/ipv4/conf/ens3/rp_filter=",
    "/net/ipv6/conf/ens3/accept_ra=",
    "/net/ipv4/conf/ens5/rp_filter=",
    "/net/ipv4/neigh/ens5/proxy_delay=",
    "/net/ipv6/conf/ens5/accept_dad=",
    "/net/ipv6/conf/ens5/accept_ra=",
    "/net/ipv6/conf/ens5/mtu=",
    "/net/ipv6/conf/ens5/proxy_ndp=",
    "/net/ipv6/neigh/ens5/proxy_delay=",
];

/// The addresses of the secondary VNIC.
const OWN: [&str; 2] = ["10.0.33.7", "2603:c020:0:33::7"];

/// A line for each foreign object.
fn dump(node: &Node) -> Vec<String> {
    node.inside(|| {
        let mut lines = foreign_lines(|_, entry| {
            without_ours(entry);
            // The kernel's routes to our addresses, and their multicast groups.
            let is_route = OWN.iter().any(|own| entry["dst"] == *own && entry["dev"] == "ens5");
            !is_route && (&entry["ifname"], &entry["mac"]) != (&json!("ens5"), &json!("33:33:ff:00:00:07"))
        });
        let tables: Value = serde_json::from_str(&text_of("nft -j list tables")).unwrap();
        for table in tables["nftables"].as_array().unwrap().iter().filter_map(|it| it.get("table")) {
            let (family, name) = (table["family"].as_str().unwrap(), table["name"].as_str().unwrap());
            if ![("inet", vcn::NFT_TABLE), ("arp", vcn::NFT_TABLE)].contains(&(family, name)) {
                lines.push(text_of(&format!("nft -s -a list table {family} {name}")));
            }
        }
        lines.retain(|line| {
            let ours = line.contains("\"protocol\":\"157\"");
            // The agent's own connections to the metadata service, and those of clients of its port.
            let passing = line.starts_with("conntrack ") && line.contains("=127.0.0.1 ");
            !ours && !passing && !OURS.iter().any(|setting| line.contains(setting))
        });
        lines
    })
}

/// The secondary VNIC's link has its alias, its MTU and the VNIC's addresses from us.
fn without_ours(entry: &mut Value) {
    if entry["ifname"] == "ens5" {
        let fields = entry.as_object_mut().unwrap();
        fields.retain(|name, _| !["ifalias", "mtu"].contains(&name.as_str()));
        if let Some(addresses) = fields.get_mut("addr_info").and_then(Value::as_array_mut) {
            addresses.retain(|address| !OWN.iter().any(|own| address["local"] == *own));
        }
    }
}

/// What others have on a node: a bridge, tunnels, rules and tables of their own at our numbers, firewalls.
fn furnish(node: &Node) {
    let commands = r#"
        ip link add br0 type bridge && ip link set br0 up && ip addr add 172.17.0.1/16 dev br0
        ip link add dummy0 type veth peer name dummy1 && ip link set dummy1 up && ip link set dummy0 up && ip addr add 192.0.2.1/24 dev dummy0
        ip link add vethA type veth peer name vethB && ip link set vethA master br0 up && ip link set vethB up
        ip link add vx0 type vxlan id 7 dstport 4789 local 10.0.10.7 && ip link set vx0 up
        ip route add 198.51.100.0/24 via 10.0.10.1 && ip route add default via 192.0.2.9 dev dummy0 table 10
        ip route add 203.0.113.0/24 dev dummy0 table 1000 && ip route add 169.254.2.0/24 dev ens3
        ip route add 203.0.113.0/24 dev dummy0 table 999 metric 7 && ip -6 route add 2001:db8:9::/48 dev dummy0 table 1000
        ip rule add pref 512 from 192.0.2.0/24 lookup 10 && ip rule add pref 1000 to 192.0.2.7 lookup main
        ip rule add pref 1537 from 192.0.2.1 lookup 10 && ip rule add pref 1024 fwmark 0x4000/0x4000 lookup 10
        ip -6 rule add pref 512 from 2001:db8:9::/48 lookup 10
        ip neigh add proxy 192.0.2.77 dev dummy0 && ip neigh add 192.0.2.78 lladdr 02:00:00:00:00:01 dev dummy0 nud permanent
        tc qdisc replace dev dummy0 root pfifo limit 7
        iptables-nft -t nat -A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE && iptables-nft -A FORWARD -i br0 -j ACCEPT
        nft 'table inet foreign { set s { type ipv4_addr; elements = { 192.0.2.1 }; }; chain c { type filter hook forward priority 0; ip saddr @s counter accept; }; }'
        nft 'table inet markers { chain c { type filter hook forward priority -140; ct mark 0x7 meta mark set ct mark; ct mark set meta mark | 0x80000000; }; }'
        conntrack -I -p tcp -s 10.0.33.7 -d 10.0.33.1 --sport 5 --dport 80 --state ESTABLISHED --timeout 36000 --mark 0x80000007
        conntrack -I -p udp -s 10.0.33.40 -d 192.0.2.1 --sport 53 --dport 53 --timeout 36000 --mark 0x1000
        conntrack -I -p tcp -s 192.0.2.7 -d 10.0.10.7 --sport 7 --dport 7 --state SYN_SENT --timeout 36000 --mark 1
        conntrack -I -p udp -s 2603:c020:0:33::28 -d 2001:db8:9::1 --sport 9 --dport 9 --timeout 36000 --mark 0x1002
        ip link set ens5 up && ip addr add 10.0.33.9/24 dev ens5 label ens5:old && ip -6 addr add 2001:db8:5::5/64 dev ens5 nodad
        ip route add 198.51.101.0/24 dev ens5 proto static && ip route add 203.0.114.0/24 via 10.0.33.1 dev ens5 table 1000 onlink proto bird
        ip route add 203.0.115.0/24 dev ens5 table 999 proto static && ip -6 route add 2001:db8:6::/48 dev ens5 table 1000
        ip rule add pref 1537 from 10.0.33.9 lookup 10 && ip rule add pref 1536 from 10.0.33.200 lookup 10
        ip neigh add 10.0.33.77 lladdr 02:00:00:00:00:77 dev ens5 nud permanent && ip neigh add proxy 10.0.33.78 dev ens5 && ip -6 neigh add proxy 2603:c020:0:33::78 dev ens5
        tc qdisc replace dev ens5 root pfifo limit 9 && bridge fdb add 02:00:00:00:00:99 dev vx0 dst 192.0.2.9
        sysctl -q -w net.ipv4.conf.ens5.log_martians=1 net.ipv6.conf.ens5.hop_limit=63 net.ipv4.conf.ens5.arp_announce=2
        sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.dummy0.rp_filter=1
    "#;
    node.inside(|| {
        commands.lines().map(str::trim).filter(|line| !line.is_empty()).for_each(|line| drop(text_of(line)))
    });
    node.fabric_sh("ip link set ens3 up");
    // Links without addresses are listed, too.
    let settled = || node.inside(|| !text_of("ip -6 addr show tentative").contains("inet6"));
    let tentative = || node.inside(|| text_of("ip -6 addr show tentative"));
    wait_for("addresses to be checked for duplicates", settled, tentative);
}

#[test]
fn foreign_objects_are_unchanged_by_the_agent() {
    let node = dual_stack_node();
    furnish(&node);
    let before = dump(&node);
    assert!(before.len() > 300, "{}", before.len());
    let agent = node.ready_agent(&[]);
    let rules = node.rules(Family::Ipv4);
    assert!(rules.iter().any(|rule| rule.starts_with("1537 10.0.33.7/32")), "it works here: {rules:?}");
    assert_eq!(differences(&before, &dump(&node)), [""; 0]);
    // It repairs what is its own.
    node.sh("ip rule flush protocol 157");
    wait_for("the repair", || node.rules(Family::Ipv4) == rules, || agent.log());
    // And takes it away when it is no longer wanted.
    node.metadata.set_vnics(vec![crate::metadata::vnic("primary", 10)]);
    node.publish("SUCCESS", &[]);
    // With a VNIC that is detached its device goes, and with that all that others had on it.
    node.sh("ip link del ens5");
    let ours = |rule: &String| rule.starts_with("1537");
    wait_for("the VNIC to go", || !node.rules(Family::Ipv4).iter().any(ours), || agent.log());
    let elsewhere: Vec<String> = before.into_iter().filter(|line| !line.contains("ens5")).collect();
    assert_eq!(differences(&elsewhere, &dump(&node)), [""; 0]);
    agent.stop();
    assert_eq!(differences(&elsewhere, &dump(&node)), [""; 0]);
}

/// Of a VPN, for example. No rule skips what it refuses.
#[test]
fn foreign_default_route_in_pod_table_does_not_affect_host() {
    let node = Node::new();
    node.plug("ens5", 33);
    node.plug("tun0", 99);
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
    node.publish("SUCCESS", &[("pods", 33)]);
    node.sh("ip link set tun0 up && ip route add default dev tun0 table 999 proto static");
    let way_out = || node.sh("ip route get 8.8.8.8");
    let before = way_out();
    assert!(before.contains("dev ens3"), "{before}");
    let agent = node.ready_agent(&SLOW_RESYNC);
    assert_eq!((node.conditions(), way_out()), (vec!["PodTableShared".to_owned()], before.clone()));
    let said = node.get("/readyz").1;
    assert!(said.contains("default table 999 dev tun0 proto 4"), "{said}");

    let leads = || node.rules(Family::Ipv4).iter().any(|rule| rule.starts_with("512 "));
    assert!(leads());
    node.sh("ip route replace blackhole default table 999 proto static");
    wait_for("no rule to lead there", || !leads() && node.get("/readyz").0 == 503, || agent.log());
    assert_eq!((node.conditions(), way_out()), (vec!["PodTableShared".to_owned()], before.clone()));
    let (_, why) = node.run(&["why-not-ready"]);
    assert!(why.contains("1. PodTableShared (IPv4)") && why.contains("blackhole default table 999 proto 4"), "{why}");

    node.sh("ip route del blackhole default table 999");
    wait_for("the rule", || leads() && node.conditions().is_empty() && node.get("/readyz").0 == 200, || agent.log());
    assert_eq!(way_out(), before);
}

/// It is our table only if one of our rules leads to it.
#[test]
fn foreign_pod_network_may_use_the_pod_table() {
    let node = Node::new();
    node.metadata.set_vnics(vec![vnic("primary", 10)]);
    let add = "ip route add blackhole default table 999 proto static && ip route add 192.0.2.7 dev ens3 table 999";
    node.sh(add);
    let _agent = node.ready_agent(&["--pod-network", "none"]);
    assert_eq!((node.conditions(), node.rules(Family::Ipv4)), (vec![], vec![]));
}
