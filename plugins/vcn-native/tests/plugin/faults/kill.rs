//! A run is killed at any of its system calls. It answers nothing and cleans nothing up; the next DEL must.

use host_harness::{Call, Fault, sample};

use crate::faults::scene::Scene;
use crate::faults::traced::{Failure, on_each};
use crate::node::Pod;

#[test]
fn an_add_killed_at_any_call_leaves_nothing_after_del() {
    let calls = Scene::new().calls_of_add(None, |_| ());
    on_each(&kills(calls, 4), |scene, failure, case| {
        let pod = Pod::new("pod");
        let cooldown = scene.cooldown();
        let hit = scene.run("ADD", &pod).with(&failure.call, Fault::Kill).hit;
        scene.delete(&pod, case);
        scene.assert_only_one_freed_since(&cooldown, case);
        hit
    });
}

#[test]
fn repeated_add_gives_working_pod_after_kill_at_any_call() {
    let calls = Scene::new().calls_of_add(None, |_| ());
    on_each(&kills(calls, 6), |scene, failure, case| {
        let pod = Pod::new("pod");
        let hit = scene.run("ADD", &pod).with(&failure.call, Fault::Kill).hit;
        let again = scene.run("ADD", &pod).plain();
        assert!(again.status.success(), "{case}: {}", String::from_utf8_lossy(&again.stdout));
        assert!(scene.works(&pod), "{case}");
        scene.delete(&pod, case);
        hit
    });
}

#[test]
fn second_del_removes_everything_after_kill_at_any_call() {
    killed("DEL", "DEL", 3);
}

#[test]
fn gc_or_del_removes_everything_after_killed_gc() {
    killed("GC", "GC", 6);
    killed("GC", "DEL", 6);
}

fn kills(calls: Vec<Call>, every: usize) -> Vec<Failure> {
    sample(calls.into_iter().map(|call| Failure { call, error: "SIGKILL" }).collect(), every)
}

fn killed(verb: &str, next: &str, every: usize) {
    let scene = Scene::new();
    let calls = scene.run(verb, &scene.old_pod("first")).calls(None);
    on_each(&kills(calls, every), |scene, failure, case| {
        let pod = scene.old_pod(case);
        let cooldown = scene.cooldown();
        let hit = scene.run(verb, &pod).with(&failure.call, Fault::Kill).hit;
        let output = scene.run(next, &pod).plain();
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stdout));
        scene.assert_as_before_killed(case);
        scene.assert_only_one_freed_since(&cooldown, case);
        hit
    });
}
