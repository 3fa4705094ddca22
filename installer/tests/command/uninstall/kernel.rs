//! A node's kernel in a namespace, as the agent and the plugin leave it, and a snapshot of it.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use datapath::host::{self, HostNetwork, HostVnic, Placement, PodServices};
use datapath::{Places, plan};
use installer::{SettingChange, note_settings};
use ipam::BootId;
use netlink::{Link, LinkChange, LinkKind, Neighbour, Netns, NewLink, Peer, Route, Rule, Socket};
use vcn::{
    Family, IfName, LINK_ALIAS_PREFIX, MacAddr, Mtu, PODS_TABLE, PROTOCOL, PerFamily, RulePriorities, SubnetAddressing,
    TableId, Vnic,
};

/// A node: primary link `ens3`, VNIC link `ens5`, a rule, a route and a table of another program.
pub(crate) struct Host {
    netns: Netns,
    _fabric: Netns,
}

fn name(text: &str) -> IfName {
    text.parse().unwrap()
}

impl Host {
    pub(crate) fn new() -> Self {
        let (netns, fabric) = (Netns::create().unwrap(), Netns::create().unwrap());
        netns
            .run(|| {
                let mut socket = Socket::open().unwrap();
                for (link, last) in [("ens3", 0), ("ens5", 1)] {
                    let peer = Peer { name: name(link), mac: None, mtu: None, netns: Some(fabric.as_fd()) };
                    let mut new = NewLink::new(name(link), LinkKind::Veth(peer));
                    // A VNIC's device has the VNIC's address from the start.
                    new.mac = Some(MacAddr([2, 0, 0x17, 0, 0, last]));
                    socket.add_link(&new).unwrap();
                    // What the operating system has done before us.
                    fs::write(format!("/proc/sys/net/ipv6/conf/{link}/addr_gen_mode"), "1").unwrap();
                    let changes = [LinkChange::Mtu(Mtu::VCN), LinkChange::Up];
                    socket.change_link_named(&name(link), &changes).unwrap();
                }
                // The far ends are up too: a link without carrier loses its proxy neighbours.
                fabric.run(|| ["ens3", "ens5"].map(|link| run(&format!("ip link set {link} up")))).unwrap();
                let end = Instant::now() + Duration::from_secs(90);
                let settled =
                    |links: String| ["ens3", "ens5"].iter().all(|link| links.contains(&format!("ff00::/8 dev {link}")));
                while !settled(run("ip -6 route show table all")) || run("ip link show").contains("NO-CARRIER") {
                    assert!(Instant::now() < end, "the links never settled");
                    std::thread::sleep(Duration::from_millis(5));
                }
                for command in [
                    "ip addr add 10.0.10.7/24 dev ens3",
                    "ip route add default via 10.0.10.1 dev ens3",
                    "ip route add 10.9.0.0/16 via 10.0.10.2 dev ens3 table 1000 proto static",
                    "ip rule add pref 700 from 10.9.0.1 lookup 1000",
                    // On the VNIC's link it would go: with a link's last address the kernel drops all its proxies.
                    "ip neigh add proxy 10.0.10.200 dev ens3",
                    "nft add table inet foreign",
                ] {
                    run(command);
                }
            })
            .unwrap();
        Self { netns, _fabric: fabric }
    }

    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.netns.run(work).unwrap()
    }

    /// Runs `ip` on it.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        self.inside(|| run(&format!("ip {arguments}")))
    }

    /// Another namespace, for a pod of another network.
    pub(crate) fn beside(&self) -> Netns {
        Netns::create().unwrap()
    }

    /// Creates what agent and plugin create: a VNIC and a pod on it.
    pub(crate) fn populate(&self, data_dir: &Path) {
        let network = network();
        self.inside(|| {
            let mut changes: Vec<SettingChange> = SETTINGS.iter().map(|(key, set)| setting(key, set)).collect();
            changes.extend(raised(&Socket::open().unwrap().link(&name("ens5")).unwrap()));
            note_settings(data_dir, &BootId::current().unwrap(), &changes).unwrap();
            let mut places = Places::host(Path::new("/proc/sys")).unwrap();
            let desired = host::desired(&network);
            let observed = host::observe(&desired, &mut places).unwrap();
            datapath::apply(&plan(&host::placed(desired), &observed), &mut places).unwrap();
            pod();
        });
    }

    /// Links, addresses, every table, rules, proxies, nft, settings.
    pub(crate) fn snapshot(&self) -> String {
        self.inside(|| {
            let mut text = String::new();
            for command in [
                "ip -details link show",
                "ip addr show",
                "ip -4 route show table all",
                "ip -6 route show table all",
                "ip -4 rule show",
                "ip -6 rule show",
                "ip neigh show proxy",
                "nft --terse list ruleset",
            ] {
                text.push_str(&format!("## {command}\n{}", run(command)));
            }
            for (key, _) in SETTINGS {
                let value = fs::read_to_string(format!("/proc/sys/{key}")).unwrap();
                text.push_str(&format!("{key} = {value}"));
            }
            text
        })
    }
}

/// Kernel settings of the agent, with their values.
const SETTINGS: [(&str, &str); 7] = [
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv4/conf/ens5/rp_filter", "2"),
    ("net/ipv4/conf/ens3/rp_filter", "2"),
    ("net/ipv6/conf/ens3/accept_ra", "2"),
    ("net/ipv4/neigh/ens5/proxy_delay", "0"),
    ("net/ipv6/conf/ens5/disable_ipv6", "0"),
];

fn setting(key: &str, set: &str) -> SettingChange {
    let before = fs::read_to_string(format!("/proc/sys/{key}")).unwrap().trim().to_owned();
    SettingChange { key: key.to_owned(), before, set: set.to_owned() }
}

/// The agent's changes of a link.
fn raised(link: &Link) -> Vec<SettingChange> {
    let mtu = (link.mtu != Mtu::VCN).then(|| SettingChange::mtu(&link.name, link.mtu, Mtu::VCN));
    mtu.into_iter().chain((!link.up).then(|| SettingChange::raised(&link.name))).collect()
}

pub(crate) fn run(command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn network() -> HostNetwork {
    let at = |subnet: &str, router: &str, address: &str| SubnetAddressing {
        subnet: subnet.parse().unwrap(),
        router: router.parse().unwrap(),
        address: address.parse().unwrap(),
        others: Vec::new(),
    };
    let addressing = PerFamily {
        ipv4: Some(at("10.0.32.0/24", "10.0.32.1", "10.0.32.2")),
        ipv6: Some(at("2001:db8::/64", "fe80::200:17ff:fe00:1", "2001:db8::2")),
    };
    let vnic = Vnic {
        id: "ocid1.vnic.oc1.iad.a".parse().unwrap(),
        mac: "02:00:17:00:00:01".parse().unwrap(),
        nic_index: None,
        vlan_tag: None,
        addressing,
    };
    let placement = Placement::Device { link: name("ens5") };
    HostNetwork {
        primary: name("ens3"),
        vnics: vec![HostVnic {
            vnic,
            placement,
            table: TableId(1000),
            mtu: Mtu::VCN,
            pod_blocks: Vec::new(),
            on_link: Vec::new(),
            routes: Vec::new(),
        }],
        pods: Some(PodServices { may_use_metadata: true, may_spoof: false, ipv6: true }),
    }
}

/// The plugin's objects for a pod on the host, its end of the link included.
fn pod() {
    let mut socket = Socket::open().unwrap();
    let host_end = name("vcn0123456789ab");
    let peer = Peer { name: name("pod"), mac: None, mtu: None, netns: None };
    socket.add_link(&NewLink::new(host_end.clone(), LinkKind::Veth(peer))).unwrap();
    let alias = LinkChange::Alias(format!("{LINK_ALIAS_PREFIX}vcn-native/0123abcd/eth0"));
    socket.change_link_named(&host_end, &[alias, LinkChange::Up]).unwrap();
    let (link, vnic) = (socket.index_of(&host_end).unwrap(), socket.index_of(&name("ens5")).unwrap());
    for (family, address) in [(Family::Ipv4, "10.0.32.7"), (Family::Ipv6, "2001:db8::7")] {
        let address: std::net::IpAddr = address.parse().unwrap();
        let mut route = Route::new(address.into(), link, PODS_TABLE, PROTOCOL);
        route.scope_link = family == Family::Ipv4;
        socket.add_route(&route).unwrap();
        socket.replace_neighbour(&Neighbour::proxy(vnic, address)).unwrap();
        let mut rule = Rule::new(family, RulePriorities::FROM_POD, TableId(1000), PROTOCOL);
        rule.from = Some(address.into());
        socket.add_rule(&rule).unwrap();
    }
}
