//! Links of root and of other users, in a path and at its end.

use std::os::unix::fs::{lchown, symlink};

use super::*;
use crate::settings::fixture;
use crate::{PodNetwork, Settings, Signals, VersionCache, reconcile};

/// Another user than root, in the namespace of these tests.
const OTHER: u32 = 1;

#[test]
fn directories_are_created_through_links_of_root() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("etc")).unwrap();
    symlink("../var/lib/k3s/net.d", place.path().join("etc/net.d")).unwrap();
    symlink(place.path().join("etc"), place.path().join("absolute")).unwrap();
    check_links(&place.path().join("absolute/net.d/below")).unwrap();
    assert!(!place.path().join("var").exists(), "checking creates nothing");
    create_directory(&place.path().join("absolute/net.d/below")).unwrap();
    check_links(&place.path().join("absolute/net.d/below")).unwrap();
    assert!(place.path().join("var/lib/k3s/net.d/below").is_dir());
    create_directory(&place.path().join("etc/net.d/below")).unwrap();
}

#[test]
fn link_of_another_user_is_refused_anywhere_in_a_path() {
    let (place, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let link = place.path().join("net.d");
    symlink(theirs.path(), &link).unwrap();
    lchown(&link, Some(OTHER), None).unwrap();
    for path in [link.clone(), link.join("below")] {
        let error = create_directory(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(error.to_string(), "net.d in its path is a link that belongs to user 1, which is not followed");
        assert!(check_links(&path).is_err());
    }
    assert_eq!(fs::read_dir(theirs.path()).unwrap().count(), 0);
}

#[test]
fn files_and_endless_links_are_errors() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("file"), "").unwrap();
    symlink("round", place.path().join("round")).unwrap();
    for (path, code) in [("file", Errno::EEXIST), ("file/below", Errno::ENOTDIR), ("round", Errno::ELOOP)] {
        assert_eq!(create_directory(&place.path().join(path)).unwrap_err().raw_os_error(), Some(code as i32), "{path}");
    }
}

#[test]
fn mode_is_set_without_read_permission_and_not_through_links() {
    let place = tempfile::tempdir().unwrap();
    let (file, link) = (place.path().join("file"), place.path().join("link"));
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o200)).unwrap();
    symlink(&file, &link).unwrap();
    let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
    assert_eq!(set_mode(&link, 0o755).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(mode(), 0o200);
    set_mode(&file, 0o755).unwrap();
    assert_eq!(mode(), 0o755);
    assert!(set_mode(place.path(), 0o755).is_err(), "a directory");
}

#[test]
fn nothing_is_installed_behind_a_link_of_another_user() {
    let (place, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = fixture::settings_in(place.path());
    fs::create_dir_all(&settings.source_dir).unwrap();
    fs::write(settings.source_dir.join("vcn-native"), "#!/bin/sh\n").unwrap();
    symlink(theirs.path(), &settings.cni_bin_dir).unwrap();
    let signals = Signals::default();
    let settings = Settings { pod_network: PodNetwork::VcnNative, ..settings };
    let look = || reconcile(&settings, &signals, true, &mut VersionCache::default());
    lchown(&settings.cni_bin_dir, Some(OTHER), None).unwrap();
    let failures = look().failures.iter().map(|error| format!("{:?}", error)).collect::<Vec<_>>();
    assert!(failures[0].contains("bin in its path is a link that belongs to user 1"), "{failures:?}");
    assert_eq!(fs::read_dir(theirs.path()).unwrap().count(), 0);
    lchown(&settings.cni_bin_dir, Some(0), None).unwrap();
    let _ = look();
    assert_eq!(fs::read_dir(theirs.path()).unwrap().count(), 1, "root's is followed");
}
