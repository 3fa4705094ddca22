//! The host's side of running pods on a real kernel. Whatever is broken of it is found and repaired, and what is not a pod's
//! stays. A full node costs milliseconds.

use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use datapath::pod::{self, LinkEnds, PodAddress, PodNetwork};
use datapath::{Place, Places, Snapshot, Step, apply, plan, pods};
use netlink::{LinkChange, LinkKind, Netns, NewLink, Peer, Socket};
use vcn::{Family, IfName, Mtu, RulePriorities, TableId};

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
    let host = Snapshot::of_host(places).unwrap();
    pods.iter().filter_map(|pod| pods::repairs(&host, pod, Some(pod.mtu), places)).flatten().collect()
}

fn texts(steps: &[Step]) -> Vec<String> {
    steps.iter().map(ToString::to_string).collect()
}

/// Breaks an object of the first of three pods by a script, in which `VETH` is its host end, and repairs it. Returns the steps,
/// and checks that none is left.
fn repaired(script: &str) -> Vec<String> {
    let mut repairs = Vec::new();
    on_a_host(3, |places, pods| {
        assert_eq!(texts(&todo(pods, places)), [""; 0]);
        script.replace("VETH", pods[0].ends.host.as_str()).split("; ").for_each(|command| drop(run(command)));
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
fn each_broken_object_of_the_hosts_side_is_repaired_alone() {
    let LinkEnds { host, host_mac, .. } = pod_number(0).ends;
    let host_end = format!("link set VETH address {host_mac} mtu 9000 up (was ");
    // The beginnings of the steps, and whether these are all.
    for (script, all, repairs) in [
        ("ip link set VETH address 02:00:00:00:00:09", true, &[host_end.as_str()][..]),
        ("ip link set VETH mtu 1400", true, &[&host_end]),
        (
            "ip link set VETH down",
            false,
            &["link set VETH ", "addr add fe80::1/128", "route add 10.0.4.0 ", "route add 2001:db8:: "],
        ),
        (
            "sysctl -qw net/ipv6/conf/VETH/disable_ipv6=1",
            false,
            &["sysctl net/ipv6/conf/VETH/disable_ipv6=0 (was 1)", "addr add fe80::1/128"],
        ),
        // A pod could have the host's IPv6 traffic.
        ("sysctl -qw net/ipv6/conf/VETH/accept_ra=1", true, &["sysctl net/ipv6/conf/VETH/accept_ra=0 (was 1)"]),
        ("ip neigh del proxy 169.254.1.1 dev VETH", true, &["neigh add proxy 169.254.1.1 dev VETH"]),
        ("ip neigh del proxy 10.0.4.0 dev ens5", true, &["neigh add proxy 10.0.4.0 dev ens5"]),
        // The creator of a proxy that is not marked as our own may remove it again.
        (
            "ip neigh del proxy 10.0.4.0 dev ens5; ip neigh add proxy 10.0.4.0 dev ens5; \
             ip neigh del proxy 2001:db8:: dev ens5; ip neigh add proxy 2001:db8:: dev ens5 protocol 4",
            true,
            &["neigh add proxy 10.0.4.0 dev ens5", "neigh add proxy 2001:db8:: dev ens5"],
        ),
        (
            "ip route replace 10.0.4.0 dev ens5 table 999 proto 157; ip -6 route del 2001:db8:: table 999",
            true,
            &[
                "route replace 10.0.4.0 dev VETH table 999 proto 157",
                "route add 2001:db8:: dev VETH table 999 proto 157",
            ],
        ),
        // The rule of another program stays.
        (
            "ip rule add pref 1536 from 10.0.4.0 lookup 1002 proto 157; ip rule add pref 1536 from 10.0.4.0 lookup 1003 proto 4",
            true,
            &["rule del pref 1536 from 10.0.4.0 lookup 1002"],
        ),
        (
            "ip rule flush protocol 157; ip -6 rule flush protocol 157",
            true,
            &[
                "rule add pref 1536 from 10.0.4.0 lookup 1001",
                "rule add pref 1536 from 10.0.4.1 lookup 1001",
                "rule add pref 1536 from 10.0.4.2 lookup 1001",
                "rule add pref 1536 from 2001:db8:: lookup 1001",
                "rule add pref 1536 from 2001:db8::1 lookup 1001",
                "rule add pref 1536 from 2001:db8::2 lookup 1001",
            ],
        ),
    ] {
        let repaired = repaired(script);
        assert!(repaired.len() == repairs.len() || !all, "{script}: {repaired:#?}");
        for repair in repairs.iter().map(|repair| repair.replace("VETH", host.as_str())) {
            assert!(
                repaired.iter().any(|step| step.starts_with(&repair)),
                "{script}: {repair} is not in {repaired:#?}"
            );
        }
    }
}

#[test]
fn pod_with_missing_or_foreign_link_is_skipped() {
    on_a_host(3, |places, pods| {
        let mut socket = Socket::open().unwrap();
        socket.delete_link_named(&pods[0].ends.host).unwrap();
        let other = LinkChange::Alias("vcn-native:another/pod/eth0".into());
        socket.change_link_named(&pods[1].ends.host, &[other, LinkChange::Down]).unwrap();
        assert_eq!(texts(&todo(pods, places)), [""; 0]);
        // A pod that is not requested is left alone, and so is one whose VNIC went.
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
