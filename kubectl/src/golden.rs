//! Golden tests: the answers of each command as text, from the documents in `golden/`. `UPDATE_DOCS=1` writes the texts.

use std::fs;
use std::path::PathBuf;

use api::VnicAttachment;
use health::Fleet;
use k8s_openapi::api::core::v1::Node;
use resident::page::Page;
use serde::de::DeserializeOwned;
use vcn::Ocid;

use crate::cluster::Attachments;
use crate::commands::node::{NodeAnswer, NodeObject};
use crate::commands::status::Status;
use crate::commands::vnics::Vnics;
use crate::nodes;
use crate::run::{Answer, Exit, Style};

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
    assert_eq!(resident::documents::compare_file(&path(file), &page.into_text()), Ok(()));
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
fn status_shows_the_worst_nodes_first() {
    shows(&status(), NARROW, "status/table.txt");
    shows(&status(), WIDE, "status/wide.txt");
    assert_eq!(status().exit(), Exit::Problem);
    let mut fleet: Fleet = read("status/fleet.json");
    fleet.nodes.retain(|node| node.name == "10.0.0.1");
    assert_eq!(Status::new(fleet, None).exit(), Exit::Fine);
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
    assert_eq!(resident::documents::compare_file(&path("status/output.yaml"), &text), Ok(()));
}

#[test]
fn node_shows_problems_with_the_next_step() {
    let object: Node = read("node/object.json");
    let instance = api::instance_of("ocid1.instance.oc1.iad.anuwcljt10002").unwrap();
    let has = NodeObject::of(&object);
    let answer = NodeAnswer::of_view(read("node/view.json"), has.clone(), vnics(Some(&instance)));
    shows(&answer, NARROW, "node/table.txt");
    let text = serde_json::to_string_pretty(&answer).unwrap() + "\n";
    assert_eq!(resident::documents::compare_file(&path("node/output.json"), &text), Ok(()));
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
    assert_eq!((answer.findings.len(), answer.details_error.as_deref()), (7, Some("no answer within 5 s")));
    view["details"] = serde_json::json!({ "status": 7 });
    let answer = NodeAnswer::of_view(serde_json::from_value(view).unwrap(), NodeObject::default(), Vnics::default());
    assert_eq!(answer.findings.len(), 7);
    assert!(answer.details_error.unwrap().contains("its report cannot be read"));
}

#[test]
fn vnics_shows_what_is_not_ready_first() {
    shows(&vnics(None), NARROW, "vnics/table.txt");
    assert_eq!((vnics(None).exit(), Vnics::default().exit()), (Exit::Problem, Exit::Fine));
    assert_eq!(Vnics::unread("403".to_owned()).exit(), Exit::Problem);
}
