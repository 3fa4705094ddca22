//! The agent's Kubernetes Events, with its own rights and under the admission policy: raised and cleared conditions, nothing else.
//! If it cannot write them, it goes on.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube_harness::{ApiServer, Assets, Bound, ServiceAccount};
use serde_json::{Value, json};

use crate::Cluster;
use crate::metadata::vnic;
use crate::node::{Agent, wait_for};
use crate::running::{SECOND, in_time};
use crate::served::CREATE_EVENTS;

/// As the DaemonSet's controller would call it; `Container::node_agent` says the same.
pub(crate) const POD: &str = "oke-node-agent-7k2xp";
const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/oke-node-agent";

/// The agent's right to make events, and what keeps it to its own Node.
fn policy() -> PathBuf {
    super::manifest().with_file_name("admission.yaml")
}

pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
}

impl Scene {
    /// A node in sync, its Node and its agent's pod, and the policy in force.
    pub(crate) fn new() -> Self {
        let cluster = Cluster::new();
        cluster.do_(async |server| {
            server.apply(&policy()).await.unwrap();
            let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node" } });
            server.apply_object(node).await.unwrap();
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": POD, "namespace": "oke-node-manager" },
                "spec": { "nodeName": "node", "serviceAccountName": "oke-node-agent",
                          "containers": [{ "name": "agent", "image": "agent" }] },
            });
            server.apply_object(pod).await.unwrap();
            let account = ServiceAccount::new("oke-node-manager", "oke-node-agent");
            let unbound = server.token(&account, &Bound::Nothing).await.unwrap();
            enforced(server.client(&unbound).unwrap()).await;
            let token = server.token(&account, &Bound::Pod(POD.to_owned())).await.unwrap();
            server.write_in_cluster(&token, "oke-node-manager", &cluster.node.path("secrets")).unwrap();
        });
        let scene = Self { cluster };
        scene.in_order();
        scene
    }

    /// Everything that the NativePodNetwork names is there.
    fn in_order(&self) {
        self.cluster.publish("SUCCESS", &[("pods", 33)]);
    }

    /// It names a VNIC that is not.
    pub(crate) fn vnic_gone(&self) {
        self.cluster.publish("SUCCESS", &[("pods", 33), ("gone", 35)]);
    }

    pub(crate) fn agent(&self) -> Agent {
        self.cluster.node.ready_agent(&[])
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = self.cluster.do_(async |server| {
            let events: Api<Event> = Api::namespaced(server.client(server.admin()).unwrap(), "default");
            events.list(&ListParams::default()).await.unwrap().items
        });
        // The API server has something to tell, too.
        events.retain(|event| event.regarding.as_ref().and_then(|about| about.kind.as_deref()) == Some("Node"));
        events.sort_by_key(|event| event.event_time.clone());
        events
    }

    /// Type, reason and action of each event.
    fn reported(&self) -> Vec<String> {
        let word = |word: Option<String>| word.unwrap_or_default();
        let line = |event: Event| format!("{} {} {}", word(event.type_), word(event.reason), word(event.action));
        self.events().into_iter().map(line).collect()
    }

    pub(crate) fn wait_reported(&self, agent: &Agent, expected: &[&str]) {
        wait_for("the events", || self.reported() == expected, || format!("{:?}\n{}", self.reported(), agent.log()));
    }

    /// Twice the time after which an Event is due at the latest: two reconciles of a second each, twice.
    fn wait_some_reconciles(&self, agent: &Agent) {
        let before = self.cluster.node.passes("timer");
        wait_for("some reconciles", || self.cluster.node.passes("timer") > before + 5, || agent.log());
    }

    /// How many events were `ok`, `error` or `dropped`.
    fn counted(&self, result: &str) -> u32 {
        self.cluster.node.metric(&format!("kubernetes_events_total{{result=\"{result}\"}}"))
    }

    /// A repair as ever.
    fn repairs(&self, agent: &Agent) {
        in_time(5 * SECOND, "a repair", || {
            let before = agent.events("host.repaired").len();
            self.cluster.node.delete_rule(vcn::Family::Ipv4, 1537);
            agent.timed(|| wait_for("a repair", || agent.events("host.repaired").len() > before, || agent.log()))
        });
    }
}

/// The policy refuses whom nothing else would refuse.
async fn enforced(unbound: kube::Client) {
    let events: Api<Event> = Api::namespaced(unbound, "default");
    let event: Event = serde_json::from_value(json!({
        "metadata": { "generateName": "probe-", "namespace": "default" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Probe", "action": "Probe",
        "regarding": { "apiVersion": "v1", "kind": "Node", "name": "probe" },
        "reportingController": "example.com/probe", "reportingInstance": "probe",
    }))
    .unwrap();
    let as_if = PostParams { dry_run: true, ..PostParams::default() };
    let is_refused = async || match events.create(&as_if, &event).await {
        Err(kube::Error::Api(status)) => status.message.contains("must be bound to its pod"),
        _ => false,
    };
    kube_harness::wait_until("the policy is enforced", is_refused).await;
}

#[test]
fn condition_has_one_event_when_raised_and_cleared() {
    let scene = Scene::new();
    let agent = scene.agent();
    scene.wait_some_reconciles(&agent);
    assert_eq!(scene.reported(), [""; 0], "a start has no Event");
    scene.vnic_gone();
    let lost = "Warning VnicNotListed ConditionRaised";
    scene.wait_reported(&agent, &[lost]);
    let [event] = &scene.events()[..] else { panic!("{:?}", scene.reported()) };
    let about = json!({ "apiVersion": "v1", "kind": "Node", "name": "node", "uid": "node" });
    assert_eq!(serde_json::to_value(&event.regarding).unwrap(), about);
    assert_eq!(event.reporting_controller.as_deref(), Some("oke.oraclecloud.com/oke-node-agent"));
    assert_eq!(event.reporting_instance.as_deref(), Some(POD));
    let note = event.note.as_deref().unwrap();
    assert!(note.starts_with("ocid1.vnic.oc1.iad.gone: ") && note.contains("replace the node"), "{note}");
    let shown = described(&scene);
    let line = shown.lines().find(|line| line.contains("VnicNotListed")).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.contains("oke.oraclecloud.com/oke-node-agent") && line.contains(note), "{line}");

    scene.wait_some_reconciles(&agent);
    agent.stop();
    let agent = scene.agent();
    scene.wait_some_reconciles(&agent);
    assert_eq!(
        (scene.reported(), scene.counted("ok")),
        (vec![lost.to_owned()], 0),
        "a restarted agent repeats nothing"
    );
    agent.stop();
    scene.in_order();
    let agent = scene.agent();
    scene.wait_reported(&agent, &[lost, "Normal VnicNotListed ConditionCleared"]);
    scene.wait_some_reconciles(&agent);
    assert_eq!((scene.reported().len(), scene.counted("ok"), scene.counted("error")), (2, 1, 0));
}

/// As a person does it.
fn described(scene: &Scene) -> String {
    let kubectl = Assets::find().unwrap().program("kubectl");
    let config = scene.cluster.node.path("kubeconfig");
    scene.cluster.do_(async |server: &ApiServer| server.write_kubeconfig(server.admin(), &config).unwrap());
    let mut command = Command::new(kubectl);
    command
        .args(["describe", "node", "node"])
        .env_clear()
        .env("KUBECONFIG", &config)
        .env("HOME", config.parent().unwrap());
    let output = scene.cluster.node.inside(|| command.output().unwrap());
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn missing_right_to_write_events_stops_nothing_else() {
    let scene = Scene::new();
    scene.cluster.delete(BINDING);
    scene.cluster.wait_may(CREATE_EVENTS, false);
    let agent = scene.agent();
    scene.vnic_gone();
    wait_for("a refusal", || scene.counted("error") > 1, || agent.log());
    let failing = agent.events("kubernetes_events.failing");
    let [failing] = &failing[..] else { panic!("logged once: {failing:?}") };
    let why = failing["why"].as_str().unwrap();
    assert!(why.contains(r#"cannot create resource "events" in API group "events.k8s.io""#), "{why}");
    scene.repairs(&agent);
    assert_eq!((scene.cluster.node.get("/readyz").0, scene.reported()), (200, vec![]));
    scene.cluster.do_(async |server| server.apply(&policy()).await.unwrap());
    scene.wait_reported(&agent, &["Warning VnicNotListed ConditionRaised"]);
    wait_for("that it is said", || agent.events("kubernetes_events.written_again").len() == 1, || agent.log());
}

#[test]
fn api_server_outage_queues_no_events() {
    let scene = Scene::new();
    let node = &scene.cluster.node;
    let agent = scene.agent();
    scene.cluster.server.freeze().unwrap();
    // A VNIC without a link, while no Event can be written.
    node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33), vnic("more", 34), vnic("late", 36)]);
    scene.cluster.node.wait_conditions(&agent, &["LinkMissing"]);
    scene.wait_some_reconciles(&agent);
    scene.repairs(&agent);
    wait_for("a deadline", || scene.counted("error") >= 1, || agent.log());
    // Stopped while frozen: otherwise it might still accept what was sent.
    scene.cluster.server.stop().unwrap();
    node.plug("ens8", 36);
    scene.cluster.node.wait_conditions(&agent, &[]);
    scene.repairs(&agent);
    wait_for("the count of dropped Events", || scene.counted("dropped") >= 1, || agent.log());
    node.inside(|| scene.cluster.server.start_again().unwrap());
    scene.vnic_gone();
    scene.wait_reported(&agent, &["Warning VnicNotListed ConditionRaised"]);
    assert_eq!(node.get("/readyz").0, 200);
}

#[test]
fn events_are_written_only_while_allowed() {
    let scene = Scene::new();
    let conf = scene.cluster.node.path("conf");
    fs::create_dir(&conf).unwrap();
    let say = |text: &str| fs::write(conf.join("agent.conf"), text).unwrap();
    say("KUBERNETES_EVENTS=deny\n");
    let agent = scene.agent();
    scene.vnic_gone();
    scene.cluster.node.wait_conditions(&agent, &["VnicNotListed"]);
    scene.wait_some_reconciles(&agent);
    let off = agent.events("kubernetes_events.off");
    let said: Vec<&Value> = off.iter().map(|line| &line["message"]).collect();
    assert_eq!((said, scene.reported()), (vec![&json!("KUBERNETES_EVENTS is deny")], vec![]));
    say("KUBERNETES_EVENTS=allow\n");
    scene.wait_reported(&agent, &["Warning VnicNotListed ConditionRaised"]);
    say("KUBERNETES_EVENTS=deny\n");
    wait_for("that it is off", || agent.events("kubernetes_events.off").len() == 2, || agent.log());
    scene.in_order();
    scene.cluster.node.wait_conditions(&agent, &[]);
    scene.wait_some_reconciles(&agent);
    assert_eq!(scene.reported().len(), 1);
}
