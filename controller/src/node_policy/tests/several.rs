//! Several policies, relabelled nodes, deletion, reports and old agents.

use std::time::Duration;

use serde_json::json;

use super::world::{BAD, Cluster, Fault, policy};

const INTERVAL: Duration = Duration::from_secs(30);

fn fast() -> serde_json::Value {
    json!({ "canary": { "soakSeconds": 30 }, "soakSeconds": 10, "maxUnavailable": 2 })
}

fn settled(nodes: usize) -> Cluster {
    let mut cluster = Cluster::new(nodes, INTERVAL);
    cluster.apply(policy("web", &json!({ "rollout": fast() })));
    cluster.until(600, "all nodes have it", |cluster| cluster.status("web").stable.is_some());
    cluster.most_moving = 0;
    cluster
}

#[test]
fn report_reaches_all_nodes_at_once_and_changes_nothing() {
    let mut cluster = Cluster::new(10, INTERVAL);
    cluster.apply(policy("web", &json!({ "mode": "Report" })));
    let seconds = cluster
        .until(300, "drift is counted", |cluster| cluster.status("web").nodes.is_some_and(|nodes| nodes.drifted == 10));
    assert!(seconds <= 90, "{seconds}");
    assert!(cluster.agents.iter().all(|agent| agent.value("vm.swappiness").is_none()));
    assert_eq!(cluster.progress("web"), "Done");
    // Then one node, and the second one after the soak.
    cluster.apply(policy("web", &json!({ "rollout": fast() })));
    let having = |cluster: &Cluster| cluster.agents.iter().filter(|it| it.value("vm.swappiness").is_some()).count();
    let first = cluster.until(30, "the canary has the value", |cluster| having(cluster) == 1);
    assert!(first <= 30, "{first}");
    cluster.run(28);
    assert_eq!(having(&cluster), 1);
    cluster.until(400, "all have the value", |cluster| having(cluster) == 10);
}

#[test]
fn deleted_policy_is_undone_within_the_window() {
    let mut cluster = settled(10);
    cluster.agent("n3").is_silent = true;
    cluster.run(400);
    cluster.delete("web");
    let seconds = cluster.until(600, "the object is gone", |cluster| !cluster.policies.contains_key("web"));
    // One is silent, so one of nine is undone at a time, and watched.
    assert!(seconds >= 8 * 10, "{seconds}");
    let left: Vec<&str> = cluster
        .agents
        .iter()
        .filter(|agent| !agent.document.policies.is_empty())
        .map(|agent| agent.view.name.as_str())
        .collect();
    assert_eq!(left, ["n3"]);
    cluster.agent("n3").is_silent = false;
    cluster.until(120, "it is undone when it is back", |cluster| {
        cluster.agents.iter().all(|agent| agent.document.policies.is_empty())
    });
}

#[test]
fn deleted_policy_with_keep_is_gone_within_seconds() {
    let mut cluster = settled(10);
    cluster.apply(policy("web", &json!({ "rollout": fast(), "onDelete": "Keep" })));
    cluster.run(30);
    cluster.delete("web");
    cluster.until(30, "the object is gone", |cluster| !cluster.policies.contains_key("web"));
    assert!(cluster.agents.iter().all(|agent| agent.document.policies.is_empty()));
    assert!(cluster.agents.iter().all(|agent| agent.document.revision.len() == 16));
}

#[test]
fn relabelled_node_loses_the_policy_and_keeps_the_other() {
    let mut cluster = Cluster::new(4, INTERVAL);
    let selector = json!({ "matchExpressions": [{ "key": "pool", "operator": "DoesNotExist" }] });
    cluster.apply(policy("web", &json!({ "rollout": fast(), "allNodes": false, "nodeSelector": selector })));
    let other = json!({ "rollout": fast(), "settings": { "sysctls": { "vm.dirty_ratio": "5" } } });
    cluster.apply(policy("base", &other));
    cluster.until(900, "both are on all nodes", |cluster| {
        cluster.agents.iter().all(|it| it.value("vm.swappiness").is_some() && it.value("vm.dirty_ratio").is_some())
    });
    cluster.agent("n2").view.labels = [("pool".to_owned(), "db".to_owned())].into_iter().collect();
    cluster.until(60, "it has only the other", |cluster| {
        let node = cluster.agents.iter().find(|agent| agent.view.name == "n2").unwrap();
        node.value("vm.swappiness").is_none() && node.value("vm.dirty_ratio") == Some("5")
    });
    assert_eq!(cluster.status("base").rejected, "");
}

#[test]
fn two_rollouts_do_not_change_the_same_node_together() {
    let mut cluster = settled(12);
    cluster.apply(policy("base", &json!({ "rollout": fast(), "settings": { "sysctls": { "vm.dirty_ratio": "5" } } })));
    cluster.apply(policy("web", &json!({ "rollout": fast(), "settings": { "sysctls": { "vm.swappiness": "20" } } })));
    let mut most = 0;
    cluster.until(1800, "both are done", |cluster| {
        most = most.max(cluster.most_moving);
        ["base", "web"].iter().all(|name| {
            let status = cluster.status(name);
            status.stable.is_some_and(|stable| stable.revision == status.target)
        })
    });
    assert!(most <= 2, "{most} nodes changed at the same time");
}

#[test]
fn younger_policy_of_the_same_priority_reports_its_conflict() {
    let mut cluster = settled(4);
    let mut younger =
        policy("younger", &json!({ "rollout": fast(), "settings": { "sysctls": { "vm.swappiness": "90" } } }));
    younger.metadata.creation_timestamp = serde_json::from_value(json!("2026-11-02T00:00:00Z")).unwrap();
    cluster.apply(younger);
    cluster.until(900, "the conflict is counted", |cluster| {
        cluster.status("younger").nodes.is_some_and(|nodes| nodes.conflicted == 4)
    });
    let status = cluster.status("younger");
    let applied = api::condition::find(&status.conditions, api::ConditionType::Applied).unwrap();
    assert_eq!((applied.reason.as_str(), applied.message.as_str()), ("Conflict", "vm.swappiness is set by web"));
    assert!(cluster.agents.iter().all(|agent| agent.value("vm.swappiness") == Some("10")));
    assert_eq!(cluster.status("web").nodes.unwrap().conflicted, 0);
}

#[test]
fn agent_that_knows_no_files_gets_the_rest_and_is_no_failure() {
    let mut cluster = Cluster::new(3, INTERVAL);
    let files = json!([{ "path": "/etc/sysctl.d/90-web.conf", "content": "vm.swappiness = 10\n" }]);
    let settings = json!({ "sysctls": { "vm.swappiness": "10" }, "files": files });
    cluster.apply(policy("web", &json!({ "rollout": fast(), "settings": settings })));
    cluster.until(120, "the canary has the key", |cluster| {
        cluster.agents.iter().any(|agent| agent.value("vm.swappiness").is_some())
    });
    cluster.run(120);
    assert!(cluster.agents.iter().all(|agent| agent.document.files.is_empty()));
    let status = cluster.status("web");
    assert_eq!((status.nodes.unwrap().target, status.nodes.unwrap().failed), (1, 0), "others wait for the canary");
    let applied = api::condition::find(&status.conditions, api::ConditionType::Applied).unwrap();
    assert_eq!(applied.reason, "Unsupported");
    assert!(applied.message.contains("Update the agent"), "{}", applied.message);
    // After the upgrade all nodes get the files, the canary first.
    cluster.agents.iter_mut().for_each(|agent| agent.takes_files = true);
    cluster
        .until(600, "all have the files", |cluster| cluster.agents.iter().all(|agent| agent.document.files.len() == 1));
    cluster.until(120, "it is stable", |cluster| cluster.status("web").stable.is_some());
}

#[test]
fn agent_of_an_earlier_release_is_unsupported_and_no_failure() {
    let mut cluster = Cluster::new(3, INTERVAL);
    cluster.agent("n1").is_supporting = false;
    cluster.apply(policy("web", &json!({ "rollout": fast() })));
    cluster.until(300, "the others have it", |cluster| cluster.status("web").stable.is_some());
    let counts = cluster.status("web").nodes.unwrap();
    assert_eq!((counts.target, counts.unsupported, counts.failed), (2, 1, 0));
    // After its upgrade it gets the proven revision.
    cluster.agent("n1").is_supporting = true;
    let target = cluster.status("web").target;
    cluster.until(90, "it has it, too", |cluster| cluster.having("web", &target) == 3);
}

#[test]
fn policy_of_a_later_version_keeps_its_nodes_as_they_are() {
    let mut cluster = settled(3);
    let web = cluster.policies.remove("web").unwrap();
    cluster.unreadable.insert("web".to_owned(), web.metadata.uid.clone().unwrap());
    cluster.apply(policy("base", &json!({ "rollout": fast(), "settings": { "sysctls": { "vm.dirty_ratio": "5" } } })));
    cluster.run(600);
    assert!(cluster.agents.iter().all(|agent| agent.value("vm.swappiness") == Some("10")));
    assert!(cluster.agents.iter().all(|agent| agent.value("vm.dirty_ratio").is_none()));
    cluster.unreadable.clear();
    cluster.policies.insert("web".to_owned(), web);
    cluster.until(600, "both", |cluster| cluster.agents.iter().all(|agent| agent.value("vm.dirty_ratio").is_some()));
}

#[test]
fn nothing_is_undone_by_a_new_leader_or_an_outage() {
    let mut cluster = settled(20);
    let (writes, target) = (cluster.writes, cluster.status("web").target);
    cluster.elect();
    cluster.run(700);
    cluster.agents.iter_mut().skip(2).for_each(|agent| agent.is_silent = true);
    cluster.run(700);
    cluster.agents.iter_mut().for_each(|agent| agent.is_silent = false);
    cluster.run(700);
    assert_eq!(cluster.having("web", &target), 20);
    assert!(cluster.status("web").failing.is_empty() && cluster.status("web").rejected.is_empty());
    assert!(cluster.writes - writes <= 12, "{} writes", cluster.writes - writes);
}

#[test]
fn wider_selector_begins_with_a_canary_of_the_new_nodes() {
    let mut cluster = Cluster::new(30, INTERVAL);
    for agent in cluster.agents.iter_mut().skip(1) {
        agent.view.labels = [("pool".to_owned(), "web".to_owned())].into_iter().collect();
        agent.fault = Some(Fault::NotReady);
    }
    let bad = json!({ "sysctls": { "vm.swappiness": BAD } });
    let selector = json!({ "matchExpressions": [{ "key": "pool", "operator": "DoesNotExist" }] });
    let narrow = json!({ "rollout": fast(), "allNodes": false, "nodeSelector": selector, "settings": bad });
    cluster.apply(policy("web", &narrow));
    cluster.until(300, "the test node has it", |cluster| cluster.status("web").stable.is_some());
    cluster.apply(policy("web", &json!({ "rollout": fast(), "settings": bad })));
    cluster.until(300, "it is rejected", |cluster| !cluster.status("web").rejected.is_empty());
    let target = cluster.status("web").target;
    cluster.run(900);
    let reached = cluster.agents.iter().filter(|agent| agent.ever.contains(&target)).count();
    assert_eq!((reached, cluster.having("web", &target)), (2, 1), "the test node keeps it");
}

#[test]
fn policy_that_was_deleted_with_keep_is_kept_on_a_node_that_returns() {
    let keep = json!({ "rollout": fast(), "onDelete": "Keep" });
    let mut cluster = Cluster::new(4, INTERVAL);
    cluster.apply(policy("web", &keep));
    cluster.until(600, "all nodes have it", |cluster| cluster.status("web").stable.is_some());
    cluster.agent("n2").is_silent = true;
    cluster.run(400);
    cluster.delete("web");
    cluster.until(30, "the object is gone", |cluster| !cluster.policies.contains_key("web"));
    cluster.agent("n2").is_silent = false;
    cluster.until(120, "it is released", |cluster| cluster.agents.iter().all(|it| it.document.policies.is_empty()));
    assert!(cluster.agent("n2").was_kept);
}

#[test]
fn canaries_that_fall_silent_together_do_not_hide_their_failure() {
    let canaries = json!({ "canary": { "nodes": 3, "soakSeconds": 60 }, "soakSeconds": 10, "maxUnavailable": 4 });
    let mut cluster = Cluster::new(20, INTERVAL);
    cluster.apply(policy("web", &json!({ "rollout": canaries })));
    cluster.until(900, "all nodes have it", |cluster| cluster.status("web").stable.is_some());
    cluster.agents.iter_mut().for_each(|agent| agent.fault = Some(Fault::Silence));
    cluster.apply(policy("web", &json!({ "rollout": canaries, "settings": { "sysctls": { "vm.swappiness": BAD } } })));
    cluster.until(900, "it is rejected", |cluster| !cluster.status("web").rejected.is_empty());
    let target = cluster.status("web").target;
    assert_eq!(cluster.agents.iter().filter(|agent| agent.ever.contains(&target)).count(), 3);
}

#[test]
fn agents_that_invent_policies_keep_no_other_node_waiting() {
    let mut cluster = settled(20);
    cluster.agent("n9").is_silent = true;
    cluster.run(400);
    cluster.delete("web");
    cluster.until(900, "the object is gone", |cluster| !cluster.policies.contains_key("web"));
    cluster.agents.iter_mut().take(8).for_each(|agent| agent.is_inventing = true);
    let mut most = 0;
    for _ in 0..300 {
        cluster.run(1);
        most = most.max(cluster.engine.planned());
    }
    assert!((40..=100).contains(&most), "{most} policies are planned");
    cluster.agent("n9").is_silent = false;
    cluster.until(120, "it is undone when it is back", |cluster| cluster.agents[9].document.policies.is_empty());
    assert!(cluster.agents.iter().take(8).all(|agent| agent.document.policies.is_empty()));
    // Another policy reaches the others as before.
    for agent in cluster.agents.iter_mut().take(8) {
        agent.view.labels = [("pool".to_owned(), "other".to_owned())].into_iter().collect();
    }
    let selector = json!({ "matchExpressions": [{ "key": "pool", "operator": "DoesNotExist" }] });
    let settings = json!({ "sysctls": { "vm.dirty_ratio": "5" } });
    let base = json!({ "rollout": fast(), "allNodes": false, "nodeSelector": selector, "settings": settings });
    cluster.apply(policy("base", &base));
    cluster.until(900, "the others have it", |cluster| {
        cluster.agents.iter().skip(8).all(|agent| agent.value("vm.dirty_ratio").is_some())
    });
}
