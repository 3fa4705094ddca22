//! A run that is killed at any of its system calls answers nothing and cleans nothing up. The next DEL does, and a repeated ADD
//! gives a pod that works.

use host_harness::{Call as SystemCall, Families, Fault, reaches_from, sample, sh};

use crate::world::{Call, Machine, PLUGIN, Pod, World, addresses, exclusive, shared};

/// The system calls of a run that change something, or are near to it: one in `every`.
fn calls(world: &World, call: &Call, every: usize) -> Vec<SystemCall> {
    const NEAR: &str = "sendto rename renameat renameat2 openat unlink unlinkat write setns fcntl";
    let mut calls = SystemCall::all(PLUGIN, None, |strace| world.spawn(strace, call).wait_with_output().unwrap());
    calls.retain(|call| NEAR.split(' ').any(|name| name == call.name));
    sample(calls, every)
}

/// Answers whether it was killed there.
fn kill(world: &World, call: &Call, at: &SystemCall) -> bool {
    at.inject(Fault::Kill, PLUGIN, |strace| world.spawn(strace, call).wait_with_output().unwrap()).hit
}

/// And the VNICs that a pod requests. Bare metal has the one whose VLAN link the plugin makes: guests are slow.
fn world(machine: Machine) -> (World, &'static str) {
    match machine {
        Machine::Virtual => (World::new(machine, &[shared(Families::V4, 0), exclusive(Families::Dual, 1)]), "v0,v1"),
        Machine::BareMetal => (World::new(machine, &[exclusive(Families::Dual, 0)]), "v0"),
    }
}

/// The pod has ended: no link of a VNIC is left in it, and nothing on the host.
fn assert_clean(world: &World, pod: &Pod, before: &str, when: &str) {
    let links = sh(&pod.netns, "ip -o link");
    assert!(!world.pools().iter().any(|vnic| links.contains(&vnic.mac.to_string())), "{when}: {links}");
    sh(&world.host, "ip link del prim5");
    assert_eq!(world.snapshot(), before, "{when}");
    assert!(world.allocations().allocations.is_empty(), "{when}");
}

fn killed_add_is_ended_by_del_or_completed_by_add(machine: Machine) {
    let (world, vnics) = world(machine);
    let before = world.snapshot();
    let pod = world.pod("first", 5);
    let at = calls(&world, &world.chained("ADD", &pod, Some(vnics)), 4);
    world.del(&pod);
    assert_clean(&world, &pod, &before, "not killed");
    let mut killed = 0;
    for (round, at) in at.iter().enumerate() {
        for again in [false, true] {
            let pod = world.pod(&format!("pod{round}{again}"), 5);
            killed += usize::from(kill(&world, &world.chained("ADD", &pod, Some(vnics)), at));
            if again {
                let result = world.add(&pod, vnics);
                for number in 0..world.routers.len() {
                    let own = addresses(&result, &format!("net{}", number + 1))[0].to_string();
                    let router = format!("10.0.{number}.1");
                    assert!(reaches_from(&pod.netns, &own, &router), "v{number}, killed at {at:?}");
                }
            }
            world.del(&pod);
            assert_clean(&world, &pod, &before, &format!("killed at {at:?}, {again}"));
        }
    }
    assert!(killed > 5);
}

fn killed_del_is_completed_by_the_next(machine: Machine) {
    let (world, vnics) = world(machine);
    let before = world.snapshot();
    let pod = world.pod("first", 5);
    world.add(&pod, vnics);
    let at = calls(&world, &world.chained("DEL", &pod, None), 3);
    assert_clean(&world, &pod, &before, "not killed");
    let mut killed = 0;
    for (round, at) in at.iter().enumerate() {
        let pod = world.pod(&format!("pod{round}"), 5);
        world.add(&pod, vnics);
        killed += usize::from(kill(&world, &world.chained("DEL", &pod, None), at));
        world.del(&pod);
        assert_clean(&world, &pod, &before, &format!("killed at {at:?}"));
        let next = world.pod(&format!("next{round}"), 5);
        world.add(&next, vnics);
        world.del(&next);
        sh(&world.host, "ip link del prim5");
    }
    assert!(killed > 5);
}

#[test]
fn killed_add_on_virtual_machine_leaves_nothing() {
    killed_add_is_ended_by_del_or_completed_by_add(Machine::Virtual);
}

#[test]
fn killed_del_on_virtual_machine_leaves_nothing() {
    killed_del_is_completed_by_the_next(Machine::Virtual);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn killed_add_on_bare_metal_leaves_no_vlan_link() {
    killed_add_is_ended_by_del_or_completed_by_add(Machine::BareMetal);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn killed_del_on_bare_metal_leaves_no_vlan_link() {
    killed_del_is_completed_by_the_next(Machine::BareMetal);
}
