//! What is not ours is the same before, during and after the agent's life, byte for byte, as programs that are not ours show
//! it (promise P2). Ours are: what carries our protocol number, our nft table, the secondary VNIC's link, and two settings of
//! the primary one's.

use std::fs;
use std::path::Path;
use std::process::Command;

use netlink::LinkChange;
use serde_json::Value;
use vcn::Family;

use crate::aftercare::dual_stack_node;
use crate::metadata::vnic;
use crate::node::{Node, name, wait_for};

const LISTS: [&str; 12] = [
    "ip -d -j link show",
    "ip -d -j addr show",
    "ip -d -j -4 route show table all",
    "ip -d -j -6 route show table all",
    "ip -d -j nexthop show",
    "ip -d -j -4 rule show",
    "ip -d -j -6 rule show",
    "ip -d -j neigh show nud permanent",
    "ip -d -j -4 neigh show proxy",
    "ip -d -j -6 neigh show proxy",
    "bridge -d -j fdb show",
    "tc -d -j qdisc show",
];

/// The settings of the primary VNIC's link that are ours.
const OURS: [&str; 2] = ["/net/ipv4/conf/ens3/rp_filter=", "/net/ipv6/conf/ens3/accept_ra="];

fn text_of(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A line for each thing that is not ours.
fn dump(node: &Node) -> Vec<String> {
    node.inside(|| {
        let mut lines = Vec::new();
        for command in LISTS {
            let Ok(Value::Array(mut entries)) = serde_json::from_str(&text_of(command)) else { continue };
            entries.iter_mut().for_each(without_timers);
            lines.extend(entries.iter().map(|entry| format!("{command}: {entry}")));
        }
        let tables = text_of("nft -j list tables");
        let tables: Value = serde_json::from_str(&tables).unwrap();
        for table in tables["nftables"].as_array().unwrap().iter().filter_map(|it| it.get("table")) {
            let (family, name) = (table["family"].as_str().unwrap(), table["name"].as_str().unwrap());
            if (family, name) != ("inet", vcn::NFT_TABLE) {
                lines.push(text_of(&format!("nft -s -a list table {family} {name}")));
            }
        }
        settings(Path::new("/proc/sys/net"), &mut lines);
        lines.retain(|line| {
            let ours = line.contains("\"protocol\":\"157\"") || line.contains("ens5");
            !ours && !OURS.iter().any(|setting| line.contains(setting))
        });
        lines
    })
}

/// A bridge tells the time of its timers.
fn without_timers(entry: &mut Value) {
    for data in ["/linkinfo/info_data", "/linkinfo/info_slave_data"] {
        if let Some(fields) = entry.pointer_mut(data).and_then(Value::as_object_mut) {
            fields.retain(|name, _| !name.ends_with("_timer"));
        }
    }
}

fn settings(folder: &Path, lines: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            settings(&path, lines);
        } else if let (false, Ok(value)) = (path.ends_with("nf_conntrack_count"), fs::read_to_string(&path)) {
            lines.push(format!("sysctl: {}={}", path.display(), value.trim()));
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
        nft 'table inet theirs { set s { type ipv4_addr; elements = { 192.0.2.1 }; }; chain c { type filter hook forward priority 0; ip saddr @s counter accept; }; }'
        sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.dummy0.rp_filter=1
    "#;
    node.inside(|| {
        commands.lines().map(str::trim).filter(|line| !line.is_empty()).for_each(|line| drop(text_of(line)))
    });
    node.on_fabric(|socket| socket.change_link_named(&name("ens3"), &[LinkChange::Up]).unwrap());
    // Links without addresses are listed, too.
    let settled = || node.inside(|| !text_of("ip -6 addr show tentative").contains("inet6"));
    let tentative = || node.inside(|| text_of("ip -6 addr show tentative"));
    wait_for("addresses to be checked for duplicates", settled, tentative);
}

fn differences(before: &[String], now: &[String]) -> Vec<String> {
    let missing = before.iter().filter(|line| !now.contains(line)).map(|line| format!("- {line}"));
    missing.chain(now.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"))).collect()
}

#[test]
fn what_is_not_ours_is_the_same_before_during_and_after_the_agents_life() {
    let node = dual_stack_node();
    furnish(&node);
    let before = dump(&node);
    assert!(before.len() > 300, "{}", before.len());
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    assert_eq!(differences(&before, &dump(&node)), [""; 0]);
    // It repairs what is its own.
    let rules = node.rules(Family::Ipv4);
    node.on(|socket| {
        let all = socket.rules(Family::Ipv4).unwrap();
        all.iter().filter(|it| it.protocol == vcn::PROTOCOL).for_each(|rule| socket.delete_rule(rule).unwrap());
    });
    wait_for("the repair", || node.rules(Family::Ipv4) == rules, || agent.log());
    // And takes it away when it is no longer wanted.
    node.metadata.set_vnics(vec![crate::metadata::vnic("primary", 10)]);
    node.publish("SUCCESS", &[]);
    // With a VNIC that is detached its device goes.
    node.on(|socket| socket.delete_link_named(&name("ens5")).unwrap());
    let ours = |rule: &String| rule.starts_with("1537");
    wait_for("the VNIC to go", || !node.rules(Family::Ipv4).iter().any(ours), || agent.log());
    assert_eq!(differences(&before, &dump(&node)), [""; 0]);
    agent.stop();
    assert_eq!(differences(&before, &dump(&node)), [""; 0]);
}

/// A VPN's, say. What it refuses no rule passes over.
#[test]
fn a_default_route_of_others_in_the_pods_table_is_not_the_hosts_and_one_that_refuses_bars_the_way_to_pods() {
    let node = Node::new();
    node.plug("ens5", 33);
    node.plug("tun0", 99);
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
    node.publish("SUCCESS", &[("pods", 33)]);
    let on_the_node = |command: &str| {
        let output = node.inside(|| Command::new("sh").args(["-c", command]).output().unwrap());
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    on_the_node("ip link set tun0 up && ip route add default dev tun0 table 999 proto static");
    let way_out = || on_the_node("ip route get 8.8.8.8");
    let before = way_out();
    assert!(before.contains("dev ens3"), "{before}");
    let mut agent = node.agent(&["--resync-seconds", "600"]);
    node.wait_ready(&mut agent);
    assert_eq!((node.conditions(), way_out()), (vec!["PodTableShared".to_owned()], before.clone()));
    let said = node.get("/readyz").1;
    assert!(said.contains("default table 999 dev tun0 proto 4"), "{said}");

    let leads = || node.rules(Family::Ipv4).iter().any(|rule| rule.starts_with("512 "));
    assert!(leads());
    on_the_node("ip route replace blackhole default table 999 proto static");
    wait_for("no rule to lead there", || !leads() && node.get("/readyz").0 == 503, || agent.log());
    assert_eq!((node.conditions(), way_out()), (vec!["PodTableShared".to_owned()], before.clone()));
    let (_, why) = node.run(&["why-not-ready"]);
    assert!(why.contains("1. PodTableShared (IPv4)") && why.contains("blackhole default table 999 proto 4"), "{why}");

    on_the_node("ip route del blackhole default table 999");
    wait_for("the rule", || leads() && node.conditions().is_empty() && node.get("/readyz").0 == 200, || agent.log());
    assert_eq!(way_out(), before);
}

/// The table's number is ours only where a rule of ours asks it.
#[test]
fn where_the_pod_network_is_not_ours_the_pods_table_is_whoevers_it_is() {
    let node = Node::new();
    node.metadata.set_vnics(vec![vnic("primary", 10)]);
    let add = "ip route add blackhole default table 999 proto static && ip route add 192.0.2.7 dev ens3 table 999";
    node.inside(|| text_of(add));
    let mut agent = node.agent(&["--pod-network", "none"]);
    node.wait_ready(&mut agent);
    assert_eq!((node.conditions(), node.rules(Family::Ipv4)), (vec![], vec![]));
}
