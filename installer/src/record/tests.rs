//! What is remembered over versions, crashes and wars.

use std::fs;

use super::*;
use crate::Error;

#[test]
fn a_record_is_read_as_it_was_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = RecordFile::new(&directory.path().join("lib"));
    assert_eq!(file.read().unwrap(), Record::default());
    let mut record = Record::default();
    let ours = record.configurations.entry("05-vcn-native.conflist".into()).or_default();
    ours.written = Some("{}".into());
    ours.fights.fought(std::time::UNIX_EPOCH);
    record.binaries.entry("vcn-native".into()).or_default().digest = Some("00".into());
    file.keep(&record).unwrap();
    record.version = 1;
    assert_eq!(file.read().unwrap(), record);
}

#[test]
fn what_a_later_version_adds_is_kept_by_this_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = RecordFile::new(directory.path());
    let text = r#"{
  "version": 2,
  "configurations": {
    "05-vcn-native.conflist": {
      "written": "text",
      "wanted": {"name": "vcn-native"},
      "before": {"digest": "aa", "mode": 420, "uid": 1, "gid": 2, "later": {"x": 1}},
      "fights": [5],
      "later": [1]
    }
  },
  "binaries": {"vcn-native": {"digest": "bb", "fights": [7], "later": {}}},
  "later": true
}"#;
    fs::write(file.path(), text).unwrap();
    let record = file.read().unwrap();
    assert_eq!(record.configurations["05-vcn-native.conflist"].written.as_deref(), Some("text"));
    file.keep(&record).unwrap();
    let (before, after): (Value, Value) =
        (serde_json::from_str(text).unwrap(), serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap());
    assert_eq!(after, before);
}

#[test]
fn what_an_earlier_version_did_not_write_is_not_missed() {
    let directory = tempfile::tempdir().unwrap();
    let file = RecordFile::new(directory.path());
    for text in ["{}", r#"{"version":0,"configurations":{"a":{}},"binaries":{"b":{}}}"#] {
        fs::write(file.path(), text).unwrap();
        assert!(file.read().is_ok(), "{text}");
    }
}

#[test]
fn a_damaged_record_is_named_and_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let file = RecordFile::new(directory.path());
    fs::write(file.path(), "{\"version\": 1, \"confi").unwrap();
    let error = file.read().unwrap_err();
    assert!(matches!(error, Error::Record { .. }) && error.to_string().contains("installer.json"), "{error}");
    file.set_aside().unwrap();
    assert_eq!(file.read().unwrap(), Record::default());
    assert!(directory.path().join("installer.json.damaged").exists());
    // The first may tell more than the next one.
    fs::write(file.path(), "{").unwrap();
    file.set_aside().unwrap();
    let kept = ["installer.json.damaged", "installer.json.damaged.2"].map(|name| directory.path().join(name));
    assert_eq!(file.aside(), kept);
    assert_eq!(kept.map(|path| fs::read_to_string(path).unwrap()), ["{\"version\": 1, \"confi", "{"]);
}

#[test]
fn what_was_there_before_is_given_back_with_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let (target, data) = (directory.path().join("vcn-native"), directory.path().join("lib"));
    assert_eq!(Before::keep(&target, &data).unwrap(), None);
    fs::write(&target, [0, 159, 146, 150]).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o710)).unwrap();
    let before = Before::keep(&target, &data).unwrap().unwrap();
    fs::write(&target, "ours").unwrap();
    before.give_back(&target, &data).unwrap();
    assert_eq!(fs::read(&target).unwrap(), [0, 159, 146, 150]);
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o710);

    let kept = data.join("before").join(&before.digest);
    fs::write(&kept, "spoilt").unwrap();
    before.give_back(&target, &data).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o711)).unwrap();
    assert!(matches!(before.give_back(&target, &data), Err(Error::Corrupt { .. })));
    assert_eq!(fs::read(&target).unwrap(), [0, 159, 146, 150], "nothing wrong is given back");
}

#[test]
fn what_was_there_before_is_copied_piece_by_piece_and_not_without_bound() {
    use crate::place::LARGEST;
    let directory = tempfile::tempdir().unwrap();
    let (target, data) = (directory.path().join("vcn-native"), directory.path().join("lib"));
    let contents: Vec<u8> = (0..(3 << 20) + 7).map(|at| u8::try_from(at % 251).unwrap()).collect();
    fs::write(&target, &contents).unwrap();
    let before = Before::keep(&target, &data).unwrap().unwrap();
    assert_eq!(fs::read(data.join("before").join(&before.digest)).unwrap(), contents);
    fs::write(&target, "ours").unwrap();
    before.give_back(&target, &data).unwrap();
    assert_eq!(fs::read(&target).unwrap(), contents);

    let file = fs::File::create(&target).unwrap();
    file.set_len(LARGEST + 1).unwrap();
    let refused = Before::keep(&target, &data).unwrap_err();
    assert!(matches!(&refused, Error::TooLarge { most: LARGEST, .. }), "{refused}");
    assert!(refused.to_string().contains("larger than 256 MiB"), "{refused}");
    assert_eq!(fs::read_dir(data.join("before")).unwrap().count(), 1, "nothing more is kept");
    assert_eq!(fs::metadata(&target).unwrap().len(), LARGEST + 1);
}

/// A pipe would be waited for until somebody writes to it.
#[test]
fn what_is_no_file_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("vcn-native");
    nix::unistd::mkfifo(&target, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refused = Before::keep(&target, directory.path()).unwrap_err();
    assert!(matches!(refused, Error::NoFile { .. }), "{refused}");
}
