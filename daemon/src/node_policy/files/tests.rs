//! The agent with a folder as its host.

use std::fs;
use std::path::Path;

use tunables::files::{FileRecord, PendingChange};
use tunables::{DesiredHostFile, DocumentMode, FilesState};

use super::*;
use crate::node_policy::plan::tests::document;

const PATH: &str = "/etc/sysctl.d/90-web.conf";

fn node() -> (tempfile::TempDir, Host, NodeDocument) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["host/etc/sysctl.d", "data"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let host = Host::new(&folder.path().join("host"), &folder.path().join("data/files"));
    let mut document = document(&[("vm.swappiness", "10", DocumentMode::Apply)]);
    let (path, content) = (PATH.to_owned(), "vm.swappiness = 10\n".to_owned());
    document.files.push(DesiredHostFile { path, content, mode: 0o644, policy: 0 });
    (folder, host, document.permit(&[api::node_policy::FileGrant::HostFiles]))
}

fn state(host: &Host, document: &NodeDocument) -> FilesState {
    let (comparison, error) = compare_files(host, document);
    assert_eq!(error, None);
    comparison.answer.unwrap().state
}

fn write_record(host: &Host, record: &FileRecord) {
    fs::write(host.data(RECORD), serde_json::to_vec(record).unwrap()).unwrap();
}

#[test]
fn agent_leaves_the_order_and_writes_no_file_of_the_host() {
    let (folder, host, document) = node();
    assert_eq!(state(&host, &document), FilesState::Due);
    let (text, sha256) = FileOrder::of(&document).to_text();
    assert_eq!(fs::read(host.data(ORDER)).unwrap(), text);
    assert_eq!(compare_files(&host, &document).0.answer.unwrap().order, sha256);
    assert_eq!(fs::read_dir(folder.path().join("host/etc/sysctl.d")).unwrap().count(), 0);
    // Nothing is left where there is nothing to do.
    let (_other, empty, _) = node();
    let plain = crate::node_policy::plan::tests::document(&[]);
    assert_eq!(compare_files(&empty, &plain).0.answer, None);
    assert!(!empty.data(ORDER).exists());
}

#[test]
fn folder_that_is_not_mounted_is_not_granted() {
    let (folder, host, document) = node();
    fs::remove_dir(folder.path().join("host/etc/sysctl.d")).unwrap();
    let (comparison, _) = compare_files(&host, &document);
    assert_eq!(comparison.answer.unwrap().state, FilesState::NotGranted);
    assert!(comparison.reports[0].message.contains("/etc/sysctl.d"), "{:?}", comparison.reports);
}

#[test]
fn damaged_record_is_reported_and_never_an_empty_one() {
    let (_folder, host, document) = node();
    assert_eq!(state(&host, &document), FilesState::Due);
    for text in ["", "{", "{\"version\": 2}"] {
        fs::write(host.data(RECORD), text).unwrap();
        let (comparison, error) = compare_files(&host, &document);
        assert_eq!(error.unwrap().0, RECORD, "{text}");
        assert_eq!(comparison.reports[0].state, tunables::ItemState::Failed);
        assert!(!is_unsettled(&comparison), "no Pod runs");
    }
}

#[test]
fn change_is_confirmed_only_while_it_waits() {
    let (_folder, host, document) = node();
    assert_eq!(state(&host, &document), FilesState::Due);
    let (_, order) = FileOrder::of(&document).to_text();
    let body = |order: &str| serde_json::to_vec(&FileConfirmation { order: order.to_owned() }).unwrap();
    let status = |order: &str| confirm(&host, &body(order)).err().map_or(200, |refused| refused.status());
    assert_eq!(status(&order), 409, "no Pod has begun");
    let pending = PendingChange { order: order.clone(), ..PendingChange::default() };
    let begun = FileRecord {
        version: tunables::files::record::VERSION,
        cluster: document.cluster.clone(),
        pending: Some(pending),
        ..FileRecord::default()
    };
    write_record(&host, &begun);
    assert_eq!((state(&host, &document), status(&order)), (FilesState::Changing, 409), "the units are not proven");
    write_record(&host, &begun.prove(None));
    assert_eq!((state(&host, &document), status("another\u{1b}")), (FilesState::Confirmable, 409));
    assert!(!host.data(CONFIRMATION).exists());
    assert_eq!(status(&order), 200);
    assert_eq!(fs::read_to_string(host.data(CONFIRMATION)).unwrap(), order);
    for body in [&b""[..], b"{}", b"[", br#"{"order": 7}"#] {
        assert_eq!(confirm(&host, body).unwrap_err().status(), 400);
    }
    assert!(Path::new(&host.data(RECORD)).exists());
}
