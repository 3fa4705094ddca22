//! The program as a whole: repairs, hot-plug, and its end.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::time::Instant;

use netlink::nft;
use vcn::Family;

use crate::follow_up::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Node, SLOW_RESYNC, wait_for};
use crate::pod::Pod;
use crate::running::{SECOND, in_time};

/// How many changes the agent has counted whose labels begin so.
fn counted(node: &Node, labels: &str) -> u32 {
    node.metric(&format!("reconcile_changes_total{{{labels}"))
}

#[test]
fn drift_is_repaired_within_a_second() {
    let (node, agent) = Node::with_pods().with_agent(&SLOW_RESYNC);
    let rules = node.rules(Family::Ipv4);
    let repaired = |what: &str, broken: &dyn Fn(&Node), whole: &dyn Fn() -> bool| {
        in_time(SECOND, what, || {
            broken(&node);
            agent.timed(|| wait_for(what, whole, || agent.log()))
        });
    };
    repaired("the rule from the VNIC", &|node| node.delete_rule(Family::Ipv4, 1537), &|| {
        node.rules(Family::Ipv4) == rules
    });
    repaired("the rule to the metadata service", &|node| node.delete_rule(Family::Ipv4, 1000), &|| {
        node.rules(Family::Ipv4) == rules
    });
    let nft = |words: &str| drop(node.sh(&format!("nft {words}")));
    let comments = || -> Vec<String> {
        let of = |family| nft::NftSocket::open().unwrap().comments(family, vcn::NFT_TABLE).unwrap();
        node.inside(|| nft::TableFamily::ALL.map(of)).into_iter().flatten().flatten().collect()
    };
    let whole = comments();
    assert!(["127.0.0.0/8", "ARP"].into_iter().all(|it| whole.iter().any(|text| text.contains(it))));
    repaired("the nft table for ARP", &|_| nft("delete table arp vcn-native"), &|| comments() == whole);
    repaired("the nft table that went with everybody's", &|_| nft("flush ruleset"), &|| comments() == whole);
    repaired("the nft chain that was emptied", &|_| nft("flush chain inet vcn-native way-out"), &|| {
        comments() == whole
    });
    // The kernel takes the routes of a link that goes down with it.
    repaired("the link", &|node| drop(node.sh("ip link set ens5 down")), &|| {
        node.routes(Family::Ipv4, 1000).len() == 2
    });
    agent.wait_said("host.repaired", "rule add pref 1537");
}

#[test]
fn changed_kernel_settings_are_repaired_within_a_second() {
    let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
    for (setting, wrong) in [
        ("net/ipv4/ip_forward", "0"),
        ("net/ipv4/conf/ens3/rp_filter", "1"),
        ("net/ipv4/conf/ens5/rp_filter", "1"),
        ("net/ipv4/conf/ens5/forwarding", "0"),
        ("net/ipv6/conf/all/forwarding", "0"),
        ("net/ipv6/conf/ens5/forwarding", "0"),
        ("net/ipv6/conf/ens5/proxy_ndp", "0"),
    ] {
        let right = node.sysctl(setting);
        assert_ne!(right, wrong, "{setting}");
        in_time(SECOND, setting, || {
            node.inside(|| fs::write(format!("/proc/sys/{setting}"), wrong).unwrap());
            agent.timed(|| wait_for(setting, || node.sysctl(setting) == right, || agent.log()))
        });
    }
}

/// No event of the kernel's tells of these.
#[test]
fn drift_without_event_is_repaired_by_the_timer() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let by_timer = || counted(&node, r#"noun="sysctl",cause="timer""#);
    for (setting, wrong) in [("net/ipv6/conf/ens3/accept_ra", "1"), ("net/ipv4/neigh/ens5/proxy_delay", "80")] {
        let (right, before) = (node.sysctl(setting), by_timer());
        assert_ne!(right, wrong, "{setting}");
        // Passes that follow the start may come first and repair it, too.
        let looked = || {
            node.inside(|| fs::write(format!("/proc/sys/{setting}"), wrong).unwrap());
            wait_for(setting, || node.sysctl(setting) == right, || agent.log());
            by_timer() > before
        };
        wait_for("the slow look", looked, || node.get("/metrics").1);
    }
    assert!(agent.events("host.repaired").iter().any(|line| line["cause"] == "timer"), "{}", agent.log());
}

/// Without its capability the agent hears of links and routes, but not of nft tables.
#[test]
fn missing_change_events_are_reported_once() {
    let node = Node::with_pods();
    let agent = node.agent_without("NET_ADMIN");
    let raised = || {
        let raised = agent.events("condition.raised");
        raised.into_iter().filter(|line| line["reason"] == "ChangesUnheard").collect::<Vec<_>>()
    };
    wait_for("the report", || !raised().is_empty(), || agent.log());
    let tries = node.passes("retry");
    wait_for("further tries", || node.passes("retry") >= tries + 3, || agent.log());
    let [condition] = &raised()[..] else { panic!("{}", agent.log()) };
    assert_eq!((&condition["subject"], &condition["blocking"]), (&"nft".into(), &false.into()), "{condition}");
    assert!(condition["message"].as_str().unwrap().contains("Operation not permitted"), "{condition}");
}

/// A script that runs on a timer, say.
#[test]
fn reverted_repairs_are_reported_once_and_continue() {
    let (node, agent) = Node::with_pods().with_agent(&SLOW_RESYNC);
    let whole = node.rules(Family::Ipv4);
    let before = counted(&node, r#"noun="rule","#);
    for round in 0..20 {
        node.delete_rule(Family::Ipv4, 1537);
        wait_for(&format!("repair {round}"), || node.rules(Family::Ipv4) == whole, || agent.log());
    }
    node.wait_conditions(&agent, &["RepairsUndone"]);
    let raised = agent.events("condition.raised");
    let of_fights: Vec<_> = raised.iter().filter(|line| line["reason"] == "RepairsUndone").collect();
    assert_eq!(of_fights.len(), 1, "{raised:?}");
    let said = of_fights[0]["message"].as_str().unwrap();
    assert!(said.ends_with("the last one: rule add pref 1537 from 10.0.33.7 lookup 1000"), "{said}");
    // Each is counted a moment later, whether it is logged or not.
    let all = || counted(&node, r#"noun="rule","#) - before == 20;
    wait_for("all to be counted", all, || node.get("/metrics").1);
    let lines = agent.events("host.repaired").len();
    assert!((9..=11).contains(&lines), "{lines} lines for 20 repairs");
    node.wait_conditions(&agent, &[]);
}

#[test]
fn hot_plugged_vnic_is_configured_when_its_link_appears() {
    let node = Node::with_pods();
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33), vnic("late", 34)]);
    node.publish("SUCCESS", &[("pods", 33), ("late", 34)]);
    let agent = node.ready_agent(&SLOW_RESYNC);
    assert_eq!(node.conditions(), ["LinkMissing"]);
    let pools = || node.pools()["vnics"].as_array().unwrap().len();
    assert_eq!(pools(), 1);
    let mut plugged = 0;
    in_time(SECOND, "the late VNIC's pool", || {
        if plugged > 0 {
            node.sh("ip link del ens6");
            node.wait_conditions(&agent, &["LinkMissing"]);
        }
        node.plug("ens6", 34);
        plugged += 1;
        agent.timed(|| wait_for("the late VNIC's pool", || pools() == 2, || agent.log()))
    });
    node.wait_conditions(&agent, &[]);
    let cleared = agent.events("condition.cleared");
    assert_eq!(cleared.iter().filter(|line| line["reason"] == "LinkMissing").count(), plugged, "{cleared:?}");
}

#[test]
fn failing_vnic_is_retried_with_backoff_only() {
    let node = Node::with_pods();
    node.plug("ens6", 34);
    let mut broken = vnic("broken", 34);
    broken["virtualRouterIp"] = "224.0.0.1".into();
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33), broken]);
    let agent = node.ready_agent(&SLOW_RESYNC);
    assert_eq!(node.conditions(), ["HostNetworkFailed"]);
    let passes = |cause: &str| node.passes(cause);
    wait_for("two retries", || passes("retry") >= 2, || agent.log());
    // Counted first: there may be another retry meanwhile.
    let (kernel, retries) = (passes("kernel"), passes("retry"));
    // One to hear of each try's own events, more on a busy machine, which tells of them bit by bit, and a few of the start.
    // One that its own events woke would be at it all the time: dozens of passes between two retries.
    assert!(kernel <= 6 * retries + 8, "{kernel} passes for kernel events, {retries} retries");
    let rules = node.rules(Family::Ipv4);
    in_time(SECOND, "the other VNIC's repair", || {
        node.delete_rule(Family::Ipv4, 1537);
        agent.timed(|| wait_for("the other VNIC's repair", || node.rules(Family::Ipv4) == rules, || agent.log()))
    });
}

#[test]
fn silent_clients_delay_no_probe() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    let silent = node.inside(|| (0..60).map(|_| TcpStream::connect("127.0.0.1:9808").unwrap()).collect::<Vec<_>>());
    in_time(SECOND, "a probe", || {
        agent.timed(|| {
            let begun = Instant::now();
            assert_eq!(node.get("/healthz").0, 200);
            begun.elapsed()
        })
    });
    drop(silent);
}

#[test]
fn sigterm_ends_the_agent_within_two_seconds() {
    let node = Node::with_pods();
    in_time(2 * SECOND, "its end", || {
        let agent = node.ready_agent(&[]);
        let (rules, routes, pools) = (node.rules(Family::Ipv4), node.routes(Family::Ipv4, 1000), node.pools());
        let (status, took) = agent.stop();
        assert!(status.success(), "{status} after {took:?}");
        assert_eq!(node.rules(Family::Ipv4), rules);
        assert_eq!(node.routes(Family::Ipv4, 1000), routes);
        assert_eq!(node.pools(), pools);
        assert!(node.path("net.d").join(vcn::CONFLIST_FILE).exists());
        assert_eq!(agent.events("agent.stopping").len(), 1);
        took
    });
}

#[test]
fn sigterm_ends_an_agent_that_waits_for_metadata() {
    let node = Node::with_pods();
    node.metadata.set_status(503);
    in_time(2 * SECOND, "its end", || {
        let agent = node.agent(&[]);
        wait_for("/healthz", || node.get("/healthz").0 == 200, || agent.log());
        let (status, took) = agent.stop();
        assert!(status.success(), "{status} after {took:?}");
        took
    });
}

#[test]
fn second_agent_on_a_node_does_not_start() {
    let (node, _agent) = Node::with_pods().with_agent(&[]);
    let (ok, text) = node.run(&["run"]);
    assert!(!ok && text.contains("another agent is running on this node"), "{text}");
    assert_eq!(node.get("/readyz").0, 200);
}

#[test]
fn metrics_have_pools_sources_changes_and_decisions() {
    let (node, _agent) = Node::with_pods().with_agent(&[]);
    let (status, metrics) = node.get("/metrics");
    assert_eq!(status, 200);
    for line in [
        r#"oke_node_agent_pool_addresses{vnic="ocid1.vnic.oc1.iad.pods",link="ens5",family="IPv4",state="total"} 16.0"#,
        r#"oke_node_agent_pool_addresses{vnic="ocid1.vnic.oc1.iad.pods",link="ens5",family="IPv4",state="free"} 16.0"#,
        r#"oke_node_agent_metadata_requests_total{document="vnics",result="ok"}"#,
        r#"oke_node_agent_source_age_seconds{source="native-pod-network"}"#,
        // At the start, or as soon as the sources answer.
        r#"oke_node_agent_reconcile_changes_total{noun="rule",cause="s"#,
        r#"oke_node_agent_pod_network_decisions_total{install="true",decided_by="instance-metadata""#,
        "oke_node_agent_ready 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

/// Of 16 addresses of each family on either of two VNICs, some are held and some rest, another number of each.
#[test]
fn pool_gauges_count_held_and_cooling_addresses() {
    let node = dual_stack_node();
    node.plug("ens6", 34);
    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33), dual_stack("more", 34)]);
    node.publish_dual_stack(&[("pods", 33), ("more", 34)]);
    let _agent = node.ready_agent(&[]);
    // The VNIC with the fewest in use is next.
    let (on_pods, on_more): (Vec<Pod>, Vec<Pod>) = (0..8)
        .map(|number| Pod::add(&node, &format!("p{number}")))
        .partition(|pod| pod.addresses()[0].to_string().starts_with("10.0.33."));
    on_pods[..1].iter().chain(&on_more[..3]).for_each(|pod| pod.del(&node));
    let _new = Pod::add(&node, "new");
    let metrics = node.get("/metrics").1;
    let gauges: BTreeMap<String, f64> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("oke_node_agent_pool_addresses{")?.split_once("} "))
        .map(|(labels, value)| (labels.to_owned(), value.parse().unwrap()))
        .collect();
    let mut expected = BTreeMap::new();
    for (vnic, link, counts) in [("pods", "ens5", [16, 3, 1, 12]), ("more", "ens6", [16, 2, 3, 11])] {
        for family in Family::ALL {
            for (state, count) in ["total", "in_use", "cooling", "free"].into_iter().zip(counts) {
                let labels =
                    format!(r#"vnic="ocid1.vnic.oc1.iad.{vnic}",link="{link}",family="{family}",state="{state}""#);
                expected.insert(labels, f64::from(count));
            }
        }
    }
    assert_eq!(gauges, expected);
}

#[test]
fn port_answers_only_public_requests() {
    let (node, _agent) = Node::with_pods().with_agent(&[]);
    for path in ["/status", "/pools", "/plan", "/", "/metrics/"] {
        assert_eq!(node.get(path).0, 404, "{path}");
    }
    let mode = |below: &str| {
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(node.path(below)).unwrap().permissions())
    };
    assert_eq!((mode("run") & 0o777, mode("run/agent.sock") & 0o777), (0o700, 0o600));
}

/// Not a benchmark of this build (tests are not optimised), but a leak would show.
#[test]
fn reconciles_without_change_log_nothing_and_take_no_memory() {
    let (node, agent) = Node::with_pods().with_agent(&["--resync-seconds", "0.1"]);
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    node.wait_timer_passes(&agent, 20);
    let (before, log) = (resident(), agent.log());
    node.wait_timer_passes(&agent, 40);
    let after = resident();
    println!("{before} KiB, and {after} KiB after 40 more reconciles");
    assert!(after < before + 1024, "{before} KiB, then {after} KiB");
    assert_eq!(agent.log(), log);
}
