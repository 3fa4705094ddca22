//! What a planted link, pipe or file can do to a read or a write, and which damaged files are kept.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use nix::unistd::mkfifo;

use super::*;

#[test]
fn read_refuses_what_is_no_regular_file_or_too_large() {
    let directory = tempfile::tempdir().unwrap();
    let (path, outside) = (directory.path().join("file.json"), directory.path().join("outside"));
    fs::write(&outside, "{}").unwrap();
    let pipe = || mkfifo(&path, Mode::S_IRWXU).unwrap();
    let link = || symlink(&outside, &path).unwrap();
    let socket = || drop(UnixListener::bind(&path).unwrap());
    let huge = || File::create(&path).unwrap().set_len(3 << 30).unwrap();
    let cases: [(&dyn Fn(), &str); 4] = [
        (&pipe, "it is a pipe, a socket or a device, not a regular file"),
        (&link, "it is a symbolic link, which is not followed"),
        (&socket, "it is a pipe, a socket or a device, not a regular file"),
        (&huge, "it has 3221225472 bytes, and at most 8388608 are read"),
    ];
    for (plant, complaint) in cases {
        plant();
        let error = read_state(&path).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::InvalidData, complaint));
        fs::remove_file(&path).unwrap();
    }
    File::create(&path).unwrap().set_len(MAX_STATE_BYTES).unwrap();
    assert_eq!(read_state(&path).unwrap().len() as u64, MAX_STATE_BYTES);
    link_to(&path, &outside);
    assert_eq!(read_named(&path).unwrap(), b"{}");
    link_to(&path, Path::new("/dev/zero"));
    assert_eq!(read_named(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

fn link_to(path: &Path, to: &Path) {
    let _ = fs::remove_file(path);
    symlink(to, path).unwrap();
}

#[test]
fn write_follows_no_planted_link_and_waits_for_no_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let (path, outside) = (directory.path().join("file.json"), directory.path().join("outside"));
    let new = beside(&path, "new");
    fs::write(&outside, "other").unwrap();
    for place in [&new, &path] {
        for to in [outside.as_path(), &directory.path().join("nothing")] {
            link_to(place, to);
            write_atomically(&path, b"state").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"state");
            assert!(path.symlink_metadata().unwrap().is_file() && !new.exists());
            assert!(fs::read(&outside).unwrap() == b"other" && !directory.path().join("nothing").exists());
        }
        fs::remove_file(&path).unwrap();
        mkfifo(place, Mode::S_IRWXU).unwrap();
        write_atomically(&path, b"state").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"state");
    }
    // A lock's file, say.
    let locked = |path: &Path| open(path, OFlag::O_WRONLY | OFlag::O_CREAT).unwrap_err().to_string();
    link_to(&path, &directory.path().join("nothing"));
    assert_eq!(locked(&path), "it is a symbolic link, which is not followed");
    assert!(!directory.path().join("nothing").exists());
    fs::remove_file(&path).unwrap();
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    assert_eq!(locked(&path), "it is a pipe, a socket or a device, not a regular file");
}

#[test]
fn atomic_file_has_its_mode_and_leaves_nothing_when_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plugin");
    let begin = |content: &[u8]| {
        let mut file = AtomicFile::create(&path, 0o755).unwrap();
        file.write_all(content).unwrap();
        file
    };
    begin(b"old").commit().unwrap();
    let mut dropped = begin(b"new");
    assert_eq!(fs::read(dropped.close().unwrap()).unwrap(), b"new");
    drop(dropped);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn first_damaged_file_and_a_limited_number_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file.json");
    let aside: Vec<_> = (1..=10)
        .map(|number| {
            fs::write(&path, number.to_string()).unwrap();
            let aside = set_aside(&path).unwrap();
            assert!(!path.exists());
            (aside.file_name().unwrap().to_owned(), fs::read_to_string(aside).unwrap())
        })
        .map(|(name, text)| format!("{} {text}", name.display()))
        .collect();
    let expected = ["", ".2", ".3", ".4", ".5", ".6", ".7", ".8", ".8", ".8"];
    let expected = expected.iter().zip(1..).map(|(end, number)| format!("file.json.damaged{end} {number}"));
    assert_eq!(aside, expected.collect::<Vec<_>>());
    assert_eq!(fs::read_to_string(directory.path().join("file.json.damaged")).unwrap(), "1");
    assert_eq!(set_aside(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
}
