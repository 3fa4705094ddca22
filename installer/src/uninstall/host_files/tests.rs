//! The host's files after a removal, compared by their hashes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use sha2::{Digest as _, Sha256};
use tunables::files::record::{Original, PendingChange, RecordedFile};
use tunables::files::{FileState, HostUnit};

use super::*;

const KEPT: &str = "/etc/sysctl.d/90-kept.conf";
const ADDED: &str = "/etc/systemd/system/kubelet.service.d/50-added.conf";
const FOREIGN: &str = "/etc/modprobe.d/foreign.conf";

struct Node {
    folder: tempfile::TempDir,
    host: Host,
    record: FileRecord,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["host/etc/sysctl.d", "host/etc/modprobe.d", "host/etc/systemd/system", "data/files"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let host = Host::new(&folder.path().join("host"), &folder.path().join("data/files"));
        let record = FileRecord { version: 1, cluster: "c".to_owned(), ..FileRecord::default() };
        Self { folder, host, record }
    }

    /// A policy's file, and what was there before.
    fn apply(&mut self, path: &str, before: Option<&str>, content: &str) {
        if let Some(before) = before {
            self.host.write(path, before.as_bytes(), 0o640).unwrap();
            self.host.keep(path, Copies::Originals).unwrap();
        }
        self.host.write(path, content.as_bytes(), 0o644).unwrap();
        let original =
            before.map_or(Original::Absent, |before| Original::Kept(FileState::of(before.as_bytes(), 0o640)));
        let applied = FileState::of(content.as_bytes(), 0o644);
        self.record.files.insert(path.to_owned(), RecordedFile { original, applied, policy: "u".to_owned() });
    }

    fn restore(&self, applied: bool) -> Removal {
        let data = self.folder.path().join("data");
        fs::write(data.join("files/record.json"), serde_json::to_vec(&self.record).unwrap()).unwrap();
        let mut removal = Removal { applied, ..Removal::default() };
        restore(&data, &self.folder.path().join("host"), &mut removal);
        removal
    }

    /// As `sha256sum` prints it, with the mode.
    fn sum(&self, path: &str) -> Option<(String, u32)> {
        let at = self.folder.path().join("host").join(path.trim_start_matches('/'));
        let mode = fs::metadata(&at).ok()?.permissions().mode() & 0o7777;
        Some((format!("{:x}", Sha256::digest(fs::read(at).unwrap())), mode))
    }
}

fn sum(content: &str, mode: u32) -> Option<(String, u32)> {
    Some((format!("{:x}", Sha256::digest(content)), mode))
}

#[test]
fn files_have_the_hashes_of_their_originals() {
    let mut node = Node::new();
    node.apply(KEPT, Some("vm.swappiness = 10\n"), "vm.swappiness = 20\n");
    node.apply(ADDED, None, "[Service]\nNice=1\n");
    node.apply(FOREIGN, Some("options a b=1\n"), "options a b=2\n");
    node.host.write(FOREIGN, b"options a b=3\n", 0o644).unwrap();
    let planned = node.restore(false);
    assert_eq!((planned.steps.len(), node.sum(KEPT)), (2, sum("vm.swappiness = 20\n", 0o644)), "a dry run");
    let removal = node.restore(true);
    assert_eq!(removal.steps, [format!("restore {KEPT}"), format!("remove {ADDED}")]);
    assert_eq!(node.sum(KEPT), sum("vm.swappiness = 10\n", 0o640));
    assert_eq!(node.sum(ADDED), None);
    assert_eq!(node.sum(FOREIGN), sum("options a b=3\n", 0o644), "another program's content stays");
    assert!(removal.left[0].starts_with(FOREIGN) && removal.failures.is_empty(), "{removal:?}");
    assert!(removal.notes[0].contains("kubelet.service") && removal.notes[0].contains("systemd-sysctl.service"));
}

#[test]
fn change_that_nothing_confirmed_is_taken_back_first() {
    let mut node = Node::new();
    node.apply(KEPT, Some("original\n"), "first\n");
    let applied = node.record.files[KEPT].clone();
    node.host.keep(KEPT, Copies::Pending).unwrap();
    node.host.write(KEPT, b"second\n", 0o644).unwrap();
    node.host.write(ADDED, b"[Service]\nNice=1\n", 0o644).unwrap();
    // As the beginning of a change records it.
    let written = |text: &str, original| RecordedFile {
        original,
        applied: FileState::of(text.as_bytes(), 0o644),
        policy: "u".to_owned(),
    };
    node.record.files.insert(KEPT.to_owned(), written("second\n", applied.original.clone()));
    node.record.files.insert(ADDED.to_owned(), written("[Service]\nNice=1\n", Original::Absent));
    node.record.pending = Some(PendingChange {
        order: "o".to_owned(),
        before: [(KEPT.to_owned(), Some(applied.applied.clone())), (ADDED.to_owned(), None)].into(),
        records: [(KEPT.to_owned(), Some(applied)), (ADDED.to_owned(), None)].into(),
        units: [HostUnit::Kubelet].into(),
        ..PendingChange::default()
    });
    let removal = node.restore(true);
    assert_eq!((node.sum(KEPT), node.sum(ADDED)), (sum("original\n", 0o640), None), "{removal:?}");
}

#[test]
fn file_that_cannot_be_read_keeps_the_copy_of_its_earlier_content() {
    let mut node = Node::new();
    node.apply(KEPT, Some("original\n"), "first\n");
    let at = node.folder.path().join("host").join(KEPT.trim_start_matches('/'));
    fs::hard_link(&at, at.with_extension("second")).unwrap();
    let removal = node.restore(true);
    assert!(removal.failures[0].to_string().contains(KEPT) && removal.left.is_empty(), "{removal:?}");
    assert!(node.host.has_copy(KEPT, Copies::Originals));
}

#[test]
fn change_of_another_program_since_an_unconfirmed_change_stays() {
    let mut node = Node::new();
    node.apply(KEPT, Some("original\n"), "first\n");
    let applied = node.record.files[KEPT].applied.clone();
    node.host.keep(KEPT, Copies::Pending).unwrap();
    node.record.files.get_mut(KEPT).unwrap().applied = FileState::of(b"second\n", 0o644);
    node.record.pending =
        Some(PendingChange { before: [(KEPT.to_owned(), Some(applied))].into(), ..PendingChange::default() });
    node.host.write(KEPT, b"an administrator's\n", 0o644).unwrap();
    let removal = node.restore(true);
    assert_eq!(node.sum(KEPT), sum("an administrator's\n", 0o644), "{removal:?}");
}

#[test]
fn files_stay_where_the_hosts_folders_are_missing() {
    let mut node = Node::new();
    node.apply(KEPT, None, "a\n");
    fs::rename(node.folder.path().join("host/etc"), node.folder.path().join("host/elsewhere")).unwrap();
    let removal = node.restore(true);
    assert!(removal.steps.is_empty() && removal.failures[0].to_string().contains(KEPT), "{removal:?}");
    assert_eq!(Node::new().restore(true).status(), crate::RemovalStatus::All, "a record without files");
}
