//! Tables of the kernel that are full. Their limits, and the counters of neighbours, are in a kernel's first namespace only, where
//! agents are on real nodes: a guest has one that tests may change.

use std::io::Write as _;
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use health::Report;
use health::repair::TRIAL;
use netlink::Netns;
use nettest::probe::{ProbeKind, ProbeTarget};
use nettest::{Case, Cause, Label, Place};
use oke_node_agent::reconcile::kernel_limits::KernelLimits;
use sandbox::{Container, Image};
use serde_json::json;
use vcn::Family;

use crate::hosts::{run, set};
use crate::lab::{Lab, PORT, To as _};

const PRIMARY: &str = "ens3";
const NEIGHBOURS: u16 = 64;
const CONNECTIONS: usize = 32;

/// One test at a time has the first namespace.
static FIRST: Mutex<()> = Mutex::new(());

fn first() -> MutexGuard<'static, ()> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lab whose `front-1` is in the kernel's first namespace.
fn lab() -> Lab {
    let mut lab = Lab::new();
    let address = |family| lab.vcn.node("front-1").unwrap().address(family).unwrap();
    let (v4, v6) = (address(Family::Ipv4), address(Family::Ipv6));
    lab.on("front-1", || run(&format!("ip link set {PRIMARY} netns {}", std::process::id())));
    lab.machine = Some(("front-1".to_owned(), Netns::current().unwrap()));
    lab.on("front-1", || {
        run("ip link set lo up");
        run(&format!("ip link set {PRIMARY} up mtu 9000"));
        run(&format!("ip address add {v4}/24 dev {PRIMARY}"));
        run("ip route add default via 10.0.10.1");
        run(&format!("ip address add {v6}/128 dev {PRIMARY} nodad"));
        run(&format!("ip route add 2603:c020:0:1::/64 dev {PRIMARY}"));
    });
    lab
}

/// Fills the neighbour table of a family with entries that the kernel keeps, because they are confirmed. Its gateway stays known.
fn fill_neighbours(family: &str, prefix: &str, gateway: IpAddr) {
    set(&format!("net/{family}/neigh/{PRIMARY}/base_reachable_time_ms"), "600000");
    run(&format!("ping -c 1 -I {PRIMARY} {gateway}"));
    for threshold in ["gc_thresh1", "gc_thresh2", "gc_thresh3"] {
        set(&format!("net/{family}/neigh/default/{threshold}"), &NEIGHBOURS.to_string());
    }
    let mut batch = Command::new("ip");
    let mut batch = batch.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = batch.stdin.take().unwrap();
    let entry = |number| format!("neigh add {prefix}{number} lladdr 02:00:00:00:00:01 dev {PRIMARY} nud reachable\n");
    // It ends at the first entry that the kernel refuses.
    let _ = input.write_all((100..100 + 2 * NEIGHBOURS).map(entry).collect::<String>().as_bytes());
    drop(input);
    let refused = batch.wait_with_output().unwrap().stderr;
    assert!(String::from_utf8_lossy(&refused).contains("No buffer space available"));
}

/// To a node of the source's subnet, which is the next hop itself.
fn to_neighbour(lab: &Lab, kind: ProbeKind, family: Family) -> Case {
    let mut case = lab.case(kind, if kind == ProbeKind::Tcp { PORT } else { 0 });
    case.target = lab.party("front-2");
    case.others = lab.compared(["back-1", "third-1"]);
    case.to(lab.vcn.node("front-2").unwrap().address(family).unwrap())
}

#[test]
#[ignore = "needs the limits of a kernel's first namespace: run by tests/uml/run"]
fn full_neighbour_table_is_named_and_known_neighbours_work() {
    let _first = first();
    let lab = lab();
    for (family, name, prefix) in [(Family::Ipv4, "ipv4", "10.0.10."), (Family::Ipv6, "ipv6", "2603:c020:0:1::")] {
        let gateway = |subnet: &str| lab.vcn.subnet(subnet).unwrap().router(family).unwrap();
        // The table is the kernel's, so that of the other nodes, too: this one answers by an entry that is not counted.
        lab.on("back-1", || {
            run(&format!("ping -c 1 -I {PRIMARY} {}", gateway("back")));
            run(&format!("ip neigh change {} dev {PRIMARY} nud permanent", gateway("back")));
        });
        let healthy = lab.named(to_neighbour(&lab, ProbeKind::Icmp, family));
        assert_eq!(healthy, (Label::Reachable, vec![]), "{family:?}");
        for kind in [ProbeKind::Icmp, ProbeKind::Tcp] {
            // The kernel would give up other nodes' old entries for a new one.
            lab.vcn.nodes().for_each(|node| lab.on(node.name(), || run(&format!("ip neigh flush dev {PRIMARY}"))));
            lab.on("front-1", || fill_neighbours(name, prefix, gateway("front")));
            let verdict = lab.investigate(to_neighbour(&lab, kind, family));
            let found = (verdict.label, &verdict.causes, verdict.place);
            assert_eq!(found, (Label::Proven, &vec![Cause::NeighbourTable], Place::SourceHost), "{kind:?} {family:?}");
            assert!(verdict.after.contains(&format!("/{NEIGHBOURS}")), "{}", verdict.after);
        }
        assert_eq!(lab.named(lab.case(ProbeKind::Icmp, 0)), (Label::Reachable, vec![]), "by the gateway");
        set(&format!("net/{name}/neigh/default/gc_thresh3"), "1024");
    }
}

/// Tracks connections in the calling thread's namespace.
fn track() {
    run("iptables-legacy -I INPUT -m conntrack --ctstate INVALID -j DROP");
}

/// Established connections, more than the table then may have: the kernel gives up none of them for a new one.
fn fill_connections(lab: &Lab, from: &str, to: IpAddr) -> Vec<TcpStream> {
    let streams = lab.on(from, || (0..=CONNECTIONS).map(|_| TcpStream::connect((to, PORT)).unwrap()).collect());
    set("net/netfilter/nf_conntrack_max", &CONNECTIONS.to_string());
    streams
}

#[test]
#[ignore = "needs the limits of a kernel's first namespace: run by tests/uml/run"]
fn full_connection_table_of_source_or_target_is_named() {
    let _first = first();
    let lab = lab();
    lab.on("front-1", track);
    lab.on("back-1", track);
    assert_eq!(lab.named(lab.case(ProbeKind::Tcp, PORT)), (Label::Reachable, vec![]));
    // Of the target first: the source tracks few connections.
    let full = [("back-2", "back-1", "back-1", Place::TargetHost), ("front-1", "back-2", "back-2", Place::SourceHost)];
    for (from, to, target, place) in full {
        let streams = fill_connections(&lab, from, lab.address(to));
        let mut case = lab.case(ProbeKind::Tcp, PORT);
        case.target = lab.party(target);
        case.others = lab.compared(["front-2", "third-1"]);
        case.send.target = ProbeTarget::Address(lab.address(target));
        let verdict = lab.investigate(case);
        let found = (verdict.label, &verdict.causes, verdict.place);
        assert_eq!(found, (Label::Proven, &vec![Cause::HostConntrack], place));
        assert!(verdict.after.contains(&format!("/{CONNECTIONS}")), "{}", verdict.after);
        set("net/netfilter/nf_conntrack_max", "65536");
        drop(streams);
    }
    run("iptables-legacy -F");
}

fn get(setting: &str) -> String {
    std::fs::read_to_string(format!("/proc/sys/{setting}")).unwrap().trim().to_owned()
}

#[test]
#[ignore = "needs the limits of a kernel's first namespace: run by tests/uml/run"]
fn agent_raises_limits_and_restores_them_when_that_did_not_help() {
    let _first = first();
    let lab = lab();
    let limits = [
        ("net/netfilter/nf_conntrack_max", "1000", "2000"),
        ("net/ipv4/neigh/default/gc_thresh1", "100", "200"),
        ("net/ipv4/neigh/default/gc_thresh2", "300", "600"),
        ("net/ipv4/neigh/default/gc_thresh3", "500", "1000"),
        ("net/ipv6/neigh/default/gc_thresh3", "400", "800"),
    ];
    track();
    let found = limits.map(|(setting, ..)| (setting, get(setting)));
    limits.iter().for_each(|(setting, before, _)| set(setting, before));
    let report = |verdict: &str, action: &str, value: f64| -> Report {
        let state = |signal: &str| {
            json!({
                "signal": signal, "verdict": verdict, "action": action, "value": value, "unit": "percent", "detail": "",
                "sampledUnixMillis": 0, "sinceUnixMillis": 0, "everySeconds": 60,
            })
        };
        serde_json::from_value(json!({ "signals": [state("conntrack_use"), state("neighbour_use")] })).unwrap()
    };
    let (problem, idle) = (report("problem", "repair", 90.0), report("healthy", "report", 1.0));
    let values = || limits.map(|(setting, ..)| get(setting));
    // With the agent's privileges and mounts.
    let repair = || {
        let (mut kernel, start) = (KernelLimits::new(Path::new("/host/proc/sys")), Instant::now());
        let mut reasons = |report: &Report, is_allowed, after: Duration| {
            let conditions = kernel.repair(report, is_allowed, start + after);
            conditions.iter().map(|condition| condition.reason.to_string()).collect::<Vec<_>>()
        };
        let (before, raised) =
            (limits.map(|(_, before, _)| before.to_owned()), limits.map(|(.., raised)| raised.to_owned()));
        assert_eq!((reasons(&problem, false, Duration::ZERO), values()), (vec![], before.clone()));
        let two = |reason: &str| vec![reason.to_owned(); 2];
        assert_eq!((reasons(&problem, true, Duration::ZERO), values()), (two("LimitRaised"), raised.clone()));
        assert_eq!((reasons(&problem, true, TRIAL), values()), (two("RepairWithoutEffect"), raised));
        assert_eq!((reasons(&idle, true, TRIAL), values()), (vec![], before));
    };
    lab.on("front-1", || Container::node_agent().unwrap().run(&Image::default(), repair).unwrap());
    found.iter().for_each(|(setting, value)| set(setting, value));
    run("iptables-legacy -F");
}
