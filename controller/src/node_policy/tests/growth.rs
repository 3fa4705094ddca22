//! Growths of root disks keep canary, soak, budget, failures, `paused` and the stop switch, and a report changes nothing.

use std::time::Duration;

use serde_json::{Value, json};
use tunables::ItemReport;

use super::world::{Cluster, policy};
use crate::operations::Growth;

const AGENTS: usize = 12;
const INTERVAL: Duration = Duration::from_secs(30);

fn growing(spec: &Value) -> api::NodePolicy {
    let mut whole = json!({ "settings": { "rootDisk": "Grow" },
        "rollout": { "canary": { "soakSeconds": 60 }, "soakSeconds": 15, "maxUnavailable": 3 } });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    policy("disks", &whole)
}

/// A cluster whose disks have unused space.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(AGENTS, INTERVAL);
    cluster.agents.iter_mut().for_each(|agent| agent.is_unused = true);
    cluster
}

fn running(cluster: &Cluster) -> usize {
    cluster.tasks.values().filter(|task| matches!(task.growth, Growth::Running(_))).count()
}

/// The tasks that run end; after a success the agent sees a larger file system.
fn end(cluster: &mut Cluster, end: &Growth) {
    for (node, name) in cluster.grown.clone() {
        if let Some(task) = cluster.tasks.get_mut(&name).filter(|task| matches!(task.growth, Growth::Running(_))) {
            task.growth = end.clone();
            let agent = cluster.agents.iter_mut().find(|agent| agent.view.name == node).unwrap();
            agent.is_unused = *end != Growth::Succeeded;
        }
    }
}

fn items(cluster: &Cluster) -> Vec<ItemReport> {
    cluster.engine.one("disks").unwrap().nodes.into_iter().flat_map(|node| node.items).collect()
}

#[test]
fn canary_grows_first_and_others_follow_in_the_budget() {
    let mut cluster = cluster();
    cluster.apply(growing(&json!({})));
    cluster.until(300, "the canary grows", |cluster| !cluster.tasks.is_empty());
    cluster.run(600);
    assert_eq!(cluster.tasks.len(), 1, "others wait for the canary");
    end(&mut cluster, &Growth::Succeeded);
    cluster.run(30);
    assert_eq!(cluster.tasks.len(), 1, "the canary is watched after its growth");
    for _ in 0..100 {
        cluster.run(30);
        assert!(running(&cluster) <= 3, "{:?}", cluster.tasks);
        end(&mut cluster, &Growth::Succeeded);
    }
    assert_eq!(cluster.tasks.len(), AGENTS);
    assert!(cluster.status("disks").stable.is_some() && items(&cluster).is_empty());
    // Boot volumes that are enlarged later, all at once.
    cluster.tasks.clear();
    cluster.grown.clear();
    cluster.agents.iter_mut().for_each(|agent| agent.is_unused = true);
    cluster.run(120);
    assert_eq!(running(&cluster), 3);
}

#[test]
fn failed_growth_of_the_canary_rejects_the_revision() {
    let mut cluster = cluster();
    cluster.apply(growing(&json!({})));
    cluster.until(300, "the canary grows", |cluster| !cluster.tasks.is_empty());
    end(&mut cluster, &Growth::Failed("OperationFailed: oci-growfs ended".to_owned()));
    cluster.until(300, "it is rejected", |cluster| !cluster.status("disks").rejected.is_empty());
    let failing = cluster.status("disks").failing;
    assert_eq!((failing[0].item.as_str(), failing[0].reason.as_str()), ("rootDisk", "Failed"));
    cluster.run(900);
    assert_eq!(cluster.tasks.len(), 1);
}

#[test]
fn disk_without_free_space_is_no_failure() {
    let mut cluster = cluster();
    cluster.apply(growing(&json!({})));
    for _ in 0..100 {
        cluster.run(30);
        end(&mut cluster, &Growth::NotGrown("NotGrown: there is no free space".to_owned()));
    }
    assert_eq!(cluster.tasks.len(), AGENTS);
    assert!(cluster.status("disks").rejected.is_empty() && cluster.status("disks").stable.is_some());
    assert!(items(&cluster).iter().all(|item| item.message.starts_with("NotGrown: ")), "{:?}", items(&cluster));
}

#[test]
fn report_names_the_nodes_that_could_grow_and_changes_nothing() {
    let mut cluster = cluster();
    cluster.agents[0].is_unused = false;
    cluster.apply(growing(&json!({ "mode": "Report" })));
    cluster.run(900);
    assert!(cluster.tasks.is_empty());
    let items = items(&cluster);
    assert_eq!(items.len(), AGENTS - 1);
    assert!(items.iter().all(|item| item.item == "rootDisk" && item.message.contains("50.0 GiB")), "{items:?}");
    assert_eq!(cluster.status("disks").nodes.unwrap().drifted as usize, AGENTS - 1);
}

#[test]
fn nothing_grows_while_it_is_paused_stopped_or_not_granted() {
    for hold in ["paused", "stopped", "not granted"] {
        let mut cluster = cluster();
        cluster.apply(growing(&json!({})));
        cluster.until(300, "the canary grows", |cluster| !cluster.tasks.is_empty());
        end(&mut cluster, &Growth::Succeeded);
        match hold {
            "paused" => cluster.apply(growing(&json!({ "paused": true }))),
            "stopped" => cluster.stopped = Some("an incident".to_owned()),
            _ => cluster.is_growing_enabled = false,
        }
        cluster.run(900);
        assert_eq!(cluster.tasks.len(), 1, "{hold}");
        if hold == "not granted" {
            assert!(items(&cluster).iter().any(|item| item.message.contains("key tasks")), "{:?}", items(&cluster));
        }
    }
}

#[test]
fn no_node_grows_twice_when_leaders_die() {
    for lives in 0..60 {
        let mut cluster = cluster();
        cluster.apply(growing(&json!({})));
        cluster.lives = Some(lives);
        for _ in 0..60 {
            cluster.run(30);
            assert!(running(&cluster) <= 3, "{lives}");
            end(&mut cluster, &Growth::Succeeded);
        }
        assert_eq!(cluster.grown.len(), cluster.tasks.len(), "{lives}");
    }
}

#[test]
fn deleted_policy_undoes_nothing() {
    let mut cluster = cluster();
    cluster.apply(growing(&json!({})));
    cluster.until(300, "the canary grows", |cluster| !cluster.tasks.is_empty());
    let tasks = cluster.tasks.clone();
    cluster.delete("disks");
    cluster.until(600, "the policy is gone", |cluster| cluster.policies.is_empty());
    assert_eq!(cluster.tasks, tasks);
}
