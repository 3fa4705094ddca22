//! Any one system call of a verb fails: the request is refused, or done and its answer lost; a file cannot be opened,
//! read, written or renamed. Either the verb copes, or it answers one error and the node is as it was.

use netlink::Sysctls;

use crate::node::Pod;
use crate::scene::{End, Scene, end};
use crate::traced::{Call, Fault, on_each, sample};

/// What the thread that visits the pod writes.
const IN_POD: &str = "/proc/sys/net/ipv6/conf/eth0/disable_ipv6";

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
fn cases(calls: &[Call], every: usize) -> Vec<(Call, &'static str)> {
    sample(calls.iter().flat_map(|call| errors(call).iter().map(|error| (call.clone(), *error))).collect(), every)
}

/// Not to answer is excused where the answer itself cannot be written, and where the thread cannot come home from the
/// pod's namespace.
fn may_die(call: &Call) -> bool {
    call.line.starts_with("write(1,") || call.name == "setns"
}

/// One ADD that a fault befalls, and what follows. Whether the run came to the call.
fn failing_add(scene: &Scene, pod: &Pod, (call, error): &(Call, &'static str), case: &str) -> bool {
    let outcome = scene.run("ADD", pod).with(call, Fault::Error(error));
    match end(&outcome.output, case) {
        End::Success => assert!(scene.works(pod), "{case}"),
        End::Error => {
            scene.assert_as_before(case);
            let again = scene.run("ADD", pod).plain();
            assert!(again.status.success(), "{case}: {}", String::from_utf8_lossy(&again.stdout));
            assert!(scene.works(pod), "{case}");
        }
        End::Died => assert!(may_die(call), "{case}: no answer, {:?}", outcome.output),
    }
    scene.delete(pod, case);
    outcome.hit
}

/// A verb that takes down, and a fault befalls it: at the latest the next one leaves nothing.
fn failing_end(scene: &Scene, verb: &str, (call, error): &(Call, &'static str), case: &str) -> bool {
    let pod = scene.old_pod(case);
    let run = scene.run(verb, &pod);
    let outcome = run.with(call, Fault::Error(error));
    match end(&outcome.output, case) {
        End::Success => {}
        End::Error => {
            let again = run.plain();
            assert!(again.status.success(), "{case}: {}", String::from_utf8_lossy(&again.stdout));
        }
        End::Died => panic!("{case}: no answer"),
    }
    scene.assert_as_before(case);
    outcome.hit
}

#[test]
fn an_add_of_which_any_call_fails_leaves_the_node_as_it_was() {
    let calls = Scene::new().calls_of_add(None, |_| ());
    on_each(&cases(&calls, 4), |scene, failure, case| failing_add(scene, &Pod::new("pod"), failure, case));
}

#[test]
fn an_add_that_cannot_switch_ipv6_on_in_the_pod_leaves_the_node_as_it_was() {
    let calls = Scene::new().calls_of_add(Some(IN_POD), switch_ipv6_off);
    assert!(calls.iter().any(|call| call.line.starts_with("write(")), "{calls:#?}");
    on_each(&cases(&calls, 2), |scene, failure, case| {
        let pod = Pod::new("pod");
        switch_ipv6_off(&pod);
        failing_add(scene, &pod, failure, case)
    });
}

#[test]
fn an_add_that_finds_no_record_and_of_which_any_call_fails_spares_the_pods_that_run() {
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

#[test]
fn a_check_or_a_status_of_which_any_call_fails_changes_nothing() {
    let scene = Scene::new();
    for verb in ["CHECK", "STATUS"] {
        let calls = scene.run(verb, scene.resident()).calls(None);
        on_each(&cases(&calls, 5), |scene, (call, error), case| {
            let outcome = scene.run(verb, scene.resident()).with(call, Fault::Error(error));
            assert!(may_die(call) || end(&outcome.output, case) != End::Died, "{case}");
            scene.assert_as_before(case);
            outcome.hit
        });
    }
}

fn switch_ipv6_off(pod: &Pod) {
    let off = || Sysctls::default().write(&["net", "ipv6", "conf", "default", "disable_ipv6"], "1");
    pod.netns.run(off).unwrap().unwrap();
}
