//! Golden tests: the answers of each command as text, from the documents in `golden/`. `UPDATE_DOCS=1` writes the texts.

mod policies;
mod tasks;

use std::fs;
use std::path::PathBuf;

use api::VnicAttachment;
use api::bundle::BundledNode;
use command::page::Page;
use health::Fleet;
use health::fleet::NodeState;
use k8s_openapi::api::core::v1::Node;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vcn::Ocid;

use crate::answer::{Answer, Exit, Style};
use crate::cluster::Attachments;
use crate::commands::bundle::{Bundle, Missing};
use crate::commands::gpus::Gpus;
use crate::commands::node::finding::Finding;
use crate::commands::node::{NodeAnswer, NodeObject};
use crate::commands::status::Status;
use crate::commands::vnics::Vnics;
use crate::nodes;

/// When the tables are made.
const NOW: u64 = 1_764_000_000_000;
const WIDE: bool = true;
const NARROW: bool = false;

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(file)
}

fn read<T: DeserializeOwned>(file: &str) -> T {
    serde_json::from_str(&fs::read_to_string(path(file)).unwrap()).unwrap()
}

fn shows(answer: &impl Answer, wide: bool, file: &str) {
    let mut page = Page::default();
    answer.show(&mut page, Style { wide, now_unix_millis: NOW });
    assert_eq!(documents::compare_file(&path(file), &page.into_text()), Ok(()));
}

fn status() -> Status {
    Status::new(read::<Fleet>("status/fleet.json"), None)
}

fn vnics(instance: Option<&Ocid>) -> Vnics {
    let mut objects: Vec<VnicAttachment> = read("vnics/objects.json");
    objects.retain(|object| instance.is_none_or(|instance| object.spec.instance_id == *instance));
    Vnics::of(Attachments { objects, unreadable: Vec::new() })
}

#[test]
fn bundle_shows_what_it_lacks() {
    let node = |name: &str, entries, bytes, problem: Option<&str>| BundledNode {
        name: name.to_owned(),
        entries,
        bytes,
        problem: problem.map(str::to_owned),
    };
    let missing = Missing { part: "objects/deployments".to_owned(), why: "deployments.apps is forbidden".to_owned() };
    let nodes = vec![node("10.0.0.2", 41, 2_345_678, None), node("10.0.0.3", 0, 0, Some("no agent runs on the node"))];
    let bundle = Bundle { file: "oke.tar".into(), bytes: 2_800_000, nodes, missing: vec![missing] };
    shows(&bundle, NARROW, "bundle/table.txt");
    assert_eq!(bundle.exit(), Exit::Undecided);
}

#[test]
fn status_shows_the_worst_nodes_first() {
    shows(&status(), NARROW, "status/table.txt");
    shows(&status(), WIDE, "status/wide.txt");
    assert_eq!(status().exit(), Exit::Problem);
    let mut fleet: Fleet = read("status/fleet.json");
    fleet.nodes.retain(|node| node.name == "10.0.0.1");
    assert_eq!(Status::new(fleet, None).exit(), Exit::Fine);
}

#[test]
fn gpus_shows_each_faulty_device_of_the_worst_nodes_first() {
    let gpus = || Gpus::of(Status::new(read("gpus/fleet.json"), None));
    shows(&gpus(), NARROW, "gpus/table.txt");
    let text = serde_json::to_string_pretty(&gpus()).unwrap() + "\n";
    assert_eq!(documents::compare_file(&path("gpus/output.json"), &text), Ok(()));
    assert_eq!(gpus().exit(), Exit::Problem);
    let mut fleet: Fleet = read("gpus/fleet.json");
    fleet.nodes.retain(|node| node.name == "10.0.0.3");
    assert_eq!(Gpus::of(Status::new(fleet, None)).exit(), Exit::Fine, "a full disk does not concern GPUs");
}

#[test]
fn status_without_controller_shows_conditions_and_vnics() {
    let object: Node = read("node/object.json");
    let fleet = Fleet { nodes: vec![nodes::entry(&object)], ..Fleet::default() };
    let mut status = Status::new(fleet, Some("Lease a/b has no holder: no controller is the leader".to_owned()));
    status.vnics = Some(vnics(None));
    shows(&status, NARROW, "status/no-controller.txt");
    assert_eq!(status.exit(), Exit::Problem);
}

#[test]
fn status_as_yaml_keeps_its_form() {
    let text = serde_yaml_ng::to_string(&status()).unwrap();
    assert_eq!(documents::compare_file(&path("status/output.yaml"), &text), Ok(()));
}

#[test]
fn node_shows_problems_with_the_next_step() {
    let object: Node = read("node/object.json");
    let instance = api::instance_of("ocid1.instance.oc1.iad.anuwcljt10002").unwrap();
    let has = NodeObject::of(&object);
    let answer = NodeAnswer::of_view(read("node/view.json"), has.clone(), vnics(Some(&instance)));
    shows(&answer, NARROW, "node/table.txt");
    let text = serde_json::to_string_pretty(&answer).unwrap() + "\n";
    assert_eq!(documents::compare_file(&path("node/output.json"), &text), Ok(()));
    let why = "there is no Lease a/b".to_owned();
    let answer = NodeAnswer::of_api(nodes::entry(&object), why, has, Vnics::default());
    shows(&answer, NARROW, "node/no-controller.txt");
}

#[test]
fn details_that_cannot_be_read_leave_the_summary() {
    let mut view: serde_json::Value = read("node/view.json");
    view["details"] = serde_json::json!({ "error": "no answer within 5 s" });
    let answer =
        NodeAnswer::of_view(serde_json::from_value(view.clone()).unwrap(), NodeObject::default(), Vnics::default());
    // Seven checks, and that the agent does not answer.
    assert_eq!((answer.findings.len(), answer.details_error.as_deref()), (8, Some("no answer within 5 s")));
    view["details"] = serde_json::json!({ "status": 7 });
    let answer = NodeAnswer::of_view(serde_json::from_value(view).unwrap(), NodeObject::default(), Vnics::default());
    assert_eq!(answer.findings.len(), 8);
    assert!(answer.details_error.unwrap().contains("its report cannot be read"));
}

/// A node whose agent answers now: the conditions and signals of its report, and what the leader knows.
fn answered(conditions: Value, signals: Value, node: Value) -> NodeAnswer {
    let is_ready = conditions.as_array().unwrap().iter().all(|condition| condition["severity"] != "blocking");
    let mut view = json!({
        "node": { "name": "10.0.0.2", "state": "Healthy", "ageSeconds": 20, "summary": { "ready": true } },
        "details": { "status": { "ready": is_ready, "conditions": conditions }, "signals": { "signals": signals } },
    });
    view["node"].as_object_mut().unwrap().extend(node.as_object().unwrap().clone());
    NodeAnswer::of_view(serde_json::from_value(view).unwrap(), NodeObject::default(), Vnics::default())
}

fn signal(name: &str, severity: &str) -> Value {
    json!({ "signal": name, "verdict": "problem", "severity": severity, "unit": "yes", "detail": "", "message": "It is bad.",
        "sampledUnixMillis": NOW, "sinceUnixMillis": NOW, "everySeconds": 60 })
}

fn condition(reason: &str, severity: &str) -> Value {
    json!({ "reason": reason, "severity": severity, "message": "It is bad.", "sinceUnixMillis": NOW })
}

fn check(name: &str, severity: &str, message: &str) -> Value {
    json!({ "name": name, "area": "host", "verdict": "problem", "severity": severity, "message": message,
        "sinceUnixMillis": NOW })
}

/// State, whether new pods can start, and the findings.
fn seen(answer: &NodeAnswer) -> (NodeState, String, Vec<&str>) {
    let mut page = Page::default();
    answer.show(&mut page, Style { wide: NARROW, now_unix_millis: NOW });
    let text = page.into_text();
    let pods = text.lines().find_map(|line| line.strip_prefix("new pods can start")).unwrap_or_default().trim();
    assert_eq!(answer.exit() == Exit::Fine, answer.node.state == NodeState::Healthy, "{text}");
    (answer.node.state, pods.to_owned(), answer.findings.iter().map(|finding| finding.name.as_str()).collect())
}

#[test]
fn state_is_the_worst_of_what_is_shown() {
    use NodeState::{Critical, Healthy, Unknown, Warning};
    let none = || json!({});
    let cases = [
        (answered(json!([]), json!([]), none()), (Healthy, "yes", vec![])),
        // The leader's answer is older than the agent's.
        (
            answered(json!([condition("NoUsableAddress", "blocking")]), json!([]), none()),
            (Critical, "no", vec!["NoUsableAddress"]),
        ),
        (
            answered(json!([condition("RepairsUndone", "degraded")]), json!([]), none()),
            (Critical, "yes", vec!["RepairsUndone"]),
        ),
        (
            answered(json!([condition("PodLinkGone", "degraded")]), json!([]), none()),
            (Warning, "yes", vec!["PodLinkGone"]),
        ),
        (
            answered(json!([condition("Starting", "blocking")]), json!([]), none()),
            (Unknown, "not known", vec!["Starting"]),
        ),
        (answered(json!([]), json!([]), json!({ "error": "connection refused" })), (Healthy, "yes", vec![])),
    ];
    assert_shown(&cases);
}

#[test]
fn each_cause_is_listed_once() {
    use NodeState::{Critical, Warning};
    let none = || json!({});
    let cases = [
        (
            answered(
                json!([condition("ForwardingRejected", "degraded")]),
                json!([signal("forwarding_rejected", "critical")]),
                none(),
            ),
            (Critical, "yes", vec!["ForwardingRejected"]),
        ),
        (
            answered(
                json!([]),
                json!([signal("kubelet_running", "critical"), signal("kubelet_healthy", "critical")]),
                json!({ "findings": [check("NodeNotReady", "critical", "NodeStatusUnknown: Kubelet stopped posting.")] }),
            ),
            (Critical, "no", vec!["kubelet_running"]),
        ),
        (
            answered(
                json!([condition("NoUsableAddress", "blocking")]),
                json!([]),
                json!({ "findings": [check("NodeNotReady", "critical", "KubeletNotReady: reason:NetworkPluginNotReady")] }),
            ),
            (Critical, "no", vec!["NoUsableAddress"]),
        ),
        (
            answered(
                json!([]),
                json!([]),
                json!({ "findings": [check("NodeNotReady", "critical", "KubeletNotReady: runtime is down")] }),
            ),
            (Critical, "no", vec!["NodeNotReady"]),
        ),
        (
            answered(
                json!([]),
                json!([]),
                json!({ "findings": [check("UnknownVnicProfile", "warning", "no VnicProfile x")] }),
            ),
            (Warning, "yes", vec!["UnknownVnicProfile"]),
        ),
    ];
    assert_shown(&cases);
}

/// What does not keep pods from starting is not the cause of a kubelet without a pod network.
#[test]
fn kubelet_that_is_not_ready_is_shown_next_to_other_problems() {
    use NodeState::Critical;
    let cases = [
        (
            answered(
                json!([condition("ChangesUnheard", "degraded")]),
                json!([]),
                json!({ "findings": [check("NodeNotReady", "critical", "KubeletNotReady: reason:NetworkPluginNotReady")] }),
            ),
            (Critical, "no", vec!["NodeNotReady", "ChangesUnheard"]),
        ),
        (
            answered(
                json!([condition("NoUsableAddress", "blocking")]),
                json!([]),
                json!({ "findings": [check("NodeNotReady", "critical", "KubeletNotReady: [container runtime is down, \
                                                                         reason:NetworkPluginNotReady]")] }),
            ),
            (Critical, "no", vec!["NoUsableAddress", "NodeNotReady"]),
        ),
    ];
    assert_shown(&cases);
}

/// State, whether new pods can start, and the names of the findings.
type ShownNode<'a> = (NodeState, &'a str, Vec<&'a str>);

fn assert_shown(cases: &[(NodeAnswer, ShownNode<'_>)]) {
    for (answer, (state, pods, findings)) in cases {
        assert_eq!(seen(answer), (*state, (*pods).to_owned(), findings.clone()));
        let is_complete = |finding: &Finding| finding.next_step.as_deref().is_some_and(|next| !next.is_empty());
        assert!(answer.findings.iter().all(is_complete), "{:?}", answer.findings);
    }
}

#[test]
fn node_that_does_not_answer_says_what_to_do() {
    let mut view: Value = read("node/view.json");
    view["error"] = json!("connecting to 10.0.0.2:9810 failed: no answer within 5 s");
    view["node"]["error"] = view["error"].clone();
    view.as_object_mut().unwrap().remove("details");
    for (file, state) in [("node/blocked.txt", NodeState::Critical), ("node/silent.txt", NodeState::Unknown)] {
        view["node"]["state"] = json!(state);
        let details = serde_json::from_value(view.clone()).unwrap();
        let answer = NodeAnswer::of_view(details, NodeObject::default(), Vnics::default());
        shows(&answer, NARROW, file);
        assert_eq!((answer.node.state, answer.exit()), (state, Exit::Problem));
    }
}

#[test]
fn vnics_shows_what_is_not_ready_first() {
    shows(&vnics(None), NARROW, "vnics/table.txt");
    assert_eq!((vnics(None).exit(), Vnics::default().exit()), (Exit::Problem, Exit::Fine));
    assert_eq!(Vnics::unread("403".to_owned()).exit(), Exit::Problem);
}
