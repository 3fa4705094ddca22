//! VnicProfiles by example: each folder of `controller/golden/profile` is a sentence with the present objects and the resulting
//! plan, in the words of `oke-node-controller plan`. A new case needs no code; `UPDATE_GOLDEN=1 cargo test -p oke-node-controller
//! --lib plan::tests` writes the plan of a new case for review.
//!
//! `objects.yaml` has VnicProfiles, Nodes and VnicAttachments; a VnicAttachment may be short (`ready: true`, or `reason`).
//! `pools.yaml`, if present, holds OCI's answers about the node pool of instances: its OCID, null for none, or an error.
//! `unwanted.yaml`, if present, says for how many seconds an object was unwanted before.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::cluster::store::{NodeObject, NodeView, PoolAnswer, Store};
use crate::profile::plan::plan;
use crate::profile::plan::removal::{DeletionGrace, UnwantedObjects};
use crate::profile::report::status;
use crate::profile::select::observed::Observed;
use crate::profile::select::selection::select;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use vcn::Ocid;

const GRACE: Duration = Duration::from_secs(600);

/// OCI's answers, by instance.
type Answers = BTreeMap<Ocid, Option<String>>;

fn objects(case: &Path) -> Observed {
    let store = Store::default();
    let yaml = fs::read_to_string(case.join("objects.yaml")).unwrap();
    let answers =
        fs::read_to_string(case.join("pools.yaml")).map(|text| serde_yaml_ng::from_str::<Answers>(&text).unwrap());
    for (instance, answer) in answers.into_iter().flatten() {
        let answer = match answer.as_deref().map(str::parse) {
            None => PoolAnswer::Named(None),
            Some(Ok(pool)) => PoolAnswer::Named(Some(pool)),
            Some(Err(_)) => PoolAnswer::Unreadable(answer.unwrap()),
        };
        store.change_pools(|pools| pools.record(&instance, answer));
    }
    for document in serde_yaml_ng::Deserializer::from_str(&yaml) {
        let mut value = Value::deserialize(document).unwrap();
        match value["kind"].as_str().unwrap() {
            "VnicProfile" => store.profiles_mut().apply(serde_json::from_value(value).unwrap()),
            "Node" => drop(store.nodes_mut().apply(NodeView::of(node(value)))),
            "VnicAttachment" => {
                shorthand(&mut value);
                let name = value["metadata"]["name"].as_str().unwrap().to_owned();
                match serde_json::from_value(value) {
                    Ok(object) => drop(store.attachments_mut().apply(object)),
                    // As the watch does with an object of a later version.
                    Err(_) => store.attachments_mut().cannot_read(name),
                }
            }
            other => panic!("{other}"),
        }
    }
    Observed::of(&store)
}

/// A Node as the API server sends it.
fn node(mut short: Value) -> NodeObject {
    short["apiVersion"] = "v1".into();
    short.as_object_mut().unwrap().entry("spec").or_insert(json!({}));
    serde_json::from_value(short).unwrap()
}

/// Writes the conditions that the controller would have written.
fn shorthand(attachment: &mut Value) {
    let all = attachment.as_object_mut().unwrap();
    let (attached, ready, reason) = match (all.remove("ready"), all.remove("reason")) {
        (Some(_), _) => ("True", "True", "Ready".to_owned()),
        (None, Some(reason)) => ("False", "False", reason.as_str().unwrap().to_owned()),
        (None, None) => return,
    };
    let condition = |kind: &str, status: &str, reason: &str| json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let on_attached = if ready == "True" { "Attached" } else { &reason };
    let conditions = [condition("Attached", attached, on_attached), condition("Ready", ready, &reason)];
    attachment["status"] = json!({ "observedGeneration": 1, "conditions": conditions });
    attachment["metadata"]["generation"] = 1.into();
}

fn planned(case: &Path) -> String {
    let observed = objects(case);
    let now = Instant::now() + Duration::from_secs(100_000);
    let before: BTreeMap<String, u64> = match fs::read_to_string(case.join("unwanted.yaml")) {
        Ok(text) => serde_yaml_ng::from_str(&text).unwrap(),
        Err(_) => BTreeMap::new(),
    };
    let before: UnwantedObjects =
        before.into_iter().map(|(name, age)| (name, now - Duration::from_secs(age))).collect();
    let selections = select(&observed);
    let plan = plan(&observed, &selections, DeletionGrace { unwanted: &before, period: GRACE, now });
    let mut text = String::new();
    for step in &plan.steps {
        writeln!(text, "{step}").unwrap();
    }
    for step in &plan.later {
        writeln!(text, "in {:?}: {step}", plan.next.unwrap() - now).unwrap();
    }
    if plan.abandoned > 0 {
        writeln!(text, "of missing profiles: {}", plan.abandoned).unwrap();
    }
    for (instance, pool) in &selections.nominated {
        writeln!(text, "query {instance}: {pool}").unwrap();
    }
    for problem in &plan.problems {
        writeln!(text, "event on {}: {}: {}", problem.node, problem.reason, problem.note).unwrap();
    }
    for (profile, report) in &plan.reports {
        let Some(status) = status::changed(report, Time(Timestamp::UNIX_EPOCH)) else { continue };
        let (condition, sum) = (&status.conditions[0], status.summary.unwrap_or_default());
        write!(
            text,
            "{profile}: {} {}, {} matched, {} attached, {} ready, {} failed",
            condition.status, condition.reason, sum.matched, sum.attached, sum.ready, sum.failed
        )
        .unwrap();
        if !condition.message.is_empty() {
            write!(text, "; {}", condition.message).unwrap();
        }
        if !status.failing_nodes.is_empty() {
            write!(text, "; failing: {}", status.failing_nodes.join(" ")).unwrap();
        }
        writeln!(text).unwrap();
    }
    text
}

#[test]
fn every_case_has_its_plan() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/profile");
    let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 20, "the cases were not found");
    let mut wrong = String::new();
    for case in cases {
        let (path, text) = (case.join("plan.txt"), planned(&case));
        if std::env::var_os("UPDATE_GOLDEN").is_some() && !path.exists() {
            fs::write(&path, &text).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if text != expected {
            writeln!(wrong, "{}\n--- expected\n{expected}--- planned\n{text}", case.display()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The same state gives the same plan, in any order of the watches.
#[test]
fn the_order_of_the_objects_does_not_matter() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/profile");
    for case in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let mut observed = objects(&case);
        let (now, before) = (Instant::now(), UnwantedObjects::default());
        let steps = |observed: &Observed| {
            let selections = select(observed);
            let plan = plan(observed, &selections, DeletionGrace { unwanted: &before, period: GRACE, now });
            (plan.steps, format!("{:?}", plan.problems))
        };
        let one = steps(&observed);
        observed.profiles.reverse();
        observed.nodes.reverse();
        observed.attachments.reverse();
        assert_eq!(steps(&observed), one, "{}", case.display());
    }
}
