//! The record across versions, backups, and the rewrite limiter.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::backup::Backup;
use super::*;

#[test]
fn record_keeps_fields_of_a_later_version() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let text = r#"{
  "version": 2,
  "configurations": {
    "05-vcn-native.conflist": {
      "wanted": {"name": "vcn-native"},
      "plugins": ["portmap", "vcn-native"],
      "rewrites": [5],
      "later": [1]
    }
  },
  "binaries": {"vcn-native": {"digests": ["bb"], "rewrites": [7], "later": {}}},
  "later": true
}"#;
    fs::write(directory.path().join(FILE), text).unwrap();
    Record::read(data).0.write(data).unwrap();
    let (before, after): (Value, Value) = (
        serde_json::from_str(text).unwrap(),
        serde_json::from_slice(&fs::read(directory.path().join(FILE)).unwrap()).unwrap(),
    );
    assert_eq!(after, before);
    for earlier in ["{}", r#"{"version":0,"configurations":{"a":{}},"binaries":{"b":{}}}"#] {
        fs::write(directory.path().join(FILE), earlier).unwrap();
        assert!(Record::read(data).1.is_none(), "{earlier}");
    }
}

#[test]
fn backup_restores_contents_mode_and_links() {
    let directory = tempfile::tempdir().unwrap();
    let (target, data) = (directory.path().join("vcn-native"), directory.path().join("lib"));
    Backup::make(&target, "vcn-native", &data).unwrap();
    assert_eq!(Backup::find(&data, "vcn-native"), None, "nothing was there");
    fs::write(&target, [0, 159, 146, 150]).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o710)).unwrap();
    Backup::make(&target, "vcn-native", &data).unwrap();
    fs::write(&target, "desired").unwrap();
    let backup = Backup::find(&data, "vcn-native").unwrap();
    backup.restore(&target).unwrap();
    assert_eq!(fs::read(&target).unwrap(), [0, 159, 146, 150]);
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o710);
    backup.remove().unwrap();

    // Release 0.2.0 kept links, too.
    symlink("nowhere", data.join("before/0.0.vcn-native")).unwrap();
    Backup::find(&data, "vcn-native").unwrap().restore(&target).unwrap();
    assert_eq!(fs::read_link(&target).unwrap(), Path::new("nowhere"));
}

/// Release 0.2.0 kept them.
#[test]
fn backup_of_a_damaged_file_is_neither_made_nor_found() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("lib");
    for (name, cut, healthy) in [("vcn-native", "", "#!/bin/sh\n"), (vcn::CONFLIST_FILE, "\0\0\0\0", "{}")] {
        let (target, copy) = (directory.path().join(name), data.join(format!("before/0.0.{name}")));
        fs::write(&target, cut).unwrap();
        Backup::make(&target, name, &data).unwrap();
        assert!(!copy.exists());
        fs::create_dir_all(data.join("before")).unwrap();
        fs::write(&copy, cut).unwrap();
        assert_eq!(Backup::find(&data, name), None);
        fs::write(&target, healthy).unwrap();
        Backup::make(&target, name, &data).unwrap();
        assert!(Backup::find(&data, name).is_some(), "it replaces the damaged one");
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn limiter(first: u64, count: u64) -> ConfigurationRecord {
    let mut limiter = ConfigurationRecord::default();
    (first..first + count).for_each(|second| limiter.count(at(second)));
    limiter
}

#[test]
fn limiter_allows_one_repair_a_minute_after_five_in_ten_minutes() {
    assert_eq!(limiter(1000, 4).pause(at(1004)), None);
    let mut limiter = limiter(1000, 5);
    assert_eq!(limiter.pause(at(1010)), Some(Duration::from_secs(54)));
    assert_eq!(limiter.pause(at(1064)), None);
    limiter.count(at(1064));
    assert_eq!(limiter.pause(at(1065)), Some(Duration::from_secs(59)));
    assert_eq!(limiter.pause(at(1604)), None, "the first no longer counts");
}

#[test]
fn limiter_ignores_repairs_of_a_wrong_clock() {
    assert_eq!(limiter(90_000, 9).pause(at(1000)), None);
}
