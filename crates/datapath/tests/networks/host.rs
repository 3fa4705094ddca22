//! The host's network on a real kernel: what is applied is what is observed, foreign things stay, failures undo.

mod network;
mod returned;

use std::path::Path;
use std::process::Command;

use datapath::host::{HostNetwork, HostVnic, Placement, desired, observe};
use datapath::{Change, Object, Place, Places, Step, apply};
use ipnetwork::IpNetwork;
use netlink::{Address, LinkChange, LinkKind, Netns, NewLink, Peer, Route, Rule, Socket};
use vcn::{Family, Mtu, Priority, TableId};

use crate::host::network::{name, network, todo};

/// Runs a program where the calling thread is.
pub(crate) fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs in a fresh namespace with the links ens3 (primary) and ens5.
fn on_a_host(test: impl FnOnce(&mut Places) + Send) {
    let (host, beyond) = (Netns::create().unwrap(), Netns::create().unwrap());
    host.run(|| {
        use std::os::fd::AsFd;
        let mut socket = Socket::open().unwrap();
        for link in ["ens3", "ens5"] {
            let peer = Peer { name: name(link), mac: None, mtu: Some(Mtu::VCN), netns: Some(beyond.as_fd()) };
            socket.add_link(&NewLink::new(name(link), LinkKind::Veth(peer))).unwrap();
        }
        test(&mut Places::host(Path::new("/proc/sys")).unwrap());
    })
    .unwrap();
}

fn texts(steps: &[Step]) -> Vec<String> {
    steps.iter().map(ToString::to_string).collect()
}

#[test]
fn observed_state_equals_plan_after_apply() {
    on_a_host(|places| {
        let steps = todo(&network(), places);
        assert!(steps.len() > 10);
        apply(&steps, places).unwrap();
        assert_eq!(texts(&todo(&network(), places)), Vec::<String>::new());
    });
}

#[test]
fn each_object_that_is_taken_away_is_put_back() {
    on_a_host(|places| {
        let steps = todo(&network(), places);
        apply(&steps, places).unwrap();
        for step in steps.iter().filter(|step| matches!(&step.change, Change::Add(o) if !matches!(o, Object::Link(_))))
        {
            apply(&[step.undo()], places).unwrap();
            let repair = todo(&network(), places);
            // With the last address of a family the kernel drops the link's routes of that family too.
            assert!(texts(&repair).contains(&step.to_string()) && repair.len() <= 3, "{:?}", texts(&repair));
            apply(&repair, places).unwrap();
            assert_eq!(texts(&todo(&network(), places)), Vec::<String>::new());
        }
    });
}

#[test]
fn either_nft_table_alone_is_completed_and_both_are_removed() {
    on_a_host(|places| {
        apply(&todo(&network(), places), places).unwrap();
        let nft = |words: &str| run(&format!("nft {words}"));
        let tables = nft("list tables");
        assert_eq!(tables, "table inet vcn-native\ntable arp vcn-native\n");
        for family in ["inet", "arp"] {
            nft(&format!("delete table {family} vcn-native"));
            let repair = todo(&network(), places);
            assert_eq!(texts(&repair), ["nft replace tables vcn-native (35 rules)"]);
            apply(&repair, places).unwrap();
            assert_eq!(texts(&todo(&network(), places)), [""; 0]);
            assert_eq!(nft("list tables").len(), tables.len());
        }
        nft("add table arp others");
        let none = HostNetwork { pods: None, vnics: vec![], ..network() };
        apply(&todo(&none, places), places).unwrap();
        assert_eq!(nft("list tables"), "table arp others\n");
    });
}

#[test]
fn foreign_objects_are_kept() {
    on_a_host(|places| {
        let mut socket = Socket::open().unwrap();
        let ens5 = socket.index_of(&name("ens5")).unwrap();
        socket.change_link(ens5, &[LinkChange::Up]).unwrap();
        let address: IpNetwork = "192.0.2.5/24".parse().unwrap();
        socket.add_address(&Address::new(ens5, address)).unwrap();
        let foreign_route = Route::new("198.51.100.0/24".parse().unwrap(), ens5, TableId(1001), 4);
        socket.add_route(&foreign_route).unwrap();
        let mut foreign_rule = Rule::new(Family::Ipv4, Priority(1537), TableId(1001), 4);
        foreign_rule.from = Some("192.0.2.5/32".parse().unwrap());
        socket.add_rule(&foreign_rule).unwrap();
        for network in [network(), HostNetwork { vnics: vec![], ..network() }] {
            let steps = todo(&network, places);
            apply(&steps, places).unwrap();
            assert!(socket.rules(Family::Ipv4).unwrap().contains(&foreign_rule));
            assert!(socket.addresses(Some(ens5)).unwrap().iter().any(|found| found.address == address));
            let routes = socket.routes(&netlink::RouteFilter::all(Family::Ipv4)).unwrap();
            assert!(routes.iter().any(|route| route.destination == foreign_route.destination));
        }
        let ours = todo(&HostNetwork { vnics: vec![], ..network() }, places);
        assert_eq!(texts(&ours), Vec::<String>::new(), "the vanished VNIC's own things are gone");
    });
}

/// An address of any creator and source is enough: if another program put one on the link, nothing changes.
#[test]
fn link_local_address_is_added_when_vnic_link_has_none() {
    on_a_host(|places| {
        let mut socket = Socket::open().unwrap();
        let ours = ["addr add fe80::17ff:fe00:5/64 dev ens5"];
        apply(&todo(&network(), places), places).unwrap();
        let link = socket.index_of(&name("ens5")).unwrap();
        let [own, other] = ["fe80::17ff:fe00:5/64", "fe80::77/128"].map(|it| Address::new(link, it.parse().unwrap()));
        socket.delete_address(&own).unwrap();
        assert_eq!(texts(&todo(&network(), places)), ours);
        let lower = socket.index_of(&name("ens3")).unwrap();
        socket.add_address(&Address { index: lower, nodad: true, ..other }).unwrap();
        assert_eq!(texts(&todo(&network(), places)), ours, "that is another link's");
        socket.add_address(&Address { nodad: true, ..other }).unwrap();
        assert_eq!(texts(&todo(&network(), places)), [""; 0]);
        apply(&todo(&HostNetwork { vnics: vec![], ..network() }, places), places).unwrap();
        let there = |it: &Address| it.index == link && it.address == other.address;
        assert!(socket.addresses(None).unwrap().iter().any(there), "another program made it");
        socket.delete_address(&other).unwrap();
        apply(&todo(&network(), places), places).unwrap();
        let gone = texts(&todo(&HostNetwork { vnics: vec![], ..network() }, places));
        assert!(gone.contains(&"addr del fe80::17ff:fe00:5/64 dev ens5".to_owned()), "{gone:?}");
    });
}

#[test]
fn host_uses_only_single_address_routes_of_the_pods_table() {
    on_a_host(|places| {
        apply(&todo(&network(), places), places).unwrap();
        let ip = |arguments: &str| run(&format!("ip {arguments}"));
        for arguments in [
            "link set ens3 up",
            "addr add 192.0.2.5/24 dev ens3",
            "addr add 2001:db8:3::5/64 dev ens3 nodad",
            "route add default via 192.0.2.1",
            "-6 route add default via 2001:db8:3::1",
            "route add default dev ens5 table 999 proto static",
            "route add 198.51.100.0/31 dev ens5 table 999 proto static",
            "-6 route add default dev ens5 table 999 proto static",
            "-6 route add 2001:db8:7::/127 dev ens5 table 999 proto static",
            "route add 198.51.100.9 dev ens5 table 999 proto 157",
            "-6 route add 2001:db8:7::9 dev ens5 table 999 proto 157",
        ] {
            ip(arguments);
        }
        for (arguments, link) in [
            ("route get 203.0.113.7", "ens3"),
            ("route get 198.51.100.1", "ens3"),
            ("-6 route get 2001:db8:9::7", "ens3"),
            ("-6 route get 2001:db8:7::1", "ens3"),
            ("route get 198.51.100.9", "ens5"),
            ("-6 route get 2001:db8:7::9", "ens5"),
        ] {
            let found = ip(arguments);
            assert!(found.contains(&format!(" dev {link} ")), "{arguments}: {found}");
        }
    });
}

#[test]
fn a_failed_step_takes_back_those_before_it() {
    on_a_host(|places| {
        let before = observe(&desired(&network()), places).unwrap();
        let mut steps = todo(&network(), places);
        let impossible = Object::Route(datapath::RouteSpec {
            destination: "10.0.9.0/24".parse().unwrap(),
            via: None,
            link: name("absent"),
            table: TableId(1001),
        });
        steps.push(Step { place: Place::Host, change: Change::Add(impossible) });
        let error = apply(&steps, places).unwrap_err();
        assert!(error.to_string().contains("route add 10.0.9.0/24 dev absent table 1001"), "{error}");
        assert_eq!(observe(&desired(&network()), places).unwrap(), before);
    });
}

#[test]
fn the_nft_tables_read_as_the_plan_does() {
    on_a_host(|places| {
        apply(&todo(&network(), places), places).unwrap();
        let [listing, arp] = ["inet", "arp"].map(|family| run(&format!("nft list table {family} {}", vcn::NFT_TABLE)));
        let limit = "iifname \"vcn*\" update @links { iif limit rate over 10/second burst 20 packets } counter \
                     packets 0 bytes 0 drop comment \"vcn* ARP, over 10 a second per link: drop\"";
        assert!(arp.contains("type filter hook input priority filter;") && arp.contains(limit), "{arp}");
        for rule in
            ["vcn* to 169.254.169.254 udp 53: accept", "pods to 169.254.169.254 by ens3: masquerade, random port"]
        {
            assert!(listing.contains(&format!("comment \"{rule}\"")), "{listing}");
        }
        for line in [
            "type filter hook prerouting priority dstnat - 10; policy accept;",
            "iifname \"ens5\" ct direction original ct mark & 0x00001046 != 0x00001004 fib daddr type local \
             ct mark set ct mark & 0xffffffbd | 0x00001004",
            "type filter hook prerouting priority dstnat + 10; policy accept;",
            "ct direction reply ct mark & 0x00001046 == 0x00001004 meta mark set meta mark & 0xffffffbd | 0x00001004",
            "iifname \"vcn*\" ip daddr 169.254.0.0/16 counter packets 0 bytes 0 drop",
            "type filter hook prerouting priority raw; policy accept;",
            "iifname \"vcn*\" icmpv6 type nd-router-advert counter packets 0 bytes 0 drop",
            "iifname \"vcn*\" icmpv6 type nd-redirect counter packets 0 bytes 0 drop",
            "iifname \"vcn*\" ip saddr != 0.0.0.0 fib saddr . iif oif 0 counter packets 0 bytes 0 drop",
            "iifname \"vcn*\" ip6 saddr != fe80::/10 fib saddr . iif oif 0 counter packets 0 bytes 0 drop",
            "iifname \"vcn*\" ip daddr 127.0.0.0/8 counter packets 0 bytes 0 drop",
            "iifname \"vcn*\" ip6 saddr fe80::/10 update @links { iif limit rate over 10/second burst 20 packets } counter",
            "iifname \"vcn*\" ip6 saddr != fe80::/10 icmpv6 type nd-neighbor-solicit \
             update @links { iif limit rate over 10/second burst 20 packets } counter packets 0 bytes 0 drop",
            "type filter hook forward priority filter; policy accept;",
            "oifname \"ens3\" ct status dnat accept",
            "oifname \"ens3\" iifname \"ens5\" ip daddr 10.0.4.0/24 counter packets 0 bytes 0 drop",
            "oifname \"ens3\" iifname \"ens5\" ip6 daddr 2001:db8::/64 counter packets 0 bytes 0 drop",
            "iifname \"vcn*\" ip6 daddr fd00:c1::a9fe:a9fe counter packets 0 bytes 0 drop",
            "iifname \"ens5\" fib daddr oifname != \"vcn*\" fib daddr type unicast fib saddr oifname \"vcn*\" \
             counter packets 0 bytes 0 drop",
            "ip daddr 169.254.169.254 tcp dport 80 accept",
            "masquerade fully-random comment",
            "type filter hook postrouting priority filter; policy accept;",
            "iifname \"ens3\" ip daddr 169.254.0.0/16 counter packets 0 bytes 0 drop",
            "iifname \"ens3\" ip6 daddr fd00:c1::a9fe:a9fe counter packets 0 bytes 0 drop",
            "iifname \"ens5\" oifname != \"vcn*\" ct status ! dnat fib saddr type local counter packets 0 bytes 0 drop",
        ] {
            assert!(listing.contains(line), "{line}: {listing}");
        }
    });
}

#[test]
fn vnics_of_one_subnet_share_rules_and_have_own_routes() {
    let mut network = network();
    let subnets = ["10.0.4.0/24", "2001:db8::/64"].map(|block| block.parse().unwrap()).to_vec();
    let first = HostVnic { on_link: subnets, ..network.vnics[0].clone() };
    let mut second =
        HostVnic { placement: Placement::Device { link: name("ens6") }, table: TableId(1002), ..first.clone() };
    second.vnic.id = "ocid1.vnic.oc1.iad.v6".parse().unwrap();
    network.vnics = vec![first, second];
    let objects = desired(&network);
    for (at, object) in objects.iter().enumerate() {
        assert!(
            !objects[..at].iter().any(|before| before == object && matches!(object, Object::Rule(_))),
            "{object} twice"
        );
    }
    let to = |table: u32| {
        let leads = |object: &&Object| matches!(object, Object::Rule(rule) if rule.to == Some("10.0.4.0/24".parse().unwrap()) && rule.table == TableId(table));
        objects.iter().filter(leads).count()
    };
    assert_eq!([to(254), to(1001), to(1002)], [1, 1, 1]);
    let on_link = |object: &&Object| matches!(object, Object::Route(route) if route.via.is_none() && route.destination == "2001:db8::/64".parse().unwrap());
    assert_eq!(objects.iter().filter(on_link).count(), 2);
}
