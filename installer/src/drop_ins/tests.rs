//! Notes of drop-ins, and whose a file is.

use std::fs;

use super::*;

#[test]
fn drop_in_is_noted_once_and_later_fields_are_kept() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join(FILE);
    fs::write(&path, r#"{"version":2,"written":["etc/later.d/x.conf"],"later":{"a":[1]}}"#).unwrap();
    note_drop_in(data.path(), NETWORKD).unwrap();
    let kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let wanted = serde_json::json!(
        {"version": 2, "written": ["etc/later.d/x.conf", NETWORKD], "later": {"a": [1]}});
    assert_eq!(kept, wanted);
    let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    let before = inode();
    note_drop_in(data.path(), NETWORKD).unwrap();
    assert_eq!(inode(), before);
    fs::write(&path, "{").unwrap();
    note_drop_in(data.path(), NETWORKD).unwrap();
    assert_eq!(read(&path).unwrap().written, BTreeSet::from([NETWORKD.to_owned()]));
}

#[test]
fn special_file_is_not_recognized_and_does_not_block() {
    let data = tempfile::tempdir().unwrap();
    let (path, ours) = (data.path().join(FILE), data.path().join("drop-in"));
    fs::write(&ours, MARK).unwrap();
    let plant: [&dyn Fn(); 3] = [
        &|| nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        &|| std::os::unix::fs::symlink(&ours, &path).unwrap(),
        &|| fs::File::create(&path).unwrap().set_len(3 << 30).unwrap(),
    ];
    for plant in plant {
        plant();
        assert_eq!(is_ours(&path).unwrap(), Some(false));
        assert!(matches!(noted_drop_ins(data.path()), Err(Error::Record { .. })));
        // Replaced like damaged notes.
        note_drop_in(data.path(), NETWORKD).unwrap();
        assert_eq!(noted_drop_ins(data.path()).unwrap(), BTreeSet::from([NETWORKD.to_owned()]));
        assert_eq!(fs::read_to_string(&ours).unwrap(), MARK);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn forgotten_drop_in_leaves_the_other_notes() {
    let data = tempfile::tempdir().unwrap();
    for below in [NETWORKD, NETWORKD_PODS] {
        note_drop_in(data.path(), below).unwrap();
    }
    forget_drop_in(data.path(), NETWORKD).unwrap();
    forget_drop_in(data.path(), NETWORK_MANAGER).unwrap();
    assert_eq!(noted_drop_ins(data.path()).unwrap(), BTreeSet::from([NETWORKD_PODS.to_owned()]));
}

#[test]
fn notes_lead_only_below_etc() {
    for (below, leads) in [("etc/a/b.conf", true), ("etc/../run/x", false), ("run/x", false), ("etc//x", false)] {
        assert_eq!(is_below_etc(below), leads, "{below}");
    }
}
