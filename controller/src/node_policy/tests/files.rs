//! Files by policy: one failure domain at a time, a broken one on the canary only, undone with the policy, whenever the leader dies.

use std::time::Duration;

use serde_json::{Value, json};

use super::world::{BAD, Cluster, policy};

const AGENTS: usize = 12;
const PATH: &str = "/etc/systemd/system/kubelet.service.d/50-web.conf";

fn with_file(content: &str, more: &Value) -> api::NodePolicy {
    let rollout = json!({ "canary": { "soakSeconds": 30 }, "soakSeconds": 10, "maxUnavailable": 3 });
    let files = json!([{ "path": PATH, "content": format!("{content}\n") }]);
    let mut spec = json!({ "rollout": rollout, "settings": { "files": files, "restart": ["kubelet.service"] } });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    policy("web", &spec)
}

/// Nodes in three zones.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(AGENTS, Duration::from_secs(30));
    for (number, agent) in cluster.agents.iter_mut().enumerate() {
        agent.takes_files = true;
        let zone = ("topology.kubernetes.io/zone".to_owned(), format!("z{}", number % 3));
        let labels = agent.view.labels.map().into_iter().chain([zone]);
        agent.view.labels = labels.collect();
    }
    cluster
}

/// How many nodes have this content.
fn having(cluster: &Cluster, content: &str) -> usize {
    let has = |content: &str| {
        cluster
            .agents
            .iter()
            .filter(|agent| agent.files.applied.values().any(|(it, _)| it.trim_end() == content))
            .count()
    };
    has(content)
}

fn ever(cluster: &Cluster, content: &str) -> usize {
    cluster.agents.iter().filter(|agent| agent.files.ever.iter().any(|it| it.trim_end() == content)).count()
}

fn is_stable(cluster: &Cluster) -> bool {
    let status = cluster.status("web");
    status.stable.is_some_and(|stable| stable.revision == status.target) && cluster.progress("web") == "Done"
}

fn settled() -> Cluster {
    let mut cluster = cluster();
    cluster.apply(with_file("a", &json!({})));
    cluster.until(3600, "all nodes have it", |cluster| having(cluster, "a") == AGENTS && is_stable(cluster));
    cluster
}

#[test]
fn files_reach_all_nodes_one_domain_at_a_time() {
    let cluster = settled();
    assert!((2..=3).contains(&cluster.most_changing), "{}", cluster.most_changing);
    assert!(cluster.agents.iter().all(|agent| agent.files.runs == 1));
}

#[test]
fn broken_file_is_rolled_back_on_the_canary_and_reaches_no_other_node() {
    let mut cluster = settled();
    cluster.apply(with_file(BAD, &json!({})));
    cluster.until(600, "it is rejected", |cluster| !cluster.status("web").rejected.is_empty());
    let status = cluster.status("web");
    assert_eq!((status.failing.len(), status.failing[0].node.as_str()), (1, status.canaries[0].as_str()));
    assert_eq!(status.failing[0].reason, "RolledBack", "although the Node was NotReady first");
    cluster.run(900);
    assert_eq!((ever(&cluster, BAD), having(&cluster, "a")), (1, AGENTS));
    assert_eq!(cluster.progress("web"), "Rejected");
}

#[test]
fn broken_file_stays_on_the_canary_when_the_leader_dies_at_any_step() {
    let mut lives = 0;
    loop {
        let mut cluster = settled();
        cluster.apply(with_file(BAD, &json!({})));
        cluster.lives = Some(lives);
        cluster.until(2400, "it is rejected", |cluster| !cluster.status("web").rejected.is_empty());
        cluster.run(400);
        assert_eq!((ever(&cluster, BAD), having(&cluster, "a")), (1, AGENTS), "{lives} actions");
        if cluster.lives.is_some() {
            break;
        }
        lives += 1;
    }
    assert!(lives > 10, "{lives}");
}

#[test]
fn change_reaches_all_nodes_when_the_leader_dies_at_any_step() {
    let mut lives = 0;
    loop {
        let mut cluster = settled();
        cluster.apply(with_file("b", &json!({})));
        cluster.lives = Some(lives);
        cluster.until(7200, "all nodes have it", |cluster| having(cluster, "b") == AGENTS && is_stable(cluster));
        assert_eq!(cluster.status("web").rejected, "", "{lives} actions");
        if cluster.lives.is_some() {
            break;
        }
        lives += 5;
    }
    assert!(lives > 60, "{lives}");
}

#[test]
fn deleted_policy_is_gone_only_when_its_files_are() {
    for lives in [None, Some(0), Some(2), Some(5), Some(9), Some(14)] {
        let mut cluster = settled();
        cluster.most_changing = 0;
        cluster.delete("web");
        cluster.lives = lives;
        cluster.until(3600, "the object is gone", |cluster| !cluster.policies.contains_key("web"));
        assert_eq!(having(&cluster, "a"), 0, "{lives:?}");
        assert!(cluster.most_changing <= 3, "{}", cluster.most_changing);
        cluster
            .until(120, "no Pod is left", |cluster| cluster.agents.iter().all(|agent| agent.files.pod("x").is_none()));
    }
}

#[test]
fn relabeled_node_loses_its_files() {
    let mut cluster = settled();
    cluster.apply(with_file(
        "a",
        &json!({ "allNodes": false, "nodeSelector": { "matchExpressions": [
        { "key": "name", "operator": "NotIn", "values": ["n3", "n4"] }] } }),
    ));
    cluster.until(900, "two nodes lost it", |cluster| having(cluster, "a") == AGENTS - 2);
    assert!(cluster.agent("n3").files.applied.is_empty() && cluster.agent("n4").files.applied.is_empty());
    cluster.run(300);
    assert_eq!((having(&cluster, "a"), cluster.progress("web").as_str()), (AGENTS - 2, "Done"));
}

#[test]
fn stop_switch_starts_no_pod() {
    let mut cluster = settled();
    let runs = |cluster: &Cluster| cluster.agents.iter().map(|agent| agent.files.runs).sum::<usize>();
    cluster.apply(with_file("b", &json!({})));
    cluster.until(300, "the canary's Pod runs", |cluster| runs(cluster) == AGENTS + 1);
    cluster.stopped = Some("alice: stop".to_owned());
    cluster.run(1200);
    assert_eq!((runs(&cluster), having(&cluster, "b")), (AGENTS + 1, 1), "what runs is confirmed");
    cluster.stopped = None;
    cluster.until(3600, "all nodes have it", |cluster| having(cluster, "b") == AGENTS);
}
