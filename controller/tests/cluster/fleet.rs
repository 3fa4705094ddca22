//! Conditions of Nodes follow what agents answer, and are written on transition only; the view shows the fleet.

use health::fleet::{NodeDetails, NodeState};
use health::{Area, Fleet, Verdict};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube_harness::wait_until;
use sandbox::{OciSettings, Operation};
use serde_json::{Value, json};

use crate::agents::{self, FakeAgent, HOST, NETWORK, TrustedControllers, condition, verdict};
use crate::process::Controller;
use crate::scene::Scene;

const WRITES: &str = r#"oke_node_controller_kubernetes_writes_total{kind="condition",result="ok"}"#;
const UNCHANGED: &str = r#"oke_node_controller_agent_requests_total{result="unchanged"}"#;

/// Nodes whose agents are polled every ten seconds.
async fn scene(nodes: u32) -> (Scene, TrustedControllers) {
    let mut scene = Scene::with(nodes, 2, OciSettings::default()).await;
    scene.environment.insert("AGENT_POLL_SECONDS".to_owned(), "10".to_owned());
    scene.environment.insert("AGENT_SILENT_SECONDS".to_owned(), "30".to_owned());
    // Only what these tests are about is written.
    scene.environment.insert("LEASE_SECONDS".to_owned(), "300".to_owned());
    let trusted = TrustedControllers::follow(scene.client.clone());
    (scene, trusted)
}

async fn wait_for_verdict(scene: &Scene, node: &str, kind: &str, status: &str, reason: &str) {
    let expected = Some((status.to_owned(), reason.to_owned()));
    let what = format!("{kind} of {node} is {status} ({reason})");
    wait_until(&what, async || verdict(&scene.client, node, kind).await == expected).await;
}

pub(crate) async fn versions(scene: &Scene) -> Vec<Option<String>> {
    let nodes = Api::<Node>::all(scene.client.clone()).list_metadata(&ListParams::default()).await.unwrap();
    nodes.into_iter().map(|node| node.metadata.resource_version).collect()
}

fn fleet(controller: &Controller) -> Fleet {
    let (status, body) = controller.view("/fleet").unwrap();
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// When it wrote the conditions of each Node, in order.
fn written(controller: &Controller) -> Vec<Timestamp> {
    let lines: Vec<Value> = controller.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut writes: Vec<_> = lines.iter().filter(|line| line["event"] == "condition.written").collect();
    // A write of two conditions is two lines.
    writes.dedup_by_key(|line| &line["node"]);
    writes.iter().map(|line| line["timestamp"].as_str().unwrap().parse().unwrap()).collect()
}

/// Each agent answered twice more than now.
async fn wait_for_polls(agents: &[&FakeAgent]) {
    let before: Vec<u64> = agents.iter().map(|agent| agent.answers()).collect();
    wait_until("each agent answered twice", async || {
        agents.iter().zip(&before).all(|(agent, before)| agent.answers() >= before + 2)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_are_written_on_transition_only() {
    let (scene, trusted) = scene(2).await;
    let agents = [
        FakeAgent::on(&scene.client, "node-0", &trusted).await,
        FakeAgent::on(&scene.client, "node-1", &trusted).await,
    ];
    let mut one = scene.controller("one");
    for node in ["node-0", "node-1"] {
        for kind in [NETWORK, HOST] {
            wait_for_verdict(&scene, node, kind, "True", "NoCriticalProblem").await;
        }
    }
    let two = scene.controller("two");
    wait_until("the second stands by", async || two.view("/fleet").is_some()).await;
    wait_until("it knows the leader", async || two.view("/fleet").unwrap().1 == "not the leader; the leader is one\n")
        .await;
    assert_eq!(two.view("/fleet").unwrap().0, 503);

    // A write is counted after the API server shows it. Nothing changes from here on, and nothing is written.
    wait_until("one write to each node", async || one.metric(WRITES) == Some(2.0)).await;
    let before = versions(&scene).await;
    wait_for_polls(&[&agents[0], &agents[1]]).await;
    assert_eq!((versions(&scene).await, one.metric(WRITES)), (before, Some(2.0)));
    assert!(one.metric(UNCHANGED).unwrap() >= 2.0);
    let shown = fleet(&one);
    let states: Vec<_> = shown.nodes.iter().map(|node| (node.name.as_str(), node.state)).collect();
    assert_eq!(
        (shown.leader.as_str(), states),
        ("one", vec![("node-0", NodeState::Healthy), ("node-1", NodeState::Healthy)])
    );
    assert_eq!(shown.nodes[0].instance, Some(scene.instance(0)));

    agents[0].has(&[("conntrack_use", Area::Network)]);
    wait_for_verdict(&scene, "node-0", NETWORK, "False", "ConntrackUse").await;
    let failed = condition(&scene.client, "node-0", NETWORK).await.unwrap();
    assert_eq!(failed.message.as_deref(), Some("conntrack_use is bad."));
    wait_until("it is counted", async || one.metric(WRITES) == Some(3.0)).await;
    let problems = r#"oke_node_controller_fleet_problems{signal="conntrack_use",severity="critical"}"#;
    assert_eq!(one.metric(problems), Some(1.0));
    let (_, body) = one.view("/fleet/node-0").unwrap();
    let NodeDetails { node, details, error } = serde_json::from_str(&body).unwrap();
    assert_eq!((node.state, details.unwrap()["node"].as_str(), error), (NodeState::Critical, Some("node-0"), None));
    assert_eq!(one.view("/fleet/nowhere").unwrap().0, 404);

    // The next leader knows nothing, and finds everything as it must be.
    let before = versions(&scene).await;
    assert!(one.terminate().success());
    wait_until("the second leads", async || two.leads()).await;
    wait_until("it knows all", async || {
        two.view("/fleet").unwrap().0 == 200 && fleet(&two).nodes.iter().all(|node| node.summary.is_some())
    })
    .await;
    wait_for_polls(&[&agents[0], &agents[1]]).await;
    assert_eq!((versions(&scene).await, two.metric(WRITES)), (before, None));
    agents[0].has(&[]);
    wait_for_verdict(&scene, "node-0", NETWORK, "True", "NoCriticalProblem").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_nodes_is_permitted_to_repair() {
    let (scene, trusted) = scene(3).await;
    let mut agents = Vec::new();
    for number in 0..3 {
        agents.push(FakeAgent::on(&scene.client, &format!("node-{number}"), &trusted).await);
    }
    agents[..2].iter().for_each(FakeAgent::wants_to_repair);
    let _one = scene.controller("one");
    let permits = |agents: &[FakeAgent]| agents.iter().map(FakeAgent::permits).collect::<Vec<_>>();
    wait_until("two permits", async || permits(&agents).iter().sum::<u64>() >= 2).await;
    wait_for_polls(&agents.iter().collect::<Vec<_>>()).await;
    let permitted = permits(&agents);
    assert_eq!((permitted.iter().filter(|permits| **permits > 0).count(), permitted[2]), (1, 0), "{permitted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_carry_the_nodes_allocatable_memory() {
    let (scene, trusted) = scene(1).await;
    let agent = FakeAgent::on(&scene.client, "node-0", &trusted).await;
    let _one = scene.controller("one");
    for kibibytes in [65_536_000, 65_433_600] {
        let allocatable = json!({ "cpu": "4", "memory": format!("{kibibytes}Ki"), "hugepages-2Mi": "0" });
        let patch = Patch::Merge(json!({ "status": { "allocatable": allocatable } }));
        let nodes: Api<Node> = Api::all(scene.client.clone());
        nodes.patch_status("node-0", &PatchParams::default(), &patch).await.unwrap();
        wait_until("the amount", async || agent.allocatable_memory() == kibibytes * 1024).await;
    }
}

/// A plugin that is wanted and does not run is a problem of nodes with an RDMA network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_plugins_of_the_cloud_agent_are_shown() {
    const PLUGIN: &str = "Compute HPC RDMA Authentication";
    const NAME: &str = "cloud_agent_plugins";
    let (scene, trusted) = scene(2).await;
    let agents = [
        FakeAgent::on(&scene.client, "node-0", &trusted).await,
        FakeAgent::on(&scene.client, "node-1", &trusted).await,
    ];
    agents[0].has_shape("BM.GPU.H100.8");
    agents[1].has_shape("VM.Standard.E5.Flex");
    for node in ["node-0", "node-1"] {
        scene.cloud.set_agent_plugin(node, PLUGIN, "ENABLED", "STOPPED");
        scene.cloud.set_agent_plugin(node, "Bastion", "DISABLED", "STOPPED");
    }
    let one = scene.controller("one");
    let found = || {
        let (status, body) = one.view("/fleet").unwrap_or_default();
        let fleet: Fleet = if status == 200 { serde_json::from_str(&body).unwrap() } else { Fleet::default() };
        let of = |name: &str| {
            let summary = fleet.nodes.iter().find(|node| node.name == name)?.summary.as_ref()?;
            let check = summary.checks.iter().find(|check| check.name == NAME)?;
            Some((check.verdict, check.message.clone()))
        };
        (of("node-0"), of("node-1"))
    };
    let message = format!(
        "Plugins of the Oracle Cloud Agent are enabled and do not run. {PLUGIN}: STOPPED at 2026-01-01T00:00:00.000Z"
    );
    let problem = Some((Verdict::Problem, message));
    wait_until("the problem is shown", async || found() == (problem.clone(), None)).await;
    let metric = format!(r#"oke_node_controller_fleet_problems{{signal="{NAME}",severity="warning"}}"#);
    assert_eq!(one.metric(&metric), Some(1.0));
    // The next answer of the agent does not hide it.
    agents[0].has(&[("conntrack_use", Area::Network)]);
    wait_for_verdict(&scene, "node-0", NETWORK, "False", "ConntrackUse").await;
    assert_eq!(found().0, problem);

    scene.cloud.set_agent_plugin("node-0", PLUGIN, "ENABLED", "RUNNING");
    wait_until("it is over", async || found() == (None, None)).await;
    scene.cloud.forbid(&[Operation::ListInstanceAgentPlugins]);
    let is_unknown = || found().0.is_some_and(|(verdict, _)| verdict == Verdict::Unknown);
    wait_until("a missing permission is shown", async || is_unknown()).await;
}

/// Oracle's reports are shown also for nodes without an agent, and not while OKE repairs the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_of_oracle_are_shown_until_oke_repairs_the_node() {
    const TAINT: &str = "oke.example/repair";
    let (mut scene, _) = scene(2).await;
    let compartment = scene.cloud.compartment();
    scene.environment.insert("MAINTENANCE_COMPARTMENTS".to_owned(), compartment.to_string());
    scene.environment.insert("OKE_REPAIR_TAINT".to_owned(), TAINT.to_owned());
    scene.cloud.set_maintenance("node-0", "REBOOT_MIGRATION", "SCHEDULED");
    scene.cloud.set_maintenance("node-1", "TERMINATE", "SUCCEEDED");
    let one = scene.controller("one");
    let found = || {
        let (status, body) = one.view("/fleet").unwrap_or_default();
        let fleet: Fleet = if status == 200 { serde_json::from_str(&body).unwrap() } else { Fleet::default() };
        let of = |name: &str| {
            let node = fleet.nodes.iter().find(|node| node.name == name)?;
            let mut found: Vec<&str> = node.findings.iter().map(|check| check.message.as_str()).collect();
            found.retain(|message| message.contains("Maintenance") || message.contains("repairs"));
            Some(found.join("; "))
        };
        (of("node-0"), of("node-1"))
    };
    let maintenance = "Maintenance of the instance is SCHEDULED: REBOOT_MIGRATION because of HARDWARE_REPLACEMENT, from 2026-12-01T08:00:00.000Z, at the latest 2026-12-15T08:00:00.000Z; it can be rescheduled.";
    let shown = |first: &str| (Some(first.to_owned()), Some(String::new()));
    wait_until("the maintenance is shown", async || found() == shown(maintenance)).await;
    let metric = r#"oke_node_controller_fleet_problems{signal="maintenance_scheduled",severity="warning"}"#;
    assert_eq!(one.metric(metric), Some(1.0));

    let nodes: Api<Node> = Api::all(scene.client.clone());
    let patch = Patch::Strategic(json!({ "spec": { "taints": [{ "key": TAINT, "effect": "NoSchedule" }] } }));
    nodes.patch("node-0", &PatchParams::default(), &patch).await.unwrap();
    wait_until("OKE's repair is shown", async || found() == shown("OKE repairs this node: it has OKE's taint.")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_reach_agents_that_take_them() {
    const OTHERS: &str = "oke_node_controller_fleet_other_rules";
    let rules = r#"{"rules": [{"name": "conntrack-nearly-full", "bound": 90}]}"#;
    let (mut scene, trusted) = scene(2).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("health-rules.json");
    std::fs::write(&file, rules).unwrap();
    scene.environment.insert("HEALTH_RULES".to_owned(), file.display().to_string());
    let [agent, old] = [
        FakeAgent::on(&scene.client, "node-0", &trusted).await,
        FakeAgent::on(&scene.client, "node-1", &trusted).await,
    ];
    old.takes_no_rules();
    let one = scene.controller("one");
    wait_until("the agent has the rules", async || agent.rules().as_deref() == Some(rules)).await;
    wait_until("the controller knows", async || one.metric(OTHERS) == Some(1.0)).await;
    // An invalid file changes nothing.
    std::fs::write(&file, "{").unwrap();
    wait_until("it is reported", async || one.log().contains("rules.invalid")).await;
    assert_eq!(one.metric("oke_node_controller_health_rules_invalid"), Some(1.0));
    let none = r#"{"rules": []}"#;
    std::fs::write(&file, none).unwrap();
    wait_until("the agent has no rules", async || agent.rules().as_deref() == Some(none)).await;
    wait_until("the controller knows", async || one.metric(OTHERS) == Some(1.0)).await;
    assert_eq!(old.rules(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_agents_become_unknown_and_mass_changes_are_held_back() {
    let (scene, trusted) = scene(5).await;
    let mut agents = Vec::new();
    for number in 0..4 {
        agents.push(FakeAgent::on(&scene.client, &format!("node-{number}"), &trusted).await);
    }
    // Its Pod names the key of another agent.
    let impostor = FakeAgent::start("node-4", &trusted).await;
    let port: Value = serde_json::from_str(&impostor.annotation()).unwrap();
    let mut claimed: Value = serde_json::from_str(&agents[0].annotation()).unwrap();
    claimed["port"] = port["port"].clone();
    agents::make_pod(&scene.client, "node-4", &claimed.to_string()).await;
    let one = scene.controller("one");
    for number in 0..4 {
        wait_for_verdict(&scene, &format!("node-{number}"), NETWORK, "True", "NoCriticalProblem").await;
    }
    wait_for_verdict(&scene, "node-4", HOST, "Unknown", "AgentSilent").await;
    // The API server shows a write before the controller logs it.
    wait_until("five writes are logged", async || written(&one).len() >= 5).await;
    for pair in written(&one).windows(2) {
        let between = pair[1].as_millisecond() - pair[0].as_millisecond();
        // 200, but for a clock that is being corrected.
        assert!(between >= 190, "{between} ms between two writes: more than five per second");
    }
    let refused = fleet(&one).nodes.remove(4);
    assert!(refused.error.as_deref().is_some_and(|error| error.contains("the TLS handshake")), "{refused:?}");
    assert_eq!((refused.summary, impostor.answers()), (None, 0));
    let body = one.view("/fleet/node-4").unwrap().1;
    let NodeDetails { details, error, .. } = serde_json::from_str(&body).unwrap();
    assert!(details.is_none() && error.is_some_and(|error| error.contains("the TLS handshake")), "{body}");

    agents[3].freeze();
    wait_for_verdict(&scene, "node-3", NETWORK, "Unknown", "AgentSilent").await;
    assert_eq!(one.metric("oke_node_controller_fleet_unknown_held "), Some(0.0));

    // The other three at once: more than a tenth, and more than two.
    let before = versions(&scene).await;
    agents.iter_mut().for_each(FakeAgent::freeze);
    wait_until("the alert", async || one.metric("oke_node_controller_fleet_unknown_held ") == Some(1.0)).await;
    wait_until("all are shown as unknown", async || {
        fleet(&one).nodes.iter().all(|node| node.state == NodeState::Unknown)
    })
    .await;
    assert_eq!(versions(&scene).await, before);
    assert_eq!(one.log().matches(r#""event":"fleet.unreachable""#).count(), 1);
}
