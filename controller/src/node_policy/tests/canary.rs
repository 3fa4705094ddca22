//! A mistake reaches the canary and no other node, whatever it breaks and whenever the leader dies.

use std::time::Duration;

use serde_json::json;

use super::world::{BAD, Cluster, Fault, policy};

const AGENTS: usize = 40;
const INTERVAL: Duration = Duration::from_secs(30);

fn rollout() -> serde_json::Value {
    json!({ "canary": { "soakSeconds": 60 }, "soakSeconds": 15, "maxUnavailable": 4 })
}

fn good() -> api::NodePolicy {
    policy("web", &json!({ "rollout": rollout() }))
}

fn bad() -> api::NodePolicy {
    policy("web", &json!({ "rollout": rollout(), "settings": { "sysctls": { "vm.swappiness": BAD } } }))
}

/// A cluster where all nodes have the policy, and break with the bad value.
fn settled(fault: Fault) -> (Cluster, String) {
    let mut cluster = Cluster::new(AGENTS, INTERVAL);
    cluster.apply(good());
    cluster.until(1200, "all nodes have it", |cluster| cluster.status("web").stable.is_some());
    let stable = cluster.status("web").target;
    assert_eq!(cluster.having("web", &stable), AGENTS);
    cluster.agents.iter_mut().for_each(|agent| agent.fault = Some(fault));
    (cluster, stable)
}

/// How many nodes ever had the bad revision, when all is over.
fn reached(cluster: &Cluster, target: &str) -> usize {
    cluster.agents.iter().filter(|agent| agent.ever.contains(target)).count()
}

#[test]
fn failing_canary_is_the_only_node_with_the_revision() {
    for fault in [Fault::Item, Fault::NotReady, Fault::Problem, Fault::Silence] {
        let (mut cluster, stable) = settled(fault);
        cluster.apply(bad());
        cluster.until(900, "it is rejected", |cluster| !cluster.status("web").rejected.is_empty());
        let target = cluster.status("web").target;
        assert_eq!(cluster.status("web").rejected, target, "{fault:?}");
        cluster.run(900);
        assert_eq!(reached(&cluster, &target), 1, "{fault:?}");
        // One that does not answer any more cannot be taken back.
        let back = if fault == Fault::Silence { AGENTS - 1 } else { AGENTS };
        assert_eq!(cluster.having("web", &stable), back, "{fault:?}");
        assert_eq!(cluster.status("web").failing.len(), 1, "{fault:?}");
    }
}

#[test]
fn failing_canary_stays_alone_when_the_leader_dies_at_any_step() {
    for fault in [Fault::Item, Fault::NotReady, Fault::Silence] {
        let mut survived = 0;
        // What differs between faults are few of the steps.
        for lives in (0..60).step_by(if fault == Fault::Item { 1 } else { 3 }) {
            let (mut cluster, stable) = settled(fault);
            cluster.apply(bad());
            cluster.lives = Some(lives);
            cluster.until(2400, "it is rejected", |cluster| !cluster.status("web").rejected.is_empty());
            let target = cluster.status("web").target;
            cluster.run(400);
            assert_eq!(reached(&cluster, &target), 1, "{fault:?}, {lives} actions");
            let back = if fault == Fault::Silence { AGENTS - 1 } else { AGENTS };
            assert_eq!(cluster.having("web", &stable), back, "{fault:?}, {lives} actions");
            assert_eq!(cluster.status("web").rejected, target, "{fault:?}, {lives} actions");
            survived += usize::from(cluster.lives.is_some());
            if survived > 1 {
                break;
            }
        }
        assert!(survived > 1, "{fault:?}: the leader died at each step");
    }
}

#[test]
fn good_revision_reaches_all_nodes_when_the_leader_dies_at_any_step() {
    let mut lives = 0;
    loop {
        let (mut cluster, before) = settled(Fault::Item);
        cluster.agents.iter_mut().for_each(|agent| agent.fault = None);
        cluster.apply(bad());
        cluster.lives = Some(lives);
        cluster.most_moving = 0;
        cluster.until(3600, "all nodes have it", |cluster| {
            let status = cluster.status("web");
            let stable = status.stable.map(|stable| stable.revision);
            status.target != before
                && stable.as_ref() == Some(&status.target)
                && cluster.having("web", &status.target) == AGENTS
        });
        assert!(cluster.lives.is_some() || cluster.most_moving > 0);
        if cluster.lives.is_some() {
            break;
        }
        // Some of them: the steps are alike.
        lives += 7;
    }
    assert!(lives > 60, "{lives}");
}

#[test]
fn rejection_that_another_leader_wrote_is_honored() {
    let (mut cluster, stable) = settled(Fault::Item);
    let bad = bad();
    let target = tunables::revision::of_policy(bad.spec.mode, bad.spec.priority(), &bad.spec.settings);
    let mut foreign = cluster.status("web");
    (foreign.target, foreign.rejected) = (target.clone(), target.clone());
    foreign.canaries = vec!["n7".to_owned()];
    cluster.foreign = Some(foreign);
    cluster.apply(bad);
    cluster.run(600);
    assert_eq!((reached(&cluster, &target), cluster.having("web", &stable)), (0, AGENTS));
    assert_eq!((cluster.status("web").rejected, cluster.progress("web").as_str()), (target, "Rejected"));
}

#[test]
fn stop_switch_keeps_everything_as_it_is() {
    let (mut cluster, stable) = settled(Fault::Item);
    cluster.apply(bad());
    cluster.until(60, "the canary has it", |cluster| cluster.having("web", &stable) < AGENTS);
    cluster.stopped = Some("alice: stop".to_owned());
    cluster.run(1200);
    assert_eq!(cluster.having("web", &stable), AGENTS - 1, "no rollback either");
    assert_eq!((cluster.progress("web").as_str(), cluster.status("web").rejected.is_empty()), ("Stopped", false));
    let writes = cluster.writes;
    cluster.run(600);
    assert_eq!(cluster.writes, writes);
    cluster.stopped = None;
    cluster.until(60, "it is rolled back", |cluster| cluster.having("web", &stable) == AGENTS);
}
