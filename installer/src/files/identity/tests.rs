//! Every change of a file shows.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

#[test]
fn link_to_a_folder_is_not_followed() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    symlink(elsewhere.path(), directory.path().join("folder")).unwrap();
    fs::create_dir(elsewhere.path().join("sub")).unwrap();
    let Snapshot(files) = Snapshot::default().with(directory.path());
    assert_eq!(files.keys().collect::<Vec<_>>(), [&directory.path().join("folder")]);
}

#[test]
fn snapshot_differs_after_any_change_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let (file, other) = (directory.path().join("file"), directory.path().join("other"));
    fs::write(&file, "one").unwrap();
    fs::create_dir(directory.path().join("folder")).unwrap();
    fs::write(directory.path().join("folder/10-a.conf"), "one").unwrap();
    let look = || Snapshot::default().with(directory.path()).with(&other);
    let mut before = look();
    assert_eq!(look(), before);
    let changes: [(&str, &dyn Fn()); 6] = [
        ("other content of the same length", &|| fs::write(&file, "two").unwrap()),
        ("another mode", &|| fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap()),
        ("a copy in its place", &|| _ = (fs::copy(&file, &other).unwrap(), fs::rename(&other, &file).unwrap())),
        ("a link that leads elsewhere", &|| symlink(&file, &other).unwrap()),
        ("other content in a folder", &|| fs::write(directory.path().join("folder/10-a.conf"), "two").unwrap()),
        ("a file less", &|| fs::remove_file(&file).unwrap()),
    ];
    for (what, change) in changes {
        change();
        assert_ne!(look(), before, "{what}");
        before = look();
    }
}
