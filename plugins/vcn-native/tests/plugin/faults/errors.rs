//! Any one system call of a verb fails: the request is refused, or done and its answer lost; a file cannot be opened,
//! read, written or renamed. Either the verb copes, or it answers one error and the node is as it was.

use host_harness::{Call, Fault, PATIENCE, assert_success, sample, within};
use netlink::Sysctls;

use crate::faults::scene::{End, Scene, end};
use crate::faults::traced::{Failure, on_each};
use crate::node::Pod;

/// What is written in the pod.
const IN_POD: &str = "/proc/sys/net/ipv6/conf/eth0/disable_ipv6";

/// What talks to the kernel about the network.
const NEEDED_TO_UNDO: &[&str] = &["socket", "setsockopt", "sendto", "recvfrom", "ioctl", "clone3", "clone", "setns"];

/// How a call may fail. Memory is left out: a program that gets none dies, which is a test of its own.
fn errors(call: &Call) -> &'static [&'static str] {
    match call.name.as_str() {
        "sendto" | "sendmsg" => &["ENOMEM", "EPERM"],
        "recvfrom" | "recvmsg" => &["ENOBUFS", "EIO"],
        "openat" => &["EMFILE", "EACCES"],
        "read" | "getdents64" | "fsync" | "fdatasync" | "rename" | "renameat" | "renameat2" => &["EIO"],
        "write" | "mkdir" | "mkdirat" => &["ENOSPC"],
        "flock" => &["ENOLCK"],
        "setns" | "ioctl" => &["EPERM"],
        "socket" => &["EMFILE"],
        "setsockopt" => &["ENOPROTOOPT"],
        "statx" | "fstatfs" | "unlink" | "unlinkat" => &["EACCES"],
        "poll" | "ppoll" => &["ENOMEM"],
        "clone3" | "clone" => &["EAGAIN"],
        _ => &[],
    }
}

/// Every call with every way it may fail, or a sample of them.
fn cases(calls: &[Call], every: usize) -> Vec<Failure> {
    let failures =
        |call: &Call| errors(call).iter().map(|error| Failure { call: call.clone(), error }).collect::<Vec<_>>();
    sample(calls.iter().flat_map(failures).collect(), every)
}

/// One ADD that a fault befalls, and what follows. Whether the run came to the call.
fn failing_add(scene: &Scene, pod: &Pod, failure: &Failure, case: &str) -> bool {
    let cooldown = scene.cooldown();
    let outcome = scene.run("ADD", pod).with(&failure.call, Fault::Error(failure.error));
    match end(&outcome.output, case) {
        End::Success => assert!(scene.works(pod), "{case}"),
        End::Error => {
            scene.assert_as_before(case);
            scene.assert_only_one_freed_since(&cooldown, case);
            let again = scene.run("ADD", pod).plain();
            assert!(again.status.success(), "{case}: {}", String::from_utf8_lossy(&again.stdout));
            assert!(scene.works(pod), "{case}");
        }
        End::Died => assert!(outcome.may_die, "{case}: no answer, {:?}", outcome.output),
    }
    let cooldown = scene.cooldown();
    scene.delete(pod, case);
    scene.assert_only_one_freed_since(&cooldown, case);
    outcome.hit
}

/// A verb that takes down, and a fault befalls it: at the latest the next one leaves nothing.
fn failing_end(scene: &Scene, verb: &str, failure: &Failure, case: &str) -> bool {
    let pod = scene.old_pod(case);
    let cooldown = scene.cooldown();
    let run = scene.run(verb, &pod);
    let outcome = run.with(&failure.call, Fault::Error(failure.error));
    match end(&outcome.output, case) {
        End::Success => {}
        End::Error => {
            let again = run.plain();
            assert!(again.status.success(), "{case}: {}", String::from_utf8_lossy(&again.stdout));
        }
        End::Died => panic!("{case}: no answer"),
    }
    scene.assert_as_before(case);
    scene.assert_only_one_freed_since(&cooldown, case);
    outcome.hit
}

/// A verb about the resident that a fault befalls changes nothing.
fn harmless(scene: &Scene, verb: &str, failure: &Failure, case: &str) -> bool {
    let cooldown = scene.cooldown();
    let outcome = scene.run(verb, scene.resident()).with(&failure.call, Fault::Error(failure.error));
    assert!(outcome.may_die || end(&outcome.output, case) != End::Died, "{case}");
    scene.assert_as_before(case);
    assert!(scene.freed_since(&cooldown, case).is_empty(), "{case}");
    outcome.hit
}

#[test]
fn add_restores_node_state_when_any_call_fails() {
    let calls = Scene::new().calls_of_add(None, |_| ());
    on_each(&cases(&calls, 4), |scene, failure, case| failing_add(scene, &Pod::new("pod"), failure, case));
}

#[test]
fn add_restores_node_state_when_enabling_pod_ipv6_fails() {
    let calls = Scene::new().calls_of_add(Some(IN_POD), switch_ipv6_off);
    assert!(calls.iter().any(|call| call.line.starts_with("write(")), "{calls:#?}");
    on_each(&cases(&calls, 2), |scene, failure, case| {
        let pod = Pod::new("pod");
        switch_ipv6_off(&pod);
        failing_add(scene, &pod, failure, case)
    });
}

#[test]
fn repeated_add_keeps_running_pod_when_any_call_fails() {
    let scene = Scene::new();
    let calls = scene.run("ADD", scene.resident()).calls(None);
    on_each(&cases(&calls, 4), |scene, failure, case| {
        let hit = harmless(scene, "ADD", failure, case);
        scene.assert_resident_works();
        hit
    });
}

#[test]
fn add_without_index_keeps_running_pods_when_any_call_fails() {
    let scene = Scene::new();
    scene.lose_record();
    let calls = scene.run("ADD", &Pod::new("pod")).calls(None);
    on_each(&cases(&calls, 6), |scene, failure, case| {
        scene.lose_record();
        failing_add(scene, &Pod::new("pod"), failure, case)
    });
}

#[test]
fn a_del_of_which_any_call_fails_can_be_repeated() {
    let scene = Scene::new();
    let calls = scene.run("DEL", &scene.old_pod("first")).calls(None);
    on_each(&cases(&calls, 2), |scene, failure, case| failing_end(scene, "DEL", failure, case));
}

#[test]
fn a_gc_of_which_any_call_fails_can_be_repeated() {
    let scene = Scene::new();
    let calls = scene.run("GC", &scene.old_pod("first")).calls(None);
    on_each(&cases(&calls, 3), |scene, failure, case| failing_end(scene, "GC", failure, case));
}

/// Of all processes of a DEL only the one that removes the link calls close_range, before it does.
#[test]
fn del_removes_link_itself_when_its_child_dies() {
    let scene = Scene::new();
    // Without its namespace the kernel would remove the link by itself, sooner or later.
    let pod = scene.old_pod("pod");
    let (output, killed) = scene.run("DEL", &pod).with_a_child_killed_at("close_range");
    assert!(killed, "the link was not removed for it");
    assert_success(&output);
    scene.assert_as_before("DEL");
}

/// After a second the DEL removes the link itself. The child, which has let go of the lock, sends its request when the next
/// pod's link has the same name.
#[test]
fn late_del_child_keeps_new_link_of_same_name() {
    let scene = Scene::new();
    let pod = scene.old_pod("pod");
    let run = scene.run("DEL", &pod);
    std::thread::scope(|scope| {
        let del = scope.spawn(|| run.with_a_child_late_at_its_second("close_range", 6));
        let held = || scene.node.allocations().allocations;
        let gone = || held().iter().all(|held| held.key.container_id.as_str() != pod.id);
        assert!(within(PATIENCE, gone), "the DEL never ended");
        assert_success(&scene.run("ADD", &pod).plain());
        assert!(!del.is_finished(), "too late to see anything");
        assert!(scene.works(&pod));
        assert_success(&del.join().unwrap());
        assert!(scene.works(&pod));
    });
    scene.delete(&pod, "the child has ended");
}

#[test]
fn check_and_status_change_nothing_when_any_call_fails() {
    let scene = Scene::new();
    for verb in ["CHECK", "STATUS"] {
        let calls = scene.run(verb, scene.resident()).calls(None);
        on_each(&cases(&calls, 5), |scene, failure, case| harmless(scene, verb, failure, case));
    }
}

fn switch_ipv6_off(pod: &Pod) {
    let off = || Sysctls::default().write("net/ipv6/conf/default/disable_ipv6", "1");
    pod.netns.run(off).unwrap().unwrap();
}

/// A full or read-only disk, a kernel out of memory: nothing more succeeds, so nothing can be undone that needs it.
#[test]
fn del_removes_everything_after_add_with_persistent_failure() {
    let calls = Scene::new().calls_of_add(None, |_| ());
    on_each(&cases(&calls, 4), |scene, failure, case| {
        let pod = Pod::new("pod");
        let cooldown = scene.cooldown();
        let outcome = scene.run("ADD", &pod).with(&failure.call, Fault::ErrorFromThen(failure.error));
        match end(&outcome.output, case) {
            End::Success => assert!(scene.works(&pod), "{case}"),
            // The disk is not needed to take a network down.
            End::Error if !NEEDED_TO_UNDO.contains(&failure.call.name.as_str()) => scene.assert_network_as_before(case),
            End::Error => {}
            // Where nothing can be written to any file, the answer cannot be either.
            End::Died => {
                assert!(outcome.may_die || failure.call.name == "write", "{case}: no answer, {:?}", outcome.output)
            }
        }
        scene.delete(&pod, case);
        scene.assert_only_one_freed_since(&cooldown, case);
        outcome.hit
    });
}
