//! A pod with `NET_ADMIN` does what it can with the link of a VNIC that it has for itself. The VNIC's link, and no other, comes
//! back unchanged, and DEL succeeds. A VNIC whose link is elsewhere is given to no pod.

use host_harness::{Families, PATIENCE, json_of, name, path_of, reaches_from, sh, within};
use netlink::Netns;
use serde_json::{Value, json};
use vcn::LinkKindName;

use crate::world::{Machine, Pod, World, addresses, exclusive, mac};

fn world() -> World {
    World::new(Machine::Virtual, &[exclusive(Families::V4, 0)])
}

/// The link of the VNIC on the host, as `ip` shows it, without its index.
fn link_on_host(world: &World) -> String {
    let links = sh(&world.host, "ip -d -o link");
    let line = links.lines().find(|line| line.contains(&mac(0))).unwrap_or_default();
    line.split_once(": ").map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

/// The link is on the host as `before`, but lowered. The kernel tells of its carrier a little later.
fn assert_returned(world: &World, before: &str, when: &str) {
    sh(&world.host, "ip link set ens5 up");
    assert!(within(PATIENCE, || link_on_host(world) == before), "{when}: {} is not {before}", link_on_host(world));
}

/// The next pod has the VNIC, and its packets.
fn assert_usable(world: &World, when: &str) {
    let next = world.pod("next", 9);
    let result = world.add(&next, "v0");
    assert!(reaches_from(&next.netns, &addresses(&result, "net1")[0].to_string(), "10.0.0.1"), "{when}");
    world.del(&next);
}

/// Rewrites the only record.
fn edit_record(world: &World, edit: impl Fn(&mut Value)) {
    let folder = world.state.path().join("allocations");
    let path = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).next().unwrap();
    let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    edit(&mut record["allocation"]);
    std::fs::write(&path, record.to_string()).unwrap();
}

/// As version 0.2.0 wrote it.
fn older(allocation: &mut Value) {
    let link = allocation["exclusive"].as_object_mut().unwrap();
    for field in ["kind", "identity", "settings"] {
        assert!(link.remove(field).is_some(), "{field}");
    }
}

#[test]
fn link_returns_reset_whatever_the_pod_changed() {
    let mac = mac(0);
    for (change, fake) in [
        ("ip link set net1 down; ip link set net1 name eth9".to_owned(), None),
        ("ip link set net1 down; ip link set net1 address 02:00:00:00:00:66".to_owned(), None),
        (
            "ip link set net1 down; ip link set net1 name x address 02:00:00:00:00:66
             ip link add net1 address MAC alias $(ip -o link show x | sed -n 's/.*alias //p') type veth peer name tap"
                .replace("MAC", &mac),
            Some("tap"),
        ),
        (
            "ip link set net1 down; ip link set net1 name x; ip link add net1 address MAC type bridge"
                .replace("MAC", &mac),
            Some("bridge"),
        ),
        ("ip link add br0 type bridge; ip link set net1 master br0".to_owned(), Some("br0")),
        ("ip link add link net1 name m0 address MAC type macvlan".replace("MAC", &mac), None),
        ("ip link property add dev net1 altname enp0s9 altname ens5; ip link set net1 alias other".to_owned(), None),
        ("ip link set net1 down; ip link set net1 name enp0s9".to_owned(), None),
        (
            "ip link set net1 promisc on; ip link set net1 allmulticast on; ip link set net1 arp off
             ip link set net1 group 7; ip link set net1 txqueuelen 3; ip link set net1 mtu 1400"
                .to_owned(),
            None,
        ),
    ] {
        let world = world();
        // Names that the pod may take for its link.
        sh(&world.host, "ip link add other type bridge; ip link property add dev other altname enp0s9");
        let before = link_on_host(&world);
        let pod = world.pod("a", 5);
        world.add(&pod, "v0");
        sh(&pod.netns, &change);
        world.del(&pod);
        assert_returned(&world, &before, &change);
        assert!(world.allocations().allocations.is_empty(), "{change}");
        let left = sh(&pod.netns, "ip -d link");
        assert!(fake.is_none_or(|fake| left.contains(fake)), "{change}: what the pod made stays there: {left}");
        assert_usable(&world, &change);
    }
}

/// Also into another pod's namespace, whose links the pod's may be mistaken for.
#[test]
fn vnic_stays_taken_until_another_namespace_returns_its_link() {
    for (fake, is_older) in
        [("", false), ("ip link add net1 index 999 address MAC type veth peer name tap", false), ("", true)]
    {
        let world = world();
        let (pod, helper, next) = (world.pod("a", 5), world.pod("b", 6), world.pod("c", 7));
        world.add(&pod, "v0");
        if is_older {
            edit_record(&world, older);
        }
        let to = path_of(&helper.netns).display().to_string();
        sh(&pod.netns, &format!("ip link set net1 name eth7 netns {to}; {}", fake.replace("MAC", &mac(0))));
        let del = world.chained("DEL", &pod, None);
        for _ in 0..2 {
            json_of(&world.run(&del));
            assert_eq!(link_on_host(&world), "", "no link of the pod's is on the host");
        }
        drop(pod);
        json_of(&world.run(&del));
        let held = world.allocations().allocations;
        assert!(held.len() == 1 && held[0].unreturned_since.is_some(), "{held:?}");
        world.assert_refused(&next, "v0", "pod team-a/web-0 is gone, and the link ens5 of its VNIC is not on the host");
        // As the kernel does with a NIC when the namespace that has it ends.
        let home = path_of(&world.host).display().to_string();
        sh(&helper.netns, &format!("ip link set eth7 down; ip link set eth7 name dev7 netns {home}"));
        let result = world.add(&next, "v0");
        assert!(reaches_from(&next.netns, &addresses(&result, "net1")[0].to_string(), "10.0.0.1"));
        world.del(&next);
        assert!(link_on_host(&world).starts_with("ens5@"));
    }
}

/// A pod of version 0.2.0 outlives the upgrade: its record says neither index nor kind.
#[test]
fn record_of_older_version_is_judged_by_kind() {
    let world = world();
    let before = link_on_host(&world);
    let pod = world.pod("a", 5);
    let result = world.add(&pod, "v0");
    edit_record(&world, older);
    let mut check = world.chained("CHECK", &pod, Some("v0"));
    check.conf["prevResult"] = result.clone();
    assert_eq!(json_of(&world.run(&check)), Value::Null);
    assert_eq!(world.add(&pod, "v0"), result, "a repeated ADD");
    sh(
        &pod.netns,
        &format!("ip link set net1 down; ip link set net1 name x; ip link add net1 address {} type bridge", mac(0)),
    );
    world.del(&pod);
    assert_returned(&world, &before, "afterwards");
    assert_usable(&world, "afterwards");
}

/// The record says of what kind the link is; nothing in the pods' file is needed.
#[test]
fn del_needs_no_pools_to_know_the_link() {
    let world = world();
    let before = link_on_host(&world);
    let pod = world.pod("a", 5);
    world.add(&pod, "v0");
    std::fs::remove_file(world.state.path().join("pools.json")).unwrap();
    world.del(&pod);
    assert_returned(&world, &before, "afterwards");
}

/// Where network cards are hardware, no link that a pod can make is one, whatever its name, address and index.
#[test]
fn no_virtual_link_is_taken_for_hardware() {
    let world = world();
    let pod = world.pod("a", 5);
    world.add(&pod, "v0");
    edit_record(&world, |allocation| {
        allocation["exclusive"].as_object_mut().unwrap().remove("kind");
        assert!(allocation["exclusive"]["identity"]["index"].is_u64(), "{allocation}");
    });
    world.del(&pod);
    let held = world.allocations().allocations;
    assert!(held.len() == 1 && held[0].unreturned_since.is_some(), "{held:?}");
    assert_eq!(link_on_host(&world), "");
    assert!(sh(&pod.netns, "ip link show net1").contains(&mac(0)), "it stays in the pod");
    assert_eq!(json!(held[0].exclusive)["kind"], Value::Null);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn vlan_link_that_the_pod_deleted_or_renamed_frees_the_vnic() {
    for change in [
        "ip link del net1",
        "ip link set net1 down; ip link set net1 name x address 02:00:00:00:00:66",
        "ip link set net1 down; ip link set net1 name x; ip link add net1 type bridge",
    ] {
        let world = World::new(Machine::BareMetal, &[exclusive(Families::V4, 0)]);
        let before = world.snapshot();
        let pod = world.pod("a", 5);
        world.add(&pod, "v0");
        sh(&pod.netns, change);
        world.del(&pod);
        assert!(world.allocations().allocations.is_empty(), "{change}");
        assert_usable(&world, change);
        sh(&world.host, "ip link del prim5; ip link del prim9 || true");
        assert_eq!(world.snapshot(), before, "{change}");
    }
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn vnic_stays_taken_while_another_namespace_has_its_vlan_link() {
    for fake in ["", "ip link add p type veth peer name q; ip link add link p name net1 index INDEX type vlan id 100"] {
        let world = World::new(Machine::BareMetal, &[exclusive(Families::V4, 0)]);
        let (pod, helper, next) = (world.pod("a", 5), world.pod("b", 6), world.pod("c", 7));
        world.add(&pod, "v0");
        let index = world.allocations().allocations[0].exclusive.as_ref().unwrap().identity.unwrap().index;
        let to = path_of(&helper.netns).display().to_string();
        sh(
            &pod.netns,
            &format!("ip link set net1 name eth7 netns {to}; {}", fake.replace("INDEX", &index.to_string())),
        );
        world.del(&pod);
        let held = world.allocations().allocations;
        assert!(held.len() == 1 && held[0].unreturned_since.is_some(), "{fake}: {held:?}");
        world.assert_refused(&next, "v0", "is not on the host: another network namespace has it");
        sh(&helper.netns, "ip link del eth7");
        world.add(&next, "v0");
    }
}

/// A pod can move links to the host, by the number that it has for the namespace of its own interface's peer.
#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn links_that_the_pod_put_on_the_host_do_not_keep_its_vlan_link_taken() {
    for change in [
        "ip link set net1 name eth7 netns HOST",
        "ip link add PROBE type veth peer name other; ip link set PROBE netns HOST; ip link set other netns HOST
         ip link del net1",
    ] {
        let world = World::new(Machine::BareMetal, &[exclusive(Families::V4, 0)]);
        let pod = world.pod("a", 5);
        world.add(&pod, "v0");
        let probe = world.allocations().allocations[0].host_link.to_string();
        let home = path_of(&world.host).display().to_string();
        sh(&pod.netns, &change.replace("PROBE", &probe).replace("HOST", &home));
        world.del(&pod);
        assert!(world.allocations().allocations.is_empty(), "{change}");
        let left = sh(&world.host, "ip -o link");
        assert!(!left.contains("eth7") && !left.contains(&probe), "{left}");
        assert_usable(&world, change);
    }
}

/// The kernel has such links for L2TP sessions.
fn put_link_without_kind_on_host(world: &World, pod: &Pod, nic: &str) {
    let home = path_of(&world.host).display().to_string();
    sh(
        &pod.netns,
        &format!(
            "ip link set lo up
             ip l2tp add tunnel tunnel_id 1 peer_tunnel_id 1 encap ip local 127.0.0.1 remote 127.0.0.1
             ip l2tp add session tunnel_id 1 session_id 1 peer_session_id 1 name fake
             ip link set fake address {nic}; ip link set fake name eth0 netns {home}"
        ),
    );
    assert!(sh(&world.host, "ip -o link show eth0").contains(nic));
}

/// On a machine whose VNIC is a virtio NIC, in the first namespace, to which the kernel returns it. The pod moves the NIC to an
/// helper, and puts a veth in its place with the same name, Ethernet address and index.
#[test]
#[ignore = "needs a virtio NIC: run by tests/qemu/run"]
fn virtio_nic_is_never_replaced_and_returns_when_its_namespace_ends() {
    let vnics = [exclusive(Families::V4, 0)];
    let world = World { host: Netns::current().unwrap(), ..World::new(Machine::Virtual, &vnics) };
    let nic = sh(&world.host, "cat /sys/class/net/eth0/address").trim().to_owned();
    let before = sh(&world.host, "ip -d -o link show eth0 | sed 's/^[0-9]*: //'");
    let mut pools = world.pools();
    (pools[0].link, pools[0].mac, pools[0].mtu) = (name("eth0"), nic.parse().unwrap(), vcn::Mtu(1500));
    pools[0].attach.as_mut().unwrap().link_kind = LinkKindName::HARDWARE;
    world.write_pools(pools);

    // A link that a pod made is not the NIC, whatever its name, address and index.
    let (pod, helper, next) = (world.pod("a", 5), world.pod("b", 6), world.pod("c", 7));
    world.add(&pod, "v0");
    let held = world.allocations().allocations;
    let identity = held[0].exclusive.as_ref().unwrap().identity.unwrap();
    assert_eq!(identity.permanent_mac, Some(nic.parse().unwrap()));
    let (index, to) = (identity.index, path_of(&helper.netns).display().to_string());
    sh(
        &pod.netns,
        &format!(
            "ip link set net1 down; ip link set net1 address 02:00:00:00:00:66; ip link set net1 name eth7 netns {to}
             ip link add net1 index {index} address {nic} type veth peer name tap netns {to}"
        ),
    );
    assert!(sh(&pod.netns, "ip -o link show net1").starts_with(&format!("{index}: ")));
    sh(
        &helper.netns,
        "ip link set eth7 promisc on group 7 txqueuelen 3 mtu 1400; ip link property add dev eth7 altname lo2",
    );
    world.del(&pod);
    let on_host = || sh(&world.host, "ip -d -o link");
    assert!(!on_host().contains(&nic), "no link of the pod's is on the host: {}", on_host());
    assert!(world.allocations().allocations[0].unreturned_since.is_some());
    world.assert_refused(&next, "v0", "another network namespace has it");
    put_link_without_kind_on_host(&world, &pod, &nic);
    world.del(&pod);
    assert!(world.allocations().allocations[0].unreturned_since.is_some());
    world.assert_refused(&next, "v0", "another network namespace has it");
    sh(&pod.netns, "ip l2tp del tunnel tunnel_id 1");
    assert!(within(PATIENCE, || !on_host().contains(&nic)), "{}", on_host());
    drop(pod);
    world.assert_refused(&next, "v0", "another network namespace has it");
    // With its namespace, and with what the helper made of it.
    drop(helper);
    assert!(within(PATIENCE, || on_host().contains(&format!("permaddr {nic}"))), "{}", on_host());
    world.add(&next, "v0");
    assert!(sh(&next.netns, "ip -o link show net1").contains(&nic));

    // Its DEL, and the kernel's return of the NIC when the namespace ends first.
    sh(
        &next.netns,
        "ip link set net1 down; ip link set net1 name x address 02:00:00:00:00:67; ip link add net1 type bridge",
    );
    world.del(&next);
    let shown = || sh(&world.host, "ip -d -o link show eth0 | sed 's/^[0-9]*: //'");
    assert_eq!(shown(), before);
    let last = world.pod("d", 8);
    world.add(&last, "v0");
    let del = world.chained("DEL", &last, None);
    drop(last);
    json_of(&world.run(&del));
    assert_eq!(shown(), before);
    assert!(world.allocations().allocations.is_empty());
}
