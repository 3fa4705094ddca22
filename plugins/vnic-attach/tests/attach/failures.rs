//! Pods that end otherwise than by a DEL, and links that are not where they were: the VNIC can be used again.

use host_harness::{Families, PATIENCE, json_of, name, path_of, reaches_from, sh, within};
use netlink::Netns;

use crate::world::{Machine, Pod, World, addresses, exclusive, mac, shared};

/// A namespace that ends takes veths along; a NIC comes back to the host, lowered and under the name that it had. Here a veth
/// does for a NIC, so it is brought back by hand.
fn end_with_nic(world: &World, pod: Pod, arrives_as: &str) {
    let home = path_of(&world.host).display().to_string();
    sh(
        &pod.netns,
        &format!("ip link set net1 down; ip link set net1 name {arrives_as}; ip link set {arrives_as} netns {home}"),
    );
    drop(pod);
}

#[test]
fn del_returns_nic_under_its_original_name_when_pod_died() {
    for arrives_as in ["net1", "dev7", "ens5"] {
        let world = World::new(Machine::Virtual, &[exclusive(Families::Dual, 0)]);
        let before = world.snapshot();
        let pod = world.pod("a", 5);
        world.add(&pod, "v0");
        let del = world.chained("DEL", &pod, None);
        end_with_nic(&world, pod, arrives_as);
        json_of(&world.run(&del));
        assert!(within(PATIENCE, || !sh(&world.host, "ip -br link").contains("prim5")));
        assert_eq!(world.snapshot(), before, "{arrives_as}");
        let next = world.pod("b", 6);
        let result = world.add(&next, "v0");
        assert!(reaches_from(&next.netns, &addresses(&result, "net1")[0].to_string(), "10.0.0.1"));
    }
}

#[test]
fn add_ends_attachment_of_pod_that_died_without_del() {
    let world = World::new(Machine::Virtual, &[exclusive(Families::V4, 0)]);
    let pod = world.pod("a", 5);
    world.add(&pod, "v0");
    end_with_nic(&world, pod, "net1");
    let next = world.pod("b", 6);
    let result = world.add(&next, "v0");
    assert!(reaches_from(&next.netns, &addresses(&result, "net1")[0].to_string(), "10.0.0.1"));
    assert_eq!(world.allocations().allocations.len(), 1);
}

/// On bare metal the link ends with the pod, so nothing on the host shows that the pod has: the record stays until a verb finds out.
#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn add_or_late_del_ends_vlan_link_of_dead_pod() {
    let world = World::new(Machine::BareMetal, &[exclusive(Families::V4, 0)]);
    let before = world.snapshot();
    let die = |id: &str| {
        let pod = world.pod(id, 5);
        world.add(&pod, "v0");
        let del = world.chained("DEL", &pod, None);
        drop(pod);
        // The host's end of the pod's own link goes when its namespace is taken apart.
        assert!(within(PATIENCE, || !sh(&world.host, "ip -br link").contains("prim5")));
        assert_eq!(world.allocations().allocations.len(), 1);
        del
    };
    // Made first, because the kernel gives a new namespace the number of one that ended, and here it has the path too.
    let next = world.pod("b", 6);
    die("a");
    let result = world.add(&next, "v0");
    assert!(reaches_from(&next.netns, &addresses(&result, "net1")[0].to_string(), "10.0.0.1"));
    assert_eq!(world.allocations().allocations.len(), 1);
    world.del(&next);

    let del = die("c");
    json_of(&world.run(&del));
    assert!(world.allocations().allocations.is_empty());
    sh(&world.host, "ip link del prim6");
    assert_eq!(world.snapshot(), before);
}

#[test]
fn returned_link_gets_our_name_when_its_name_is_taken() {
    for taken in ["ens5", "net1"] {
        let world = World::new(Machine::Virtual, &[exclusive(Families::V4, 0)]);
        let pod = world.pod("a", 5);
        if taken == "net1" {
            sh(&world.host, "ip link add net1 type veth peer name other");
        }
        world.add(&pod, "v0");
        if taken == "ens5" {
            sh(&world.host, "ip link add ens5 type veth peer name other; ip link add net1 type veth peer name another");
        }
        world.del(&pod);
        let expected = if taken == "ens5" { format!("vn{}", mac(0).replace(':', "")) } else { "ens5".to_owned() };
        let links = sh(&world.host, "ip -o link");
        let line = links.lines().find(|line| line.contains(&mac(0))).unwrap_or_default();
        assert!(line.contains(&expected) && !line.contains("alias"), "{taken}: {links}");
        assert!(world.allocations().allocations.is_empty());
    }
}

#[test]
fn del_succeeds_whatever_is_gone() {
    for spoil in ["pools.json", "allocations.json", "everything", "namespace"] {
        let world = World::new(Machine::Virtual, &[shared(Families::Dual, 0), exclusive(Families::V4, 1)]);
        let before = world.snapshot();
        let mut pod = world.pod("a", 5);
        world.add(&pod, "v0,v1");
        let del = world.chained("DEL", &pod, None);
        match spoil {
            "everything" => sh(&world.host, "ip link del prim5; ip route flush table 999; ip -6 route flush table 999"),
            "namespace" => {
                pod.netns = Netns::create().unwrap();
                sh(&world.host, "ip link del ens6 2>/dev/null || true")
            }
            file => {
                std::fs::remove_file(world.state.path().join(file)).unwrap();
                String::new()
            }
        };
        json_of(&world.run(&del));
        json_of(&world.run(&del));
        if spoil == "namespace" {
            // The veth that does for a NIC ended with its namespace: as if another namespace had it, until the VNIC is detached.
            let left = world.allocations().allocations;
            assert!(left.len() == 1 && left[0].unreturned_since.is_some(), "{left:?}");
            world.write_pools(world.pools().into_iter().take(1).collect());
            json_of(&world.run(&del));
        }
        assert!(world.allocations().allocations.is_empty(), "{spoil}");
        sh(&world.host, "ip link del prim5 2>/dev/null || true");
        let after = world.snapshot();
        match spoil {
            "namespace" => assert!(!after.contains("999") || !after.contains("proxy"), "{after}"),
            _ => assert_eq!(after, before, "{spoil}"),
        }
    }
}

/// What a guest has in its first namespace is a NIC. When the namespace that it is in ends, the kernel brings it back, lowered
/// and under the name that it had there. It can be raised once in a guest's life (tests/uml/run), so this is one test.
#[test]
#[ignore = "needs a NIC: run by tests/uml/run"]
fn a_real_nic_comes_back_from_a_namespace_that_ended() {
    let vnics = [exclusive(Families::Dual, 0)];
    let world = World { host: Netns::current().unwrap(), ..World::new(Machine::Virtual, &vnics) };
    let nic = sh(&world.host, "cat /sys/class/net/vec0/address").trim().to_owned();
    let mut pools = world.pools();
    (pools[0].link, pools[0].mac, pools[0].mtu) = (name("vec0"), nic.parse().unwrap(), vcn::Mtu(1500));
    pools[0].attach.as_mut().unwrap().link_kind = vcn::LinkKindName::HARDWARE;
    world.write_pools(pools);
    let pod = world.pod("a", 5);
    world.add(&pod, "v0");
    assert!(sh(&pod.netns, "ip -o link show net1").contains(&nic));
    let del = world.chained("DEL", &pod, None);
    drop(pod);
    json_of(&world.run(&del));
    let links = sh(&world.host, "ip -o link show vec0");
    assert!(links.contains(&nic) && !links.contains("alias"), "{links}");
    assert!(world.allocations().allocations.is_empty());
}
