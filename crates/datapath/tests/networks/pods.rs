//! The host's side of running pods on a real kernel: whatever is broken of it is found and mended, what is not a pod's stays,
//! and a full node costs milliseconds.

use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use datapath::pod::{self, LinkEnds, PodAddress, PodNetwork};
use datapath::{Place, Places, Step, apply, plan, pods};
use netlink::{LinkChange, LinkKind, Neighbour, Netns, NewLink, Peer, Route, RouteFilter, Rule, Socket};
use vcn::{Family, IfName, Mtu, PODS_TABLE, PROTOCOL, RulePriorities, TableId};

use crate::host::run;

fn name(text: &str) -> IfName {
    IfName::new(text).unwrap()
}

/// Runs in a fresh namespace with a VNIC's link and the host's side of some dual-stack pods, whose own ends are next to it
/// for want of namespaces.
fn on_a_host(count: u16, test: impl FnOnce(&mut Places, &[PodNetwork]) + Send) {
    let host = Netns::create().unwrap();
    host.run(|| {
        let mut socket = Socket::open().unwrap();
        let peer = Peer { name: name("beyond"), mac: None, mtu: None, netns: None };
        socket.add_link(&NewLink { up: true, ..NewLink::new(name("ens5"), LinkKind::Veth(peer)) }).unwrap();
        raise(&mut socket, "beyond", "ens5");
        let pods: Vec<PodNetwork> = (0..count).map(pod_number).collect();
        let mut places = Places::host(Path::new("/proc/sys")).unwrap();
        for pod in &pods {
            let steps = plan(&pod::desired(pod), &[]);
            let (link, rest) = steps.split_first().unwrap();
            apply(std::slice::from_ref(link), &mut places).unwrap();
            raise(&mut socket, pod.ends.pod.as_str(), pod.ends.host.as_str());
            let on_host: Vec<Step> = rest.iter().filter(|step| step.place == Place::Host).cloned().collect();
            apply(&on_host, &mut places).unwrap();
        }
        test(&mut places, &pods);
    })
    .unwrap();
}

/// Raises a link's other end and waits for the kernel to take note: it drops the proxies of a link without carrier.
fn raise(socket: &mut Socket, other_end: &str, link: &str) {
    socket.change_link_named(&name(other_end), &[LinkChange::Up]).unwrap();
    assert!(socket.link(&name(link)).unwrap().running);
}

fn pod_number(number: u16) -> PodNetwork {
    let [high, low] = number.to_be_bytes();
    let ipv4 = IpAddr::from([10, 0, 4 + high, low]);
    let ipv6: IpAddr = format!("2001:db8::{number:x}").parse().unwrap();
    let address = |address| PodAddress { address, vnic_link: name("ens5"), table: TableId(1001) };
    PodNetwork {
        ends: LinkEnds::of(&format!("vcn-native/c{number}/eth0"), name(&format!("p{number}"))),
        mtu: Mtu::VCN,
        addresses: vec![address(ipv4), address(ipv6)],
    }
}

fn todo(pods: &[PodNetwork], places: &mut Places) -> Vec<Step> {
    let observed = pods::Observed::look(places).unwrap();
    pods.iter().filter_map(|pod| observed.repairs(pod, Some(pod.mtu), places)).flatten().collect()
}

fn texts(steps: &[Step]) -> Vec<String> {
    steps.iter().map(ToString::to_string).collect()
}

/// Breaks an object of the first of three pods and repairs it. Returns the steps, and checks that none is left.
fn mended(break_it: impl FnOnce(&mut Socket, &PodNetwork) + Send) -> Vec<String> {
    let mut repairs = Vec::new();
    on_a_host(3, |places, pods| {
        assert_eq!(texts(&todo(pods, places)), [""; 0]);
        break_it(&mut Socket::open().unwrap(), pods.first().unwrap());
        let steps = todo(pods, places);
        repairs = texts(&steps);
        for step in steps {
            apply(&[step], places).unwrap();
        }
        assert_eq!(texts(&todo(pods, places)), [""; 0]);
    });
    repairs
}

#[test]
fn flushed_rules_are_restored() {
    let repairs = mended(|socket, _| {
        for family in Family::ALL {
            for rule in socket.rules(family).unwrap().iter().filter(|rule| rule.priority == RulePriorities::FROM_POD) {
                socket.delete_rule(rule).unwrap();
            }
        }
    });
    assert_eq!(repairs.len(), 6);
    assert!(repairs.contains(&"rule add pref 1536 from 10.0.4.0 lookup 1001".to_owned()), "{repairs:#?}");
}

#[test]
fn deleted_or_diverted_route_is_restored() {
    let repairs = mended(|socket, pod| {
        let route = |address: &str, link: &str| {
            let index = socket_index(link);
            Route { scope_link: true, ..Route::new(address.parse().unwrap(), index, PODS_TABLE, PROTOCOL) }
        };
        socket.replace_route(&route("10.0.4.0/32", "ens5")).unwrap();
        let v6 = RouteFilter { table: Some(PODS_TABLE), ..RouteFilter::all(Family::Ipv6) };
        let lost = socket.routes(&v6).unwrap().into_iter().find(|it| it.destination.ip() == pod_ipv6(pod)).unwrap();
        socket.delete_route(&lost).unwrap();
    });
    let host = pod_number(0).ends.host;
    let expected = ["10.0.4.0", "2001:db8::"].map(|it| format!("{it} dev {host} table 999 proto 157"));
    assert_eq!(repairs, [format!("route replace {}", expected[0]), format!("route add {}", expected[1])]);
}

#[test]
fn lowered_host_end_is_restored_with_what_it_carried() {
    let repairs = mended(|socket, pod| socket.change_link_named(&pod.ends.host, &[LinkChange::Down]).unwrap());
    for part in ["link set ", "addr add fe80::1/128", "route add 10.0.4.0 ", "route add 2001:db8:: "] {
        assert!(repairs.iter().any(|step| step.starts_with(part)), "{part} is not in {repairs:#?}");
    }
}

#[test]
fn changed_settings_and_proxies_of_host_end_are_restored() {
    let ends = pod_number(0).ends;
    let host = &ends.host;
    for (command, repairs) in [
        (
            format!("ip link set {host} address 02:00:00:00:00:09"),
            vec![format!("link set {host} address {} mtu 9000 up", ends.host_mac)],
        ),
        (
            format!("ip link set {host} mtu 1400"),
            vec![format!("link set {host} address {} mtu 9000 up", ends.host_mac)],
        ),
        (
            format!("sysctl -qw net/ipv6/conf/{host}/disable_ipv6=1"),
            vec![format!("sysctl net/ipv6/conf/{host}/disable_ipv6=0 (was 1)"), "addr add fe80::1/128".into()],
        ),
        // A pod could have the host's IPv6 traffic.
        (
            format!("sysctl -qw net/ipv6/conf/{host}/accept_ra=1"),
            vec![format!("sysctl net/ipv6/conf/{host}/accept_ra=0 (was 1)")],
        ),
        (format!("ip neigh del proxy 169.254.1.1 dev {host}"), vec![format!("neigh add proxy 169.254.1.1 dev {host}")]),
        ("ip neigh del proxy 10.0.4.0 dev ens5".into(), vec!["neigh add proxy 10.0.4.0 dev ens5".into()]),
    ] {
        let mended = mended(|_, _| drop(run(&command)));
        assert!(mended.len() == repairs.len() || command.contains("disable_ipv6"), "{command}: {mended:#?}");
        for repair in repairs {
            assert!(mended.iter().any(|step| step.starts_with(&repair)), "{command}: {repair} is not in {mended:#?}");
        }
    }
}

/// Its creator may remove it again, and could not be distinguished from us.
#[test]
fn unmarked_proxy_is_replaced_by_our_marked_proxy() {
    let repairs = mended(|socket, pod| {
        let address = "10.0.4.0".parse().unwrap();
        socket.delete_neighbour(&Neighbour::proxy(socket_index("ens5"), address)).unwrap();
        socket.add_neighbour(&Neighbour::proxy(socket_index("ens5"), address)).unwrap();
        let other = Neighbour::proxy(socket_index("ens5"), pod_ipv6(pod)).by(4);
        socket.delete_neighbour(&other).unwrap();
        socket.add_neighbour(&other).unwrap();
    });
    assert_eq!(repairs, ["neigh add proxy 10.0.4.0 dev ens5", "neigh add proxy 2001:db8:: dev ens5"]);
}

#[test]
fn host_end_with_changed_mtu_is_restored() {
    let repairs =
        mended(|socket, pod| socket.change_link_named(&pod.ends.host, &[LinkChange::Mtu(Mtu(1400))]).unwrap());
    assert_eq!(repairs.len(), 1);
    assert!(repairs[0].contains(" mtu 9000 up (was ") && repairs[0].contains(" mtu 1400 up"), "{repairs:#?}");
}

#[test]
fn own_rule_with_wrong_table_is_deleted_unlike_foreign_rule() {
    let rule = |table, protocol| {
        let from = Some("10.0.4.0/32".parse().unwrap());
        Rule { from, ..Rule::new(Family::Ipv4, RulePriorities::FROM_POD, TableId(table), protocol) }
    };
    let repairs = mended(|socket, _| {
        socket.add_rule(&rule(1002, PROTOCOL)).unwrap();
        socket.add_rule(&rule(1003, 4)).unwrap();
    });
    assert_eq!(repairs, ["rule del pref 1536 from 10.0.4.0 lookup 1002"]);
}

#[test]
fn pod_with_missing_or_foreign_link_is_skipped() {
    on_a_host(3, |places, pods| {
        let mut socket = Socket::open().unwrap();
        socket.delete_link_named(&pods[0].ends.host).unwrap();
        let other = LinkChange::Alias("vcn-native:another/pod/eth0".into());
        socket.change_link_named(&pods[1].ends.host, &[other, LinkChange::Down]).unwrap();
        assert_eq!(texts(&todo(pods, places)), [""; 0]);
        // A pod that is not asked about is left alone, and so is one whose VNIC went.
        socket.change_link_named(&pods[2].ends.host, &[LinkChange::Down]).unwrap();
        assert_eq!(texts(&todo(&pods[..2], places)), [""; 0]);
        socket.change_link_named(&pods[2].ends.host, &[LinkChange::Up]).unwrap();
        socket.delete_link_named(&name("ens5")).unwrap();
        assert!(!texts(&todo(pods, places)).iter().any(|step| step.contains("ens5")));
    });
}

#[test]
fn the_name_of_a_host_end_tells_its_ethernet_address() {
    let ends = pod_number(7).ends;
    assert_eq!(pods::host_mac(&ends.host), Some(ends.host_mac));
    for other in ["vcn", "vcn0123", "ens5", "vcnxxxxxxxxxxxx"] {
        assert_eq!(pods::host_mac(&name(other)), None, "{other}");
    }
}

/// No bound that a slow machine could miss; what is printed is what counts.
#[test]
fn a_full_node_is_looked_at_as_a_whole() {
    on_a_host(250, |places, pods| {
        let begun = Instant::now();
        assert_eq!(texts(&todo(pods, places)), [""; 0]);
        let whole = begun.elapsed();
        let mut socket = Socket::open().unwrap();
        for family in Family::ALL {
            for rule in socket.rules(family).unwrap().iter().filter(|rule| rule.priority == RulePriorities::FROM_POD) {
                socket.delete_rule(rule).unwrap();
            }
        }
        let begun = Instant::now();
        let steps = todo(pods, places);
        println!("250 whole dual-stack pods: {whole:?}, without their rules: {:?}", begun.elapsed());
        assert_eq!(steps.len(), 500);
        let begun = Instant::now();
        steps.into_iter().for_each(|step| apply(&[step], places).unwrap());
        println!("500 rules: {:?}", begun.elapsed());
    });
}

fn socket_index(link: &str) -> u32 {
    Socket::open().unwrap().index_of(&name(link)).unwrap()
}

fn pod_ipv6(pod: &PodNetwork) -> IpAddr {
    pod.addresses[1].address
}
