//! Files of node policies: the agent in its container compares them, leaves the order for a Pod, and takes the leader's confirmation. It
//! writes no file of the host.

use std::fs;
use std::path::Path;

use channel::Request;
use health::Summary;
use serde_json::{Value, json};
use tunables::document::FILES_PATH;
use tunables::files::{FileRecord, FileState, Original, PendingChange, RecordedFile};
use tunables::{FilesAnswer, FilesState, NodeAnswer, PolicyState};

use crate::node::Node;
use crate::node_policies::{Leader, document, items};
use crate::running::wait_for;

const PATH: &str = "/etc/sysctl.d/90-web.conf";
const UNIT_FILE: &str = "/etc/systemd/system/kubelet.service.d/50-web.conf";
const CONTENT: &str = "vm.swappiness = 10\n";

fn with_files(revision: &str) -> Value {
    let mut document = document(revision, "apply", &[]);
    document["files"] = json!([{ "path": PATH, "content": CONTENT, "mode": 0o644, "policy": 0 },
        { "path": UNIT_FILE, "content": "[Service]\n", "mode": 0o644, "policy": 0 }]);
    document["grants"] = json!(["hostFiles"]);
    document
}

fn files(answer: &NodeAnswer) -> FilesAnswer {
    answer.files.clone().unwrap()
}

/// In steps, because each test would start an agent of its own.
#[test]
fn agent_compares_files_and_leaves_the_order_for_a_pod() {
    let node = Node::with_pods();
    let folder = node.path("etc-sysctl.d");
    fs::create_dir_all(&folder).unwrap();
    let leader = Leader::new(&node);
    let agent = leader.start(node.container().with_volume(&folder, Path::new("/host/etc/sysctl.d")), &[]);
    let data = |name: &str| node.path("lib/files").join(name);
    let summary =
        || serde_json::from_slice::<Summary>(&leader.request(&agent, &Request::get("/v1/summary")).body).unwrap();

    let answer = leader.send(&agent, &with_files("a"));
    assert!(summary().node_policy.unwrap().files);
    let due = files(&answer);
    assert_eq!((due.state, answer.policies[0].state), (FilesState::Due, PolicyState::Applying));
    let not_granted = items(&answer);
    assert_eq!(not_granted.len(), 1, "{not_granted:?}");
    assert!(not_granted[0].starts_with(&format!("{UNIT_FILE} NotGranted")), "the folder is mounted, not permitted");
    assert!(answer.items[0].message.contains("hostCode"), "{answer:?}");
    assert!(fs::read_to_string(data("order.json")).unwrap().contains(PATH));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "the agent writes no file of the host");

    let confirm =
        |order: &str| leader.request(&agent, &Request::post(FILES_PATH, json!({ "order": order }).to_string()));
    assert_eq!(confirm(&due.order).status, 409, "no Pod has begun");
    // What a Pod does.
    let state = FileState::of(CONTENT.as_bytes(), 0o644);
    let recorded = RecordedFile { original: Original::Absent, applied: state, policy: "u".to_owned() };
    let pending = PendingChange { order: due.order.clone(), ..PendingChange::default() };
    let record = FileRecord {
        version: tunables::files::record::VERSION,
        cluster: "c".to_owned(),
        files: [(PATH.to_owned(), recorded)].into(),
        pending: Some(pending),
        ..FileRecord::default()
    };
    let write = |record: &FileRecord| fs::write(data("record.json"), serde_json::to_vec(record).unwrap()).unwrap();
    fs::write(folder.join("90-web.conf"), CONTENT).unwrap();
    write(&record.prove(Some(7)));
    let is = |expected: FilesState| files(&leader.answer(&agent)).state == expected;
    wait_for("the change waits for the leader", || is(FilesState::Confirmable), || agent.log());
    assert_eq!(files(&leader.answer(&agent)).kubelet_started, Some(7));
    assert_eq!(confirm("another").status, 409);
    assert_eq!(confirm(&due.order).status, 200);
    assert_eq!(fs::read_to_string(data("confirmed")).unwrap(), due.order);
    write(&record.confirm());
    // All that is left to do is not permitted.
    wait_for("the change is done", || is(FilesState::NotGranted), || agent.log());
    let done = leader.answer(&agent);
    assert_eq!((done.policies[0].state, done.in_sync), (PolicyState::Applied, 1));

    // Another program changed it: it is reported, and no Pod is due.
    fs::write(folder.join("90-web.conf"), "vm.swappiness = 99\n").unwrap();
    let foreign = leader.send(&agent, &with_files("b"));
    assert!(items(&foreign).iter().any(|item| item.starts_with(&format!("{PATH} Drifted 0644"))), "{foreign:?}");
    assert_eq!(files(&foreign).state, FilesState::NotGranted);
    // The policy goes: the file has other content, so a Pod only forgets it.
    let mut undo = document("c", "", &[]);
    undo["grants"] = json!(["hostFiles"]);
    let left = leader.send(&agent, &undo);
    assert_eq!((files(&left).state, files(&left).owners), (FilesState::Due, vec!["u".to_owned()]));
    write(&FileRecord { files: Default::default(), ..record.confirm() });
    wait_for("nothing is left", || leader.answer(&agent).files.is_none(), || agent.log());
    assert_eq!(fs::read_to_string(folder.join("90-web.conf")).unwrap(), "vm.swappiness = 99\n");
}
