//! Cases of the planner: each folder of `controller/golden/attachment` is one, named by a sentence. `case.yaml` has the objects, what is
//! remembered of them and OCI's documents, `plan.txt` the plan with the statuses and Events that follow from it. `UPDATE_GOLDEN=1`
//! writes the plans.

mod documents;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::{Reason as _, VnicAttachment};
use backoff::Backoff;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use tokio::time::Instant;

use super::*;
use crate::attachment::mark::Mark;
use crate::attachment::report::status::status;
use crate::attachment::report::{event_diff, node_report};
use crate::attachment::step::NewAddress;

use documents::Documents;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/attachment");
const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(120) };
const PROOF: Duration = Duration::from_secs(9);

fn planned(case: &Path) -> String {
    let documents: Documents = serde_yaml_ng::from_str(&fs::read_to_string(case.join("case.yaml")).unwrap()).unwrap();
    let objects: Vec<_> = documents.objects().into_iter().map(Arc::new).collect();
    let now = Instant::now();
    let input = PlanInput {
        objects: &objects,
        mark: &Mark::new(documents.cluster.as_deref().unwrap_or("cluster-1")),
        unreadable: &documents.unreadable,
        retry_states: &documents.remembered.iter().map(|(uid, it)| (uid.clone(), it.state(now))).collect(),
        progress: &Progress {
            applied: documents.applied.clone(),
            refused_bulks: documents.refused_bulks.clone(),
            ..Progress::default()
        },
        read_at: now,
        pauses: PAUSES,
        proof: PROOF,
        now: Timestamp::UNIX_EPOCH,
    };
    text(&objects, &plan(&input, &documents.observed()))
}

/// Steps with their requests, statuses, and what follows.
fn text(objects: &[Arc<VnicAttachment>], plan: &Plan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        writeln!(text, "{step}").unwrap();
        let request = match &step.action {
            Action::Attach(request, token) => format!("{}\n  token {}", json(request), token.as_str()),
            Action::Update(_, change) | Action::Disown(_, change) => json(change),
            Action::CreateAddress(NewAddress { block, tags, token, .. }, _)
            | Action::CreateAddresses(NewAddress { block, tags, token, .. }, _) => {
                let block = block.map_or_else(String::new, |block| format!("from {block}, "));
                format!("{block}tags {}\n  token {}", json(tags), token.as_str())
            }
            _ => continue,
        };
        writeln!(text, "  {request}").unwrap();
    }
    for object in objects {
        let planned =
            &node_report::with_report(object, plan.statuses[&object.name_any()].clone(), None, Timestamp::UNIX_EPOCH);
        let ready = planned.ready.as_ref().unwrap_or(&planned.attached);
        let written = status(object, planned, None, &Time(Timestamp::UNIX_EPOCH));
        let is_changed = if written.is_some() { "written" } else { "unchanged" };
        let event =
            event_diff::of(object, planned).map_or_else(String::new, |event| format!(", {:?} Event", event.level));
        let [attached, of_ready] =
            [&planned.attached, ready].map(|it| format!("{} {}", it.reason.status(), it.reason.as_str()));
        writeln!(text, "status of {} {is_changed}{event}: Attached {attached}, Ready {of_ready}", object.name_any())
            .unwrap();
        writeln!(text, "  {}", ready.message).unwrap();
        if let Some(vnic) = &planned.facts.vnic_id {
            writeln!(text, "  {vnic} {:?}, for pods {:?}", planned.facts.own_addresses, planned.facts.pod_addresses)
                .unwrap();
        }
    }
    for (is_so, words) in [
        (plan.waits, "polled"),
        (plan.is_incomplete, "incomplete: retried with backoff"),
        (plan.queued, "objects wait for this attach or detach"),
        (plan.held, "waits for the pod network"),
        (plan.needs_pod_network, "the pod network is read first"),
        (plan.is_in_sync(), "in sync"),
    ] {
        if is_so {
            writeln!(text, "{words}").unwrap();
        }
    }
    if let Some(backoff) = plan.backoff {
        writeln!(text, "backs off for {:?}, number {}", backoff.left, backoff.number).unwrap();
    }
    plan.unclaimed.iter().for_each(|uid| writeln!(text, "without object: the VNIC of {uid}").unwrap());
    text
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

#[test]
fn plans_are_golden() {
    let mut cases: Vec<_> = fs::read_dir(GOLDEN).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    for case in &cases {
        let (plan, golden) = (planned(case), case.join("plan.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &plan).unwrap();
        }
        assert_eq!(plan, fs::read_to_string(&golden).unwrap_or_default(), "{}", case.display());
    }
    assert!(cases.len() > 50);
}
