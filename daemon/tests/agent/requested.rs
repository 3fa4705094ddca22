//! VNICs that VnicAttachments request, without an API server: the agent knows them from its cached copy.

use std::fs;
use std::net::IpAddr;
use std::process::Command;

use oke_node_agent::facts::condition::Reason;
use oke_node_agent::facts::reconcile_report::{Cause, ReconcileReport, UnmanagedReason, VnicState};
use serde_json::{Value, json};
use vcn::{ATTACHMENTS_COPY_FILE, Family, Mtu};

use crate::called::{Scene, texts};
use crate::metadata::{dual_stack, vnic};
use crate::node::{Node, name};
use crate::pod::hold;

/// What an agent saw before: a VnicAttachment of the VNIC `storage`.
fn request(node: &Node, spec: Value, status: Value) {
    let mut object = json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
        "metadata": { "name": "a", "uid": "u", "generation": 1 },
        "spec": { "instanceId": "ocid1.instance.oc1.iad.node", "subnetId": "ocid1.subnet.oc1.iad.s", "name": "storage" },
        "status": { "vnicId": "ocid1.vnic.oc1.iad.storage", "nodeName": "node" },
    });
    for (part, more) in [("spec", spec), ("status", status)] {
        object[part].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    let copy = json!({ "version": 1, "asOfUnixMillis": 0, "bootId": null, "value": [object] });
    fs::create_dir_all(node.path("lib")).unwrap();
    fs::write(node.path("lib").join(ATTACHMENTS_COPY_FILE), copy.to_string()).unwrap();
}

/// A node with VNICs for pods and for storage, of which the latter is requested so.
fn scene(spec: Value, status: Value) -> Scene {
    let mut scene = Scene::new(&[vnic("pods", 33), dual_stack("storage", 34)]);
    change_request(&mut scene, spec, status);
    scene
}

fn change_request(scene: &mut Scene, spec: Value, status: Value) {
    request(&scene.node, spec, status);
    scene.list(&[vnic("pods", 33), dual_stack("storage", 34)]);
}

fn storage(pass: &ReconcileReport) -> &VnicState {
    pass.vnics.iter().find(|vnic| vnic.id.unique_id() == "storage").unwrap()
}

/// The entry of pools.json.
fn offer(scene: &Scene) -> Option<Value> {
    let pools = scene.node.pools();
    let mut entries = pools["vnics"].as_array().unwrap().iter();
    entries.find(|entry| entry["vnicId"] == "ocid1.vnic.oc1.iad.storage").cloned()
}

/// On the fabric: a router with two networks behind it, and one behind another host of the subnet.
fn networks_behind(node: &Node) {
    node.fabric_sh(
        "for address in 172.16.0.1/32 192.168.5.1/32 fd00:5::1/128; do ip addr add $address dev lo; done
         for address in 10.0.34.1/24 10.0.34.9/24; do ip addr add $address dev ens6; done
         ip addr add fe80::200:17ff:fe00:1/64 dev ens6 nodad
         for link in lo ens6; do ip link set $link mtu 9000 up; done
         ip route add 2603:c020:0:34::7 dev ens6",
    );
}

/// One echo request of that many bytes, with headers, to an address, from whichever the kernel chooses.
fn answers(node: &Node, to: &str, bytes: u32) -> bool {
    let headers = if to.contains(':') { 48 } else { 28 };
    let payload = (bytes - headers).to_string();
    let ping =
        || Command::new("ping").args(["-n", "-q", "-c", "1", "-W", "2", "-M", "do", "-s", &payload, to]).output();
    node.inside(ping).unwrap().status.success()
}

#[test]
fn host_reaches_networks_behind_a_requested_vnic() {
    let routes = json!([{ "destination": "172.16.0.0/12" }, { "destination": "192.168.5.0/24", "via": "10.0.34.9" },
        { "destination": "fd00:5::/48" }]);
    let mut scene = scene(json!({ "purpose": "Host", "mtu": 1500, "routes": routes }), json!({}));
    networks_behind(&scene.node);
    // Of IPv6 the kernel keeps a route to each address of the host there.
    let main = |scene: &Scene| {
        let mut routes = Family::ALL.map(|family| scene.node.routes(family, 254)).concat();
        routes.retain(|route| !route.starts_with("fe80::") && !route.starts_with("2603:c020:0:34::7/128"));
        routes
    };
    let before = main(&scene);
    let pass = scene.reconcile(Cause::Start);
    assert_eq!(pass.conditions, [], "{:#?}", pass.changes);
    let VnicState { name, purpose, configured, .. } = storage(&pass);
    assert_eq!((name.as_deref(), *purpose, *configured), (Some("storage"), Some(vcn::Purpose::Host), Some(true)));
    for to in ["172.16.0.1", "192.168.5.1", "fd00:5::1"] {
        assert!(answers(&scene.node, to, 1500), "{to}: {:?}", scene.node.rules(Family::Ipv4));
        assert!(!answers(&scene.node, to, 1501), "{to}: its MTU is 1500");
    }
    assert_eq!(main(&scene), before, "the main table is the operating system's");
    assert_eq!(offer(&scene), None, "no pod gets it");
    assert_eq!(texts(&scene.reconcile(Cause::Timer)), [""; 0]);

    change_request(&mut scene, json!({ "purpose": "Host" }), json!({}));
    scene.reconcile(Cause::Preview);
    std::thread::sleep(scene.settings.detach_grace);
    scene.reconcile(Cause::Timer);
    let rules = [scene.node.rules(Family::Ipv4), scene.node.rules(Family::Ipv6)].concat();
    assert!(!rules.iter().any(|rule| ["172.16.0.0/12", "fd00:5::/48"].iter().any(|to| rule.contains(to))), "{rules:?}");
    assert_eq!(scene.node.on(|socket| socket.link(&crate::node::name("ens6")).unwrap().mtu), Mtu::VCN);
}

/// The fabric drops what reaches the subnet by the primary VNIC.
#[test]
fn host_reaches_the_subnet_through_its_vnic_if_requested() {
    let mut scene = scene(json!({ "purpose": "Host" }), json!({}));
    scene.node.sh("ip addr add 2603:c020:0:10::7/64 dev ens3 nodad; ip route add 2603:c020::/32 dev ens3");
    scene.node.fabric_sh(
        "for link in lo ens3 ens6; do ip link set $link mtu 9000 up; done
         ip addr add 10.0.10.1/24 dev ens3; ip addr add 10.0.34.9/24 dev ens6
         ip addr add 2603:c020:0:34::9/64 dev ens6 nodad
         ip addr add 10.0.34.77/32 dev lo
         nft -f - <<'.'
         table inet strict {
           chain in {
             type filter hook input priority 0;
             iif ens3 ip daddr 10.0.34.9 drop
             iif ens3 ip6 daddr 2603:c020:0:34::9 drop
             iif ens6 ip daddr 10.0.34.77 drop
           }
         }\n.",
    );
    let peers = ["10.0.34.9", "2603:c020:0:34::9"];
    let used = |scene: &Scene| peers.map(|to| scene.node.sh(&format!("ip route get {to}")));
    scene.reconcile(Cause::Start);
    assert!(used(&scene).iter().all(|route| route.contains("dev ens3")), "as before an upgrade: {:?}", used(&scene));

    change_request(&mut scene, json!({ "purpose": "Host", "subnetRoute": true }), json!({}));
    let pass = scene.reconcile(Cause::Timer);
    assert_eq!(pass.conditions, [], "{:#?}", pass.changes);
    for to in peers {
        assert!(answers(&scene.node, to, 1500), "{to}: {:?}", used(&scene));
    }
    let [ipv4, ipv6] = used(&scene);
    assert!(ipv4.contains("dev ens6 table 1001 src 10.0.34.7"), "{ipv4}");
    assert!(ipv6.contains("dev ens6 table 1001") && ipv6.contains("src 2603:c020:0:34::7"), "{ipv6}");
    assert!(answers(&scene.node, "10.0.10.1", 100), "the host's own subnet stays with the primary VNIC");
    scene.node.sh("ip route add 10.0.34.77 via 10.0.10.1");
    assert!(answers(&scene.node, "10.0.34.77", 100), "a longer route of the main table wins");
    assert_eq!(texts(&scene.reconcile(Cause::Timer)), [""; 0]);

    change_request(&mut scene, json!({ "purpose": "Host" }), json!({}));
    scene.reconcile(Cause::Preview);
    std::thread::sleep(scene.settings.detach_grace);
    scene.reconcile(Cause::Timer);
    assert!(used(&scene).iter().all(|route| route.contains("dev ens3")), "{:?}", used(&scene));
}

/// Answers from the primary address would leave by the VNIC.
#[test]
fn subnet_route_into_the_primary_subnet_is_refused() {
    let mut scene = scene(json!({ "purpose": "Host", "subnetRoute": true }), json!({}));
    let mut storage_vnic = vnic("storage", 34);
    for (field, value) in
        [("privateIp", "10.0.10.8"), ("virtualRouterIp", "10.0.10.1"), ("subnetCidrBlock", "10.0.10.0/24")]
    {
        storage_vnic[field] = value.into();
    }
    scene.list(&[vnic("pods", 33), storage_vnic]);
    let pass = scene.reconcile(Cause::Start);
    let reported = pass.conditions.iter().find(|it| it.reason == Reason::RouteRefused).unwrap();
    assert!(reported.message.contains("10.0.10.0/24 (the primary VNIC's subnet)"), "{reported}");
    assert_eq!((storage(&pass).configured, storage(&pass).trouble), (Some(false), Some(Reason::RouteRefused)));
    let rules = scene.node.rules(Family::Ipv4);
    assert!(!rules.iter().any(|rule| rule.contains("10.0.10.0/24")), "{rules:?}");
}

/// The fabric drops what reaches an address by the wrong link.
#[test]
fn longer_routes_of_the_main_table_win_over_a_wide_route() {
    let routes = json!([{ "destination": "10.0.0.0/8" }, { "destination": "10.96.0.0/16", "via": "10.0.33.9" },
        { "destination": "10.96.4.0/22" }, { "destination": "2603:c000::/20" }, { "destination": "fd00::/16" }]);
    let mut scene = Scene::with_options(&[dual_stack("storage", 33)], &["--pod-network", "none"]);
    request(&scene.node, json!({ "purpose": "Host", "routes": routes }), json!({}));
    scene.list(&[dual_stack("storage", 33)]);
    scene.node.sh("ip addr add 2603:c020:0:10::7/64 dev ens3 nodad; ip route add 10.3.0.0/16 via 10.0.10.1");
    scene.node.fabric_sh(
        "ip link set lo up; for link in ens3 ens5; do ip link set $link mtu 9000 up; done
         ip addr add 10.0.10.1/24 dev ens3; ip addr add 2603:c020:0:10::1/64 dev ens3 nodad
         for address in 10.0.33.1/24 10.0.33.9/24; do ip addr add $address dev ens5; done
         ip addr add fe80::200:17ff:fe00:1/64 dev ens5 nodad; ip route add 2603:c020:0:33::7 dev ens5
         for address in 10.1.0.1 10.3.0.1 10.96.1.1 10.96.5.1 2603:c020:5::1; do ip addr add $address dev lo; done
         nft -f - <<'.'
         table inet strict {
           chain in {
             type filter hook input priority 0;
             iif ens5 ip daddr { 10.0.10.1, 10.3.0.1 } drop
             iif ens5 ip6 daddr 2603:c020:0:10::1 drop
             iif ens3 ip daddr { 10.1.0.1, 10.96.1.1, 10.96.5.1 } drop
             iif ens3 ip6 daddr 2603:c020:5::1 drop
           }
         }\n.",
    );
    let pass = scene.reconcile(Cause::Start);
    let reachable =
        ["10.0.10.1", "2603:c020:0:10::1", "10.3.0.1", "10.1.0.1", "10.96.1.1", "10.96.5.1", "2603:c020:5::1"];
    for to in reachable {
        let rules = || [scene.node.rules(Family::Ipv4), scene.node.rules(Family::Ipv6)];
        assert!(answers(&scene.node, to, 100), "{to}: {:#?} {:#?}", rules(), pass.changes);
    }
    // By the next hop of the smallest network, in whichever order they are written.
    let next_hop = |to: &str| scene.node.sh(&format!("ip route get {to}"));
    assert!(next_hop("10.96.1.1").contains("via 10.0.33.9 dev ens5"), "{}", next_hop("10.96.1.1"));
    assert!(next_hop("10.96.5.1").contains("via 10.0.33.1 dev ens5"), "{}", next_hop("10.96.5.1"));
    let reported = pass.conditions.iter().find(|it| it.reason == Reason::RouteRefused).unwrap();
    assert!(reported.message.starts_with("routes are refused: fd00::/16 overlaps fd00:c1::/32 "), "{reported}");
    assert_eq!((storage(&pass).configured, storage(&pass).trouble), (Some(false), Some(Reason::RouteRefused)));
    assert_eq!(texts(&scene.reconcile(Cause::Timer)), [""; 0]);
}

#[test]
fn shared_vnic_is_offered_on_node_with_another_pod_network() {
    let status = json!({ "podAddresses": ["10.0.34.8", "10.0.34.9"] });
    let spec = json!({ "purpose": "Attach", "allowedNamespaces": ["backup"], "ipv4Count": 2 });
    let mut scene = Scene::with_options(&[vnic("other", 33), dual_stack("storage", 34)], &["--pod-network", "none"]);
    request(&scene.node, spec, status);
    scene.list(&[vnic("other", 33), dual_stack("storage", 34)]);
    let pass = scene.reconcile(Cause::Start);
    assert_eq!(storage(&pass).configured, Some(true), "{:#?}", pass.conditions);
    let offer = offer(&scene).unwrap();
    assert_eq!(offer["ipv4"]["addresses"], json!(["10.0.34.8/32", "10.0.34.9/32"]));
    assert_eq!(
        offer["attach"],
        json!({ "name": "storage", "mode": "Shared", "allowedNamespaces": ["backup"],
        "linkKind": "veth", "subnets": { "ipv4": "10.0.34.0/24", "ipv6": "2603:c020:0:34::/64" } })
    );
    assert!(scene.node.rules(Family::Ipv4).contains(&"512 all all 999".into()), "pods that share it are reached");
    assert_eq!(texts(&scene.reconcile(Cause::Timer)), [""; 0]);
}

#[test]
fn requested_vnic_is_used_under_any_name_of_its_link() {
    let shared = json!({ "purpose": "Attach", "ipv4Count": 1 });
    let exclusive = json!({ "purpose": "Attach", "mode": "Exclusive" });
    for (spec, offered) in [(json!({ "purpose": "Host" }), false), (shared, true), (exclusive.clone(), true)] {
        let scene = scene(spec.clone(), json!({ "podAddresses": ["10.0.34.8"] }));
        scene.node.fabric_sh("ip link del ens6");
        let pass = scene.reconcile(Cause::Start);
        assert_eq!(storage(&pass).configured, Some(false), "{spec}");
        scene.node.plug("enp0s9f1", 34);
        let pass = scene.reconcile(Cause::Kernel);
        assert_eq!((storage(&pass).configured, &pass.conditions[..]), (Some(true), &[][..]), "{spec}");
        let link = offered.then(|| json!("enp0s9f1"));
        assert_eq!(offer(&scene).map(|entry| entry["link"].clone()), link, "{spec}");
        assert_eq!(storage(&pass).link, Some(name("enp0s9f1")), "{spec}");
        assert_eq!(scene.node.routes(Family::Ipv4, 1001).is_empty(), spec == exclusive, "{spec}");
    }
}

#[test]
fn exclusive_vnic_is_in_its_pod_or_missing() {
    let spec = json!({ "purpose": "Attach", "mode": "Exclusive" });
    let vnics = [vnic("pods", 33), dual_stack("storage", 34)];
    // No pod is taken for dead meanwhile.
    let mut scene = Scene::with_options(&vnics, &["--dead-after-seconds", "3600"]);
    change_request(&mut scene, spec, json!({}));
    let pass = scene.reconcile(Cause::Start);
    assert_eq!((storage(&pass).unmanaged, storage(&pass).configured), (Some(UnmanagedReason::ForOnePod), Some(true)));
    assert_eq!(scene.node.routes(Family::Ipv4, 1001), [""; 0], "the host configures nothing of it");
    let before = offer(&scene).unwrap();
    assert_eq!((&before["link"], &before["ipv4"]["reserved"]), (&json!("ens6"), &json!([])));

    scene.node.fabric_sh("ip link del ens6");
    let pass = scene.reconcile(Cause::Start);
    assert_eq!((storage(&pass).trouble, storage(&pass).configured), (Some(Reason::LinkMissing), Some(false)));
    assert_eq!(offer(&scene), None);
    scene.node.plug("ens6", 34);
    scene.reconcile(Cause::Kernel);

    // A pod has it: the plugin moved the link and holds the address.
    let address: IpAddr = "10.0.34.7".parse().unwrap();
    let held = hold(&scene.node, "vnic-attach/c1/net1");
    assert!(held.addresses.iter().any(|held| held.address == address));
    scene.node.fabric_sh("ip link del ens6");
    for cause in [Cause::Start, Cause::Timer] {
        let pass = scene.reconcile(cause);
        assert_eq!(
            (storage(&pass).unmanaged, storage(&pass).trouble),
            (Some(UnmanagedReason::InPod), None),
            "{cause:?}"
        );
        assert_eq!(offer(&scene), Some(before.clone()));
    }
}

#[test]
fn report_mode_changes_nothing_and_off_does_not_look() {
    for (mode, reasons) in [("report", vec![Reason::HostNetworkDrifted]), ("off", vec![])] {
        let scene = Scene::with_options(&[vnic("storage", 33)], &["--pod-network", "none", "--host-networking", mode]);
        let before = scene.node.on(|socket| (socket.links().unwrap(), socket.rules(Family::Ipv4).unwrap()));
        let pass = scene.reconcile(Cause::Start);
        let mut reported: Vec<Reason> = pass.conditions.iter().map(|it| it.reason).collect();
        reported.retain(|reason| *reason == Reason::HostNetworkDrifted);
        reported.dedup();
        assert_eq!(reported, reasons, "{mode}: {:#?}", pass.conditions);
        assert_eq!(
            scene.node.on(|socket| (socket.links().unwrap(), socket.rules(Family::Ipv4).unwrap())),
            before,
            "{mode}"
        );
    }
}

/// Bare metal: the VNIC `storage` on a tag of port 0, and an untagged one on port 1, whose link has another address.
#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn requested_vnics_of_bare_metal_use_their_tags_and_ports() {
    let node = Node::new();
    node.plug("eth1", 99);
    let on = |mut vnic: Value, port: u8, tag: u16| {
        (vnic["nicIndex"], vnic["vlanTag"]) = (json!(port), json!(tag));
        vnic
    };
    let list = |tag| vec![on(vnic("primary", 10), 0, 0), on(vnic("storage", 34), 0, tag), on(vnic("other", 35), 1, 0)];
    let routes = json!([{ "destination": "172.16.0.0/12" }]);
    request(&node, json!({ "purpose": "Host", "mtu": 1500, "routes": routes }), json!({}));
    let settings = node.settings(&["--pod-network", "none"]);
    let mut reconciler = node.reconciler(&settings);
    let mut pass = |tag, cause| node.pass(&mut reconciler, &node.world(list(tag), &settings), cause);
    let first = pass(7, Cause::Start);
    let refused = first.conditions.iter().find(|it| it.subject.as_deref() == Some("ocid1.vnic.oc1.iad.other")).unwrap();
    assert!(refused.message.contains("name it with BM_PORT_1"), "the port is not guessed: {refused}");
    assert_eq!(storage(&first).configured, Some(true), "{:#?}", first.conditions);
    node.fabric_sh("ip link set lo up; ip link set ens3 mtu 9000 up; ip addr add 172.16.0.1/32 dev lo");
    // The second time OCI gave the VNIC another tag.
    for tag in [7, 9] {
        let link = format!("v{tag}");
        node.fabric_sh(&format!(
            "ip link add link ens3 name {link} type vlan id {tag}
             ip addr add 10.0.34.1/24 dev {link}
             ip link set {link} up"
        ));
        std::thread::sleep(settings.detach_grace);
        let pass = pass(tag, Cause::Timer);
        assert_eq!(storage(&pass).link.as_ref().map(ToString::to_string), Some(format!("nic0.{tag}")));
        assert!(answers(&node, "172.16.0.1", 1500) && !answers(&node, "172.16.0.1", 1501), "tag {tag}");
        // The Ethernet address from which the fabric got the VNIC's last packet.
        let sender = node.fabric_sh(&format!("ip neigh show to 10.0.34.7 dev {link}"));
        assert!(sender.contains("lladdr 02:00:17:00:00:22"), "{sender}");
        assert_eq!(node.on(|socket| socket.link(&name("ens3")).unwrap().mtu), Mtu::VCN, "others are on the port");
        node.fabric_sh(&format!("ip link del {link}"));
    }
    // The untagged one, by the name of its port.
    let settings = node.settings(&["--pod-network", "none", "--bm-port-1", "eth1"]);
    let mut reconciler = node.reconciler(&settings);
    let pass = node.pass(&mut reconciler, &node.world(list(9), &settings), Cause::Start);
    let other = pass.vnics.iter().find(|vnic| vnic.id.unique_id() == "other").unwrap();
    assert_eq!((other.link.as_ref().map(ToString::to_string).as_deref(), other.trouble), (Some("eth1"), None));
    assert_eq!(storage(&pass).link.as_ref().map(ToString::to_string).as_deref(), Some("nic0.9"), "both ports at once");

    // For one pod: the plugin makes the VLAN link, none is on the host.
    request(&node, json!({ "purpose": "Attach", "mode": "Exclusive" }), json!({}));
    node.pass(&mut reconciler, &node.world(list(9), &settings), Cause::Sources);
    std::thread::sleep(settings.detach_grace);
    node.pass(&mut reconciler, &node.world(list(9), &settings), Cause::Timer);
    let pools = node.pools();
    let offer = pools["vnics"].as_array().unwrap().iter().find(|entry| entry["attach"] != Value::Null).unwrap();
    assert_eq!(
        (&offer["link"], &offer["attach"]["vlan"], &offer["linkHasMac"]),
        (&json!("ens3"), &json!(9), &Value::Null)
    );
    assert!(node.on(|socket| socket.links().unwrap().iter().all(|link| link.vlan.is_none())));
}
