//! Files of a host that is a folder.

use std::os::unix::fs::symlink;

use super::*;

fn host() -> (tempfile::TempDir, Host) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["host/etc/sysctl.d", "data"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let host = Host::new(&folder.path().join("host"), &folder.path().join("data"));
    (folder, host)
}

const PATH: &str = "/etc/sysctl.d/90-web.conf";

#[test]
fn file_is_written_kept_and_put_back_with_its_mode() {
    let (_folder, host) = host();
    assert_eq!(host.observe(PATH), ObservedFile::Absent);
    host.write(PATH, b"old\n", 0o600).unwrap();
    assert_eq!(host.observe(PATH), ObservedFile::Present(FileState::of(b"old\n", 0o600)));
    host.keep(PATH, Copies::Originals).unwrap();
    host.write(PATH, b"new\n", 0o644).unwrap();
    assert_eq!(host.observe(PATH), ObservedFile::Present(FileState::of(b"new\n", 0o644)));
    host.put_back(PATH, Copies::Originals, &FileState::of(b"old\n", 0o600)).unwrap();
    assert_eq!(host.observe(PATH), ObservedFile::Present(FileState::of(b"old\n", 0o600)));
    host.remove(PATH).unwrap();
    host.remove(PATH).unwrap();
    assert_eq!(host.observe(PATH), ObservedFile::Absent);
    assert_eq!(fs::read_dir(host.at("/etc/sysctl.d")).unwrap().count(), 0, "no temporary file is left");
}

#[test]
fn new_folder_of_drop_ins_is_created_and_no_other() {
    let (_folder, host) = host();
    host.write("/etc/chrony.d/x.conf", b"x\n", 0o644).unwrap();
    assert!(host.write("/etc/chrony/conf.d/x.conf", b"x\n", 0o644).is_err());
    // What a damaged record may name.
    for path in ["/etc/shadow", "/etc/sysctl.d/../shadow", "/etc/chrony.d/../../x.conf"] {
        assert_eq!(host.write(path, b"x\n", 0o644).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{path}");
        assert_eq!(host.remove(path).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{path}");
    }
}

#[test]
fn links_and_files_of_two_names_are_left_alone() {
    let (folder, host) = host();
    let outside = folder.path().join("outside.conf");
    fs::write(&outside, "outside\n").unwrap();
    symlink(&outside, host.at(PATH)).unwrap();
    assert!(matches!(host.observe(PATH), ObservedFile::Unusable(why) if why.contains("link")));
    fs::remove_file(host.at(PATH)).unwrap();
    fs::hard_link(&outside, host.at(PATH)).unwrap();
    assert!(matches!(host.observe(PATH), ObservedFile::Unusable(_)));
    fs::create_dir(folder.path().join("elsewhere")).unwrap();
    symlink(folder.path().join("elsewhere"), host.at("/etc/linked.d")).unwrap();
    for path in ["/etc/linked.d/x.conf", "/etc/linked.d/conf.d/x.conf"] {
        fs::create_dir_all(folder.path().join("elsewhere/conf.d")).unwrap();
        assert!(matches!(host.observe(path), ObservedFile::Unusable(why) if why.contains("link")), "{path}");
    }
}

#[test]
fn copy_that_is_not_the_recorded_one_is_not_put_back() {
    let (_folder, host) = host();
    host.write(PATH, b"old\n", 0o644).unwrap();
    host.keep(PATH, Copies::Pending).unwrap();
    fs::write(host.copy(Copies::Pending, PATH), "another\n").unwrap();
    host.write(PATH, b"new\n", 0o644).unwrap();
    let [old, new] = ["old\n", "new\n"].map(|content| FileState::of(content.as_bytes(), 0o644));
    let error = host.take_back(PATH, Some(&old), Some(&new)).unwrap_err().to_string();
    assert!(error.contains("its copy is"), "{error}");
    assert_eq!(host.observe(PATH), ObservedFile::Present(new));
}

#[test]
fn file_of_another_group_is_left_alone() {
    let (_folder, host) = host();
    host.write(PATH, b"old\n", 0o640).unwrap();
    let other = Host { owner: Owner { group: host.owner.group + 1, ..host.owner }, ..host };
    assert!(matches!(other.observe(PATH), ObservedFile::Unusable(why) if why.contains("group")));
}
