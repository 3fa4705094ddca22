//! Large fleets: how long a rollout takes, and how much it writes.

use std::time::{Duration, Instant};

use serde_json::json;

use super::world::{Cluster, policy};

/// Rolls two revisions out on so many simulated agents: seconds of the second one, and its status writes.
fn rolled_out(agents: usize) -> (u64, usize) {
    let mut cluster = Cluster::new(agents, Duration::from_secs(240));
    let rollout = json!({ "canary": { "soakSeconds": 60 }, "soakSeconds": 15, "maxUnavailable": "5%" });
    let value = |value: &str| {
        policy("web", &json!({ "rollout": rollout, "settings": { "sysctls": { "vm.swappiness": value } } }))
    };
    cluster.apply(value("10"));
    let is_done = |cluster: &Cluster| {
        let status = cluster.status("web");
        status.stable.is_some_and(|stable| stable.revision == status.target) && cluster.progress("web") == "Done"
    };
    cluster.until(1200, "the first revision is on all nodes", is_done);
    let first = cluster.status("web").target;
    cluster.apply(value("20"));
    (cluster.writes, cluster.most_moving) = (0, 0);
    let seconds = cluster.until(1200, "the second revision is on all nodes", |cluster| {
        cluster.status("web").target != first && is_done(cluster)
    });
    let (target, writes) = (cluster.status("web").target, cluster.writes);
    assert_eq!(cluster.having("web", &target), agents);
    assert!(cluster.most_moving <= agents / 20, "{}", cluster.most_moving);
    cluster.run(900);
    assert!(cluster.writes - writes <= 1, "{} writes at rest", cluster.writes - writes);
    (seconds, writes)
}

#[test]
fn rollout_on_a_thousand_agents_is_quick_and_quiet() {
    let (seconds, writes) = rolled_out(1000);
    assert!(seconds <= 900 && writes <= 100, "{seconds} s, {writes} writes");
}

#[test]
#[ignore = "a measurement: make scale"]
fn rollout_on_ten_thousand_agents_takes_fifteen_minutes() {
    let began = Instant::now();
    let (seconds, writes) = rolled_out(10_000);
    let memory = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = memory.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("10,000 agents: {seconds} s, {writes} status writes, simulated in {:?}; {most}", began.elapsed());
    assert!(seconds <= 900 && writes <= 100, "{seconds} s, {writes} writes");
}
