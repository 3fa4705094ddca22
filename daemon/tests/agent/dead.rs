//! Addresses of pods that ended without a DEL are freed, and nothing of them stays; running pods keep their addresses.

use std::cell::RefCell;
use std::net::IpAddr;

use ipam::NetnsRecord;
use oke_node_agent::facts::condition::{Condition, Reason};
use oke_node_agent::facts::reconcile_report::{Cause, ReconcileReport};
use telemetry::{Delivery, Sink, VerbRecord};

use crate::follow_up::dual_stack_node;
use crate::metadata::{dual_stack, vnic};
use crate::node::{Node, wait_for};
use crate::pod::{Pod, store};
use crate::pods::left;
use crate::records::record;

fn held(node: &Node) -> Vec<IpAddr> {
    let held = store(node).read().unwrap();
    held.allocations.iter().flat_map(|it| it.addresses.iter().map(|assigned| assigned.address)).collect()
}

fn freed(node: &Node) -> Vec<IpAddr> {
    store(node).freed().unwrap().iter().map(|freed| freed.address).collect()
}

#[test]
fn pod_gone_without_del_frees_its_addresses_and_leaves_nothing() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let nothing = left(&node);
    let lives = Pod::add(&node, "lives");
    let one = left(&node);
    let died = Pod::add(&node, "died");
    let addresses = died.addresses();
    drop(died);
    wait_for(
        "its addresses to be free",
        || freed(&node) == addresses,
        || format!("{:?}\n{}", freed(&node), agent.log()),
    );
    assert_eq!(left(&node), one);
    assert_eq!(held(&node), lives.addresses());
    lives.wait_connected();
    agent.wait_said("host.repaired", "attachment del vcn-native/died/eth0 (");
    let metrics = || node.get("/metrics").1;
    assert!(metrics().contains(r#"reconcile_changes_total{noun="attachment",cause="timer"} 1"#), "{}", metrics());
    let forgotten = || metrics().contains(r#"follow_up_addresses_total{what="forget",result="ok"} 2"#);
    wait_for("its connections to be forgotten", forgotten, metrics);
    lives.del(&node);
    // A reconcile at that moment may repair what the DEL removes; that is removed as an orphan.
    wait_for("nothing to be left", || left(&node) == nothing, || format!("{:#?}\n{}", left(&node), agent.log()));
}

#[test]
fn deleted_link_of_a_running_pod_is_reported_until_it_is_removed() {
    let (node, agent) = dual_stack_node().with_agent(&["--dead-after-seconds", "600"]);
    let pod = Pod::add(&node, "web");
    node.sh(&format!("ip link delete {}", pod.host_link()));
    node.wait_conditions(&agent, &["PodLinkGone"]);
    let (_, listed) = node.run(&["attachments"]);
    assert!(listed.contains("gone without a DEL: another program deleted it"), "{listed}");
    pod.del(&node);
    node.wait_conditions(&agent, &[]);
}

/// As when the runtime removes a pod after the agent freed its addresses: only the DEL shows it.
#[test]
fn del_ends_the_report_of_a_link_whose_record_is_gone() {
    let (node, agent) = dual_stack_node().with_agent(&["--dead-after-seconds", "3"]);
    let pod = Pod::add(&node, "web");
    let addresses = pod.addresses();
    node.sh(&format!("ip link delete {}", pod.host_link()));
    wait_for("its addresses to be free", || freed(&node) == addresses, || agent.log());
    node.wait_conditions(&agent, &["PodLinkGone"]);
    let del = VerbRecord { network: "vcn-native".into(), ..record("DEL", "web") };
    assert_eq!(Sink::new(node.path("run")).send(&del), Delivery::Agent);
    node.wait_conditions(&agent, &[]);
}

#[test]
fn pod_missing_in_one_reconcile_only_is_not_dead() {
    let (node, agent) = dual_stack_node().with_agent(&["--dead-after-seconds", "600"]);
    let died = Pod::add(&node, "died");
    let addresses = died.addresses();
    drop(died);
    node.wait_timer_passes(&agent, 4);
    assert_eq!((held(&node), freed(&node)), (addresses, Vec::new()));
}

#[test]
fn pod_with_stale_namespace_path_or_changed_link_lives() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let (nameless, other) = (Pod::add(&node, "nameless"), Pod::add(&node, "other"));
    let stale = NetnsRecord { path: "/run/netns/gone".into(), dev: 1, inode: 2 };
    let renamed = store(&node).update(|held| {
        held.allocations.iter_mut().for_each(|it| it.netns = Some(stale.clone()));
        Ok::<_, ipam::Error>(())
    });
    renamed.unwrap();
    let (nameless_link, other_link) = (nameless.host_link(), other.host_link());
    node.sh(&format!("ip link set {nameless_link} alias mine; ip link set {other_link} address 02:00:00:00:00:09"));
    node.wait_timer_passes(&agent, 4);
    assert_eq!(held(&node), [nameless.addresses(), other.addresses()].concat());
    nameless.wait_connected();
    other.wait_connected();
}

#[test]
fn leftovers_of_a_killed_add_go_with_its_lease() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let nothing = left(&node);
    let (died, kept) = (Pod::add(&node, "died"), Pod::add(&node, "kept"));
    let addresses = [died.addresses(), kept.addresses()].concat();
    for pod in [&died, &kept] {
        pod.reopen(&node);
        pod.expire(&node);
    }
    drop(died);
    let all_free = || addresses.iter().all(|address| freed(&node).contains(address));
    wait_for("both leases to end", all_free, || agent.log());
    assert_eq!(held(&node), Vec::<IpAddr>::new());
    // The other's namespace is there, and with it all that its ADD had made.
    assert_eq!(left(&node), nothing);
}

/// Its addresses are never free: another pod with them would break its network.
#[test]
fn next_reconcile_restores_lost_record_of_a_pod() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let pod = Pod::add(&node, "a");
    let (whole, addresses) = (left(&node), pod.addresses());
    std::fs::remove_dir_all(node.path("run").join("allocations")).unwrap();
    let said = || {
        let events = agent.events("host.repaired");
        events
            .iter()
            .any(|line| line["change"].as_str().is_some_and(|text| text.contains("record of 1 running pod(s)")))
    };
    wait_for("its record", || held(&node) == addresses && said(), || format!("{:?}\n{}", held(&node), agent.log()));
    assert_eq!((left(&node), freed(&node)), (whole, Vec::new()));
    pod.wait_connected();
}

/// A reconcile that checks neither must not report them as repaired.
#[test]
fn remains_of_deleted_pod_are_reported_until_they_are_removed() {
    let node = dual_stack_node();
    let settings = node.settings(&[]);
    let world = node.world(vec![vnic("primary", 10), dual_stack("pods", 33)], &settings);
    let mut reconciler = node.reconciler(&settings);
    assert_eq!(node.pass(&mut reconciler, &world, Cause::Start).conditions, []);
    drop(Pod::add(&node, "died"));
    node.sh("ip rule add pref 1536 from 10.0.33.47 lookup 1000 proto 157");
    let unprivileged = node.container().without_capability("NET_ADMIN");
    let of_pods_gone = |pass: ReconcileReport| -> Vec<String> {
        let subjects = [Some("died"), Some("what is about no pod")];
        // That the pod's link is gone without a DEL is reported apart, and longer.
        let is_remainder =
            |it: &&Condition| it.reason != Reason::PodLinkGone && subjects.contains(&it.subject.as_deref());
        let all = pass.conditions.iter().filter(is_remainder);
        all.map(ToString::to_string).collect()
    };
    let reconciler = RefCell::new(reconciler);
    let failures = |cause| of_pods_gone(node.pass_in(&unprivileged, &mut reconciler.borrow_mut(), &world, cause));
    wait_for("both failures", || failures(Cause::Timer).len() == 2, || format!("{:#?}", failures(Cause::Timer)));
    let reported = failures(Cause::Kernel);
    let begins = ["HostNetworkFailed (what is about no pod): ", "AttachmentLeftOver (died): "];
    assert!(
        reported.len() == 2 && reported.iter().zip(begins).all(|(text, begin)| text.starts_with(begin)),
        "{reported:#?}"
    );
    for cause in [Cause::Retry, Cause::Kernel, Cause::Preview, Cause::Kernel, Cause::Timer, Cause::Kernel] {
        assert_eq!(failures(cause), reported, "{cause:?}");
    }
    // A verb that is at it meanwhile.
    let store = store(&node);
    let keys: Vec<_> = store.read().unwrap().allocations.into_iter().map(|it| it.key).collect();
    let locks: Vec<_> = keys.iter().map(|key| store.try_attachment(key).unwrap().expect("it is not locked")).collect();
    assert_eq!((locks.len(), failures(Cause::Timer)), (1, reported.clone()));
    drop(locks);
    assert_eq!(failures(Cause::Kernel), reported);
    for cause in [Cause::Retry, Cause::Kernel] {
        assert_eq!(of_pods_gone(node.pass(&mut reconciler.borrow_mut(), &world, cause)), [""; 0], "{cause:?}");
    }
}
