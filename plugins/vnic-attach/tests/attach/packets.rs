//! Each address of a pod answers on its own interface, wherever the request comes from.

use host_harness::{Families, reaches_from, sh};

use crate::world::{HOST, Machine, OUTSIDE, Vnic, World, addresses, exclusive, shared};

/// The pod has an interface on each of the VNICs. Each router and what is behind it reach the addresses of its VNIC. The host
/// reaches the pod's own address, also from an address of a VNIC's subnet. The other way round as well.
fn each_answers_on_its_own(machine: Machine, vnics: &[Vnic]) {
    let world = World::new(machine, vnics);
    let before = world.snapshot();
    let pod = world.pod("a", 5);
    let requests: Vec<String> = (0..vnics.len()).map(|number| format!("v{number}@net{}", number + 1)).collect();
    let result = world.add(&pod, &requests.join(","));
    assert_eq!(addresses(&result, "eth0"), ["10.9.0.5".parse::<std::net::IpAddr>().unwrap()], "{result}");
    for (number, vnic) in vnics.iter().enumerate() {
        let own = addresses(&result, &format!("net{}", number + 1));
        assert_eq!(own.len(), if vnic.families == Families::Dual { 2 } else { 1 }, "{result}");
        for address in own {
            let (router, outside) = match address.is_ipv4() {
                true => (format!("10.0.{}.1", vnic.subnet), OUTSIDE[0]),
                false => (format!("2001:db8:{}::1", vnic.subnet), OUTSIDE[1]),
            };
            let (address, from) = (address.to_string(), &world.routers[number]);
            assert!(
                reaches_from(&pod.netns, &address, &router),
                "{vnic:?}: {address} to {router}\n{}",
                state(&pod.netns)
            );
            assert!(
                reaches_from(&pod.netns, &address, outside),
                "{vnic:?}: {address} to {outside}\n{}",
                state(&pod.netns)
            );
            assert!(reaches_from(from, &router, &address), "{vnic:?}: {router} to {address}");
            assert!(reaches_from(from, outside, &address), "{vnic:?}: {outside} to {address}");
        }
        let inside = format!("10.0.{}.77", vnic.subnet);
        sh(&world.host, &format!("ip addr add {inside}/32 dev lo"));
        assert!(
            reaches_from(&world.host, &inside, "10.9.0.5"),
            "the pod's own address, from {inside}\n{}",
            state(&pod.netns)
        );
        sh(&world.host, &format!("ip addr del {inside}/32 dev lo"));
    }
    assert!(reaches_from(&pod.netns, "10.9.0.5", HOST[0]) && reaches_from(&pod.netns, "fd00:9::5", HOST[1]));
    // Without an address of its choice, a program uses the interface of the VNIC for its subnet.
    let (s, expected) = (vnics[0].subnet, addresses(&result, "net1")[0]);
    let to = if expected.is_ipv4() { format!("10.0.{s}.1") } else { format!("2001:db8:{s}::1") };
    assert!(sh(&pod.netns, &format!("ip route get {to}")).contains(&format!("src {expected}")));
    world.del(&pod);
    world.del(&pod);
    sh(&world.host, "ip link del prim5");
    assert_eq!(world.snapshot(), before);
    assert!(world.allocations().allocations.is_empty());
}

fn state(netns: &netlink::Netns) -> String {
    sh(netns, "ip addr; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all")
}

#[test]
fn shared_vnics_of_a_virtual_machine_answer() {
    each_answers_on_its_own(Machine::Virtual, &[shared(Families::V4, 0)]);
    each_answers_on_its_own(Machine::Virtual, &[shared(Families::V6, 0)]);
    each_answers_on_its_own(Machine::Virtual, &[shared(Families::Dual, 0), shared(Families::Dual, 1)]);
}

#[test]
fn exclusive_vnics_of_a_virtual_machine_answer() {
    each_answers_on_its_own(Machine::Virtual, &[exclusive(Families::V4, 0)]);
    each_answers_on_its_own(Machine::Virtual, &[exclusive(Families::V6, 0)]);
    each_answers_on_its_own(Machine::Virtual, &[exclusive(Families::Dual, 0), exclusive(Families::Dual, 1)]);
}

#[test]
fn several_vnics_of_one_subnet_answer() {
    let vnics = [
        shared(Families::Dual, 0),
        exclusive(Families::Dual, 0),
        shared(Families::Dual, 0),
        exclusive(Families::V4, 0),
    ];
    each_answers_on_its_own(Machine::Virtual, &vnics);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn vnics_of_bare_metal_answer() {
    for families in [Families::V4, Families::V6, Families::Dual] {
        each_answers_on_its_own(Machine::BareMetal, &[shared(families, 0), exclusive(families, 1)]);
    }
    each_answers_on_its_own(Machine::BareMetal, &[exclusive(Families::Dual, 0), exclusive(Families::Dual, 0)]);
}

#[test]
fn interface_gets_default_route_only_on_request() {
    for vnic in [shared(Families::Dual, 0), exclusive(Families::Dual, 0)] {
        let world = World::new(Machine::Virtual, &[vnic]);
        let (plain, pod) = (world.pod("a", 5), world.pod("b", 6));
        world.add(&plain, "v0");
        let leaves_by = |pod: &crate::world::Pod| {
            OUTSIDE.map(|to| {
                let route = sh(&pod.netns, &format!("ip route get {to}"));
                route.split("dev ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
            })
        };
        assert_eq!(leaves_by(&plain), ["eth0", "eth0"]);
        world.del(&plain);
        world.add(&pod, r#"[{"vnic": "v0", "defaultRoute": true}]"#);
        assert_eq!(leaves_by(&pod), ["net1", "net1"]);
        assert!(reaches_from(&world.host, HOST[0], "10.9.0.6"), "the pod's own address answers on its own interface");
        assert!(reaches_from(&world.host, HOST[1], "fd00:9::6"));
        world.del(&pod);
        assert_eq!(leaves_by(&pod), ["eth0", "eth0"]);
    }
}

#[test]
fn vnic_routes_use_its_interface_unless_pod_has_such_addresses() {
    let world = World::new(Machine::Virtual, &[shared(Families::V4, 0), exclusive(Families::V4, 9)]);
    let pod = world.pod("a", 5);
    let mut pools = world.pools();
    for vnic in &mut pools {
        let route = vcn::VnicRoute { destination: "10.9.0.0/16".parse().unwrap(), via: None };
        vnic.attach.as_mut().unwrap().routes.push(route);
    }
    world.write_pools(pools);
    world.add(&pod, "v0,v1");
    let main = sh(&pod.netns, "ip route");
    assert!(main.contains("192.0.2.0/24 via 169.254.1.1 dev net1"), "{main}");
    assert!(main.contains("10.0.9.0/24 dev net2") && !main.contains("10.9.0.0/16"), "{main}");
    let second = sh(&pod.netns, "ip route show table 1001");
    assert!(second.contains("10.9.0.0/16 via 10.0.9.1 dev net2"), "{second}");
}
