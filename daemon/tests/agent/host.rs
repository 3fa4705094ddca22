//! The reconciler against a kernel, in the agent's container without the program around it.

use std::fs;
use std::process::Command;
use std::time::Instant;

use oke_node_agent::facts::condition::Reason;
use oke_node_agent::facts::reconcile_report::{Cause, ReconcileReport};
use serde_json::Value;
use vcn::{Family, Mtu};

use crate::called::{Scene, texts};
use crate::metadata::{dual_stack, vnic};
use crate::node::{Node, name, wait_for};
use crate::pod_network::nft_table;
use crate::running::{SECOND, in_time};

#[test]
fn secondary_vnics_are_configured_and_the_primary_is_unchanged() {
    let scene = Scene::new(&[dual_stack("pods", 33), vnic("storage", 34)]);
    let node = &scene.node;
    let before = node.on(|socket| socket.link(&name("ens3")).unwrap());
    let first = scene.reconcile(Cause::Start);
    assert_eq!(first.conditions, [], "{:#?}", first.changes);
    assert!(first.usable);
    // What settings were before is kept, for `oke-cni-installer uninstall` to give back.
    let notes = fs::read_to_string(node.path("lib/sysctls.json")).unwrap();
    let notes: Value = serde_json::from_str(&notes).unwrap();
    for noted in [
        r#""net/ipv4/ip_forward":{"before":"0","set":"1"}"#,
        r#""link/ens5/mtu":{"before":"1500","set":"9000"}"#,
        r#""link/ens5/state":{"before":"down","set":"up"}"#,
    ] {
        assert!(notes.to_string().contains(noted), "{noted}: {notes}");
    }
    assert!(!notes.to_string().contains("link/ens3/mtu"), "the primary is the operating system's: {notes}");

    let (link, addresses) = (node.on(|socket| socket.link(&name("ens5")).unwrap()), node.addresses("ens5"));
    assert!(link.up && link.mtu == Mtu::VCN);
    assert!(addresses.contains(&"10.0.33.7/32".into()) && addresses.contains(&"2603:c020:0:33::7/128".into()));
    assert_eq!(node.routes(Family::Ipv4, 1000), ["0.0.0.0/0 10.0.33.1", "10.0.33.1/32 -"]);
    assert_eq!(node.routes(Family::Ipv4, 1001), ["0.0.0.0/0 10.0.34.1", "10.0.34.1/32 -"]);
    assert!(node.routes(Family::Ipv6, 1000).contains(&"::/0 fe80::200:17ff:fe00:1".into()));
    assert_eq!(
        node.rules(Family::Ipv4),
        [
            "512 all all 999",
            "1000 all 169.254.169.254/32 main",
            "1024 all all fwmark 0x1000/0x1046 main",
            "1024 all all fwmark 0x1002/0x1046 1000",
            "1024 all all fwmark 0x1004/0x1046 1001",
            "1537 10.0.33.7/32 all 1000",
            "1537 10.0.34.7/32 all 1001"
        ]
    );
    assert_eq!(
        node.rules(Family::Ipv6),
        [
            "512 all all 999",
            "1000 all fd00:c1::a9fe:a9fe/128 main",
            "1024 all all fwmark 0x1000/0x1046 main",
            "1024 all all fwmark 0x1002/0x1046 1000",
            "1537 2603:c020:0:33::7/128 all 1000"
        ]
    );
    assert_eq!(node.sysctl("net/ipv4/conf/ens5/rp_filter"), "2");
    assert_eq!(node.sysctl("net/ipv6/conf/ens3/accept_ra"), "2");

    let unchanged = netlink::Link { accept_ra: Some(2), ..before };
    assert_eq!(node.on(|socket| socket.link(&name("ens3")).unwrap()), unchanged);
    assert!(node.routes(Family::Ipv4, 254).contains(&"0.0.0.0/0 10.0.10.1".into()));
}

/// CIS benchmarks disable IPv6 on hosts, and enabling it again misses links that appear later.
#[test]
fn vnic_with_ipv6_works_where_new_links_disable_it() {
    let node = Node::new();
    node.inside(|| fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap());
    node.plug("ens5", 33);
    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33)]);
    node.publish_dual_stack(&[("pods", 33)]);
    assert_eq!(node.sysctl("net/ipv6/conf/ens5/disable_ipv6"), "1");
    let agent = node.ready_agent(&[]);
    assert_eq!(node.conditions(), [""; 0], "{}", agent.log());
    assert!(node.routes(Family::Ipv6, 1000).contains(&"::/0 fe80::200:17ff:fe00:1".into()));
}

/// `UML_MODULES=veth` and the runner `tests/uml/run` give one, and `QEMU_APPEND=ipv6.disable=1` and `tests/qemu/run` one that
/// has nf_tables.
#[test]
#[ignore = "needs a kernel without IPv6"]
fn dual_stack_node_uses_ipv4_on_a_kernel_without_ipv6() {
    assert!(!std::path::Path::new("/proc/sys/net/ipv6").exists(), "this kernel has IPv6");
    let scene = Scene::new(&[dual_stack("pods", 33)]);
    let node = &scene.node;
    // On a slow machine the plugin is still in VERSION.
    let is_through = |pass: &ReconcileReport| pass.conditions.iter().all(|it| it.reason != Reason::Starting);
    let mut passes = std::iter::repeat_with(|| scene.reconcile(Cause::Start));
    let first = passes.by_ref().take(100).find(is_through).unwrap();
    assert!(first.usable && first.is_ready(), "{:#?}", first.conditions);
    // User-mode kernels have no nf_tables either.
    let has_nft = node.inside(|| Command::new("nft").args(["list", "tables"]).output().unwrap().status.success());
    let reported: Vec<Reason> = first.conditions.iter().map(|it| it.reason).collect();
    let lacks = if has_nft { &[][..] } else { &[Reason::KernelLacksNft] };
    assert_eq!(reported, lacks, "{:#?}", first.conditions);
    assert!(!has_nft || node.inside(nft_table).is_some());
    assert_eq!(node.routes(Family::Ipv4, 1000), ["0.0.0.0/0 10.0.33.1", "10.0.33.1/32 -"]);
    assert_eq!(node.pools()["vnics"].as_array().unwrap().len(), 1);
    assert_eq!(texts(&scene.reconcile(Cause::Kernel)), [""; 0]);
}

#[test]
fn pools_have_native_pod_network_addresses_and_reserve_the_hosts() {
    let scene = Scene::new(&[vnic("pods", 33)]);
    scene.reconcile(Cause::Start);
    let mut pools = scene.node.pools();
    pools["bootId"] = Value::Null;
    assert_eq!(
        pools,
        serde_json::json!({
            "version": 1,
            "bootId": null,
            "podFamilies": ["ipv4"],
            "vnics": [{
                "vnicId": "ocid1.vnic.oc1.iad.pods",
                "link": "ens5",
                "mac": "02:00:17:00:00:21",
                "linkHasMac": true,
                "mtu": 9000,
                "table": 1000,
                "purpose": "pods",
                "ipv4": {"router": "10.0.33.1", "reserved": ["10.0.33.7"], "addresses": ["10.0.33.32/28"]},
            }],
        })
    );
}

#[test]
fn second_reconcile_and_restarted_agent_change_nothing() {
    let scene = Scene::new(&[dual_stack("pods", 33)]);
    assert!(!scene.reconcile(Cause::Start).changes.is_empty());
    assert_eq!(texts(&scene.reconcile(Cause::Timer)), [""; 0]);
    scene.restart();
    assert_eq!(texts(&scene.reconcile(Cause::Start)), [""; 0]);
}

#[test]
fn preview_changes_nothing_and_matches_the_reconcile() {
    let scene = Scene::new(&[vnic("pods", 33)]);
    let (node, preview) = (&scene.node, scene.reconcile(Cause::Preview));
    assert_eq!(node.rules(Family::Ipv4), [""; 0]);
    // The kubelet created it.
    assert_eq!(fs::read_dir(node.path("run")).unwrap().count(), 0);
    assert!(!node.path("lib/tables.json").exists());
    assert_eq!(texts(&preview), texts(&scene.reconcile(Cause::Start)));
}

#[test]
fn vnic_that_cannot_be_configured_affects_no_other() {
    let mut broken = vnic("broken", 34);
    // A multicast address: the kernel refuses a route through it.
    broken["virtualRouterIp"] = "224.0.0.1".into();
    let mut scene = Scene::new(&[vnic("pods", 33), broken.clone()]);
    scene.node.publish("SUCCESS", &[("pods", 33), ("broken", 34)]);
    scene.list(&[vnic("pods", 33), broken]);
    let (node, pass) = (&scene.node, scene.reconcile(Cause::Start));
    let conditions: Vec<_> = pass.conditions.iter().map(|it| (it.reason, it.subject.as_deref(), it.blocks())).collect();
    assert_eq!(conditions, [(Reason::HostNetworkFailed, Some("ocid1.vnic.oc1.iad.broken"), false)]);
    assert!(pass.usable && pass.is_ready());
    assert_eq!(node.pools()["vnics"].as_array().unwrap().len(), 1);
    assert!(node.pools()["reason"].as_str().unwrap().contains("ocid1.vnic.oc1.iad.broken"));
    // Undone as a whole.
    assert_eq!(node.routes(Family::Ipv4, 1001), [""; 0]);
}

#[test]
fn read_only_settings_make_the_node_unusable_with_a_reason() {
    let scene = Scene::with_options(&[vnic("pods", 33)], &["--sysctl-root", "/nowhere"]);
    let pass = scene.reconcile(Cause::Start);
    assert!(!pass.usable && !pass.is_ready());
    let condition = &pass.conditions[0];
    assert_eq!(condition.reason, Reason::HostNetworkFailed);
    assert!(condition.message.contains("ip_forward"), "{condition}");
    // Nothing that merely follows from it.
    let others = pass.conditions.iter().filter(|it| it.blocks() && it.reason != Reason::HostNetworkFailed);
    assert_eq!(others.map(|it| it.reason).collect::<Vec<_>>(), []);
    assert!(!scene.node.path("net.d").join(vcn::CONFLIST_FILE).exists());
}

#[test]
fn foreign_routes_and_rules_stay_even_in_our_tables() {
    let scene = Scene::new(&[vnic("pods", 33)]);
    let node = &scene.node;
    node.sh("ip route add 192.168.0.0/16 via 10.0.10.1 table 1000 proto static");
    scene.reconcile(Cause::Start);
    assert_eq!(node.routes(Family::Ipv4, 1000), ["192.168.0.0/16 10.0.10.1"]);
    assert_eq!(node.routes(Family::Ipv4, 1001).len(), 2);
}

#[test]
fn tables_survive_the_loss_of_their_file() {
    let mut scene = Scene::new(&[vnic("a", 33), vnic("b", 34)]);
    scene.reconcile(Cause::Start);
    fs::remove_file(scene.node.path("lib/tables.json")).unwrap();
    // In the reverse order: without memory, b would get a's table.
    scene.list(&[vnic("b", 34), vnic("a", 33)]);
    scene.restart();
    assert_eq!(texts(&scene.reconcile(Cause::Start)), [""; 0]);
    assert!(scene.node.path("lib/tables.json").exists());
}

#[test]
fn unusable_tables_file_removes_nothing() {
    let scene = Scene::new(&[vnic("pods", 33)]);
    scene.reconcile(Cause::Start);
    let file = scene.node.path("lib/tables.json");
    for (content, left) in [(r#"{"version":2,"slots":{}}"#, true), ("{half", false)] {
        fs::write(&file, content).unwrap();
        scene.restart();
        let pass = scene.reconcile(Cause::Start);
        assert_eq!(texts(&pass), [""; 0], "{content}");
        assert_eq!(pass.conditions.iter().filter(|it| it.reason == Reason::StateFailed).count(), 1, "{content}");
        assert_eq!(fs::read_to_string(&file).unwrap() == content, left, "{content}");
    }
    let Scene { node, settings, facts, .. } = scene;
    assert!(node.path("lib/tables.json.damaged").exists());
    // Nothing can be written without its directory.
    let without = node.container().without_volume(&node.path("lib"));
    let pass = node.first_pass_in(&without, &settings, &facts);
    assert_eq!(texts(&pass), [""; 0]);
    assert!(pass.conditions.iter().any(|it| it.reason == Reason::StateFailed), "{:#?}", pass.conditions);
    assert_eq!(node.routes(Family::Ipv4, 1000).len(), 2);
}

#[test]
fn detached_vnic_is_cleaned_up_before_its_table_is_free() {
    let begun = Instant::now();
    let mut scene = Scene::new(&[vnic("a", 33), vnic("b", 34)]);
    scene.list(&[vnic("a", 33)]);
    scene.reconcile(Cause::Start);
    scene.list(&[vnic("b", 34)]);
    scene.reconcile(Cause::Sources);
    let routes = |table| scene.node.routes(Family::Ipv4, table);
    assert_eq!(routes(1001).len(), 2);
    // Not at once: the agent is young, and the list may be incomplete for a moment.
    assert!(routes(1000).len() == 2 || begun.elapsed() > scene.settings.detach_grace);
    let is_gone = || {
        scene.reconcile(Cause::Timer);
        routes(1000).is_empty()
    };
    wait_for("the routes to go", is_gone, String::new);
    assert_eq!(routes(1001).len(), 2);
    assert_eq!(
        scene.node.rules(Family::Ipv4),
        [
            "512 all all 999",
            "1000 all 169.254.169.254/32 main",
            "1024 all all fwmark 0x1000/0x1046 main",
            "1024 all all fwmark 0x1004/0x1046 1001",
            "1537 10.0.34.7/32 all 1001"
        ]
    );
    scene.reconcile(Cause::Timer);
    scene.list(&[vnic("b", 34), vnic("a", 33)]);
    scene.reconcile(Cause::Sources);
    assert_eq!(scene.node.routes(Family::Ipv4, 1000), ["0.0.0.0/0 10.0.33.1", "10.0.33.1/32 -"]);
}

#[test]
fn removed_address_of_a_vnic_goes_and_foreign_ones_stay() {
    let mut scene = Scene::new(&[vnic("a", 33)]);
    let begun = Instant::now();
    scene.reconcile(Cause::Start);
    scene.node.sh("ip addr add 192.0.2.5/32 dev ens5");
    let addresses = |node: &Node| {
        let mut ipv4 = node.addresses("ens5");
        ipv4.retain(|address| !address.contains(':'));
        ipv4.sort();
        ipv4
    };
    wait_for("the end of the grace", || begun.elapsed() >= scene.settings.detach_grace, String::new);
    let in_sync = |pass: &ReconcileReport| {
        assert!(!pass.conditions.iter().any(|it| it.reason == Reason::HostNetworkFailed), "{:#?}", pass.conditions);
    };
    let mut changed = vnic("a", 33);
    changed["privateIp"] = "10.0.33.9".into();
    scene.list(&[changed]);
    in_sync(&scene.reconcile(Cause::Sources));
    assert_eq!(addresses(&scene.node), ["10.0.33.9/32", "192.0.2.5/32"]);
    assert_eq!(scene.node.routes(Family::Ipv4, 1000), ["0.0.0.0/0 10.0.33.1", "10.0.33.1/32 -"]);
    assert_eq!(texts(&scene.reconcile(Cause::Kernel)), [""; 0]);
    scene.list(&[]);
    in_sync(&scene.reconcile(Cause::Sources));
    assert_eq!(addresses(&scene.node), ["192.0.2.5/32"]);
    let everywhere = ["512 all all 999", "1000 all 169.254.169.254/32 main", "1024 all all fwmark 0x1000/0x1046 main"];
    assert_eq!(scene.node.rules(Family::Ipv4), everywhere);
}

#[test]
fn reconcile_without_changes_is_short() {
    let Scene { node, facts, reconciler, .. } = Scene::new(&[vnic("pods", 33)]);
    let mut reconciler = reconciler.into_inner();
    node.pass(&mut reconciler, &facts, Cause::Start);
    // Not a benchmark: only that a repair includes no digest of a binary and no start of a process.
    in_time(SECOND / 2, "a reconcile", || node.timed_pass(&mut reconciler, &facts, Cause::Kernel).1);
}
