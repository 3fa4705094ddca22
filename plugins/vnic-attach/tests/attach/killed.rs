//! A run that is killed at any of its system calls answers nothing and cleans nothing up. The next DEL does, and a repeated ADD
//! gives a pod that works.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::world::{Call, Families, Machine, PLUGIN, World, addresses, exclusive, json_of, reaches, sh, shared};

/// A system call of a run.
#[derive(Debug)]
struct SystemCall {
    name: String,
    /// Its number among the calls of that name, from 1.
    number: usize,
}

/// The system calls of a run that change something, or are near to it.
fn calls(world: &World, call: &Call) -> Vec<SystemCall> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace.args([
        "--quiet=all",
        "--trace=sendto,rename,renameat,renameat2,openat,unlink,unlinkat,write,setns,fcntl",
        "--output",
    ]);
    strace.arg(log.path()).arg(PLUGIN);
    json_of(&world.spawn(strace, call).wait_with_output().unwrap());
    let mut made = std::collections::HashMap::new();
    let text = std::fs::read_to_string(&log).unwrap();
    let named = text.lines().filter_map(|line| line.split_once('(')).map(|(name, _)| {
        let nth = made.entry(name.to_owned()).or_insert(0);
        *nth += 1;
        SystemCall { name: name.to_owned(), number: *nth }
    });
    named.collect()
}

/// Answers whether it was killed there.
fn kill(world: &World, call: &Call, SystemCall { name, number }: &SystemCall) -> bool {
    let mut strace = Command::new("strace");
    strace.args(["--quiet=all", "--output=/dev/null"]).arg(format!("--trace={name}"));
    strace.arg(format!("--inject={name}:signal=SIGKILL:when={number}")).arg(PLUGIN);
    let output = world.spawn(strace, call).wait_with_output().unwrap();
    output.status.signal() == Some(nix::libc::SIGKILL)
}

fn world() -> World {
    World::new(Machine::Virtual, &[shared(Families::V4, 0), exclusive(Families::Dual, 1)])
}

/// One in so many, from another one on at each run; in a soak (`SOAK=1`) all.
fn sample(calls: Vec<SystemCall>, every: usize) -> Vec<SystemCall> {
    if std::env::var_os("SOAK").is_some() {
        return calls;
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    calls.into_iter().skip(usize::try_from(now).unwrap() % every).step_by(every).collect()
}

#[test]
fn killed_add_is_ended_by_del_or_completed_by_add() {
    let world = world();
    let before = world.snapshot();
    let pod = world.pod("first", 5);
    let at = calls(&world, &world.chained("ADD", &pod, Some("v0,v1")));
    world.del(&pod);
    sh(&world.host, "ip link del prim5");
    assert_eq!(world.snapshot(), before);
    let mut killed = 0;
    for (round, at) in sample(at, 4).iter().enumerate() {
        for again in [false, true] {
            let pod = world.pod(&format!("pod{round}{again}"), 5);
            killed += usize::from(kill(&world, &world.chained("ADD", &pod, Some("v0,v1")), at));
            if again {
                let result = world.add(&pod, "v0,v1");
                for (interface, router) in [("net1", "10.0.0.1"), ("net2", "10.0.1.1")] {
                    let own = addresses(&result, interface)[0].to_string();
                    assert!(reaches(&pod.netns, &own, router), "{interface}, killed at {at:?}");
                }
            }
            world.del(&pod);
            sh(&world.host, "ip link del prim5");
            assert_eq!(world.snapshot(), before, "killed at {at:?}, {again}");
            assert!(world.allocations().allocations.is_empty(), "{at:?}");
        }
    }
    assert!(killed > 5);
}

#[test]
fn a_del_killed_anywhere_is_completed_by_the_next() {
    let world = world();
    let before = world.snapshot();
    let pod = world.pod("first", 5);
    world.add(&pod, "v0,v1");
    let at = calls(&world, &world.chained("DEL", &pod, None));
    sh(&world.host, "ip link del prim5");
    let mut killed = 0;
    for (round, at) in sample(at, 3).iter().enumerate() {
        let pod = world.pod(&format!("pod{round}"), 5);
        world.add(&pod, "v0,v1");
        killed += usize::from(kill(&world, &world.chained("DEL", &pod, None), at));
        world.del(&pod);
        sh(&world.host, "ip link del prim5");
        assert_eq!(world.snapshot(), before, "killed at {at:?}");
        assert!(world.allocations().allocations.is_empty(), "{at:?}");
        let next = world.pod(&format!("next{round}"), 5);
        world.add(&next, "v1");
        world.del(&next);
        sh(&world.host, "ip link del prim5");
    }
    assert!(killed > 5);
}
