//! Replacing one file. Readers, running processes and several installers are in `tests/command/disk.rs`, kills and failures at
//! every system call in `tests/command/kill.rs`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn write_replaces_files_and_links_and_leaves_nothing_else() {
    let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (target, other) = (directory.path().join("vcn-native"), outside.path().join("other"));
    fs::write(&other, "other's").unwrap();
    symlink(&other, &target).unwrap();
    for (contents, mode) in [(&b"one"[..], 0o755), (b"another", 0o600), (b"", 0o755)] {
        replace(&target, contents, mode, |_| Ok(())).unwrap();
        assert!(fs::symlink_metadata(&target).unwrap().is_file());
        let found = fs::metadata(&target).unwrap().permissions().mode() & 0o7777;
        assert_eq!((fs::read(&target).unwrap().as_slice(), found), (contents, mode));
    }
    assert_eq!(names(directory.path()), ["vcn-native"]);
    assert_eq!(fs::read_to_string(&other).unwrap(), "other's");
    let error = replace(&other.join("vcn-native"), &b"new"[..], 0o600, |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("creating its directory failed"), "{error}");
}

#[test]
fn failed_check_before_the_rename_keeps_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("05-vcn-native.conflist");
    fs::write(&target, "old").unwrap();
    let failed = replace(&target, &b"new"[..], 0o600, |_| Err(Error::Raced { target: target.clone() }));
    assert_eq!(failed.unwrap_err().word(), "raced");
    assert_eq!(fs::read_to_string(&target).unwrap(), "old");
    assert_eq!(names(directory.path()), ["05-vcn-native.conflist"]);
}
