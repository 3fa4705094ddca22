//! Atomicity, proven from outside: readers, other installers, running copies, failures and deaths at every moment.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::*;
use crate::observed::stale_in;

const OLD: Duration = Duration::from_secs(600);

const MOMENTS: [Moment; 6] =
    [Moment::Created, Moment::PartWritten, Moment::ModeSet, Moment::Synced, Moment::Verified, Moment::Renamed];

fn file<'a>(target: &'a Path, contents: &'a [u8]) -> NewFile<'a> {
    NewFile::ours(target, contents, 0o755)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_file_is_there_with_its_mode_and_nothing_else_is() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("vcn-native");
    for (contents, mode_wanted) in [(&b"one"[..], 0o755), (b"another", 0o600), (b"", 0o755)] {
        place(NewFile::ours(&target, contents, mode_wanted)).unwrap();
        assert_eq!((fs::read(&target).unwrap().as_slice(), mode(&target)), (contents, mode_wanted));
    }
    assert_eq!(names(directory.path()), ["vcn-native"]);
}

#[test]
fn a_link_is_replaced_and_what_it_led_to_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let (target, other) = (directory.path().join("vcn-native"), directory.path().join("other"));
    fs::write(&other, "other's").unwrap();
    std::os::unix::fs::symlink(&other, &target).unwrap();
    place(file(&target, b"ours")).unwrap();
    assert!(fs::symlink_metadata(&target).unwrap().is_file());
    assert_eq!(fs::read_to_string(&other).unwrap(), "other's");
}

#[test]
fn a_failure_at_any_moment_leaves_the_old_file_and_no_other() {
    let new = vec![b'n'; 3 * CHUNK];
    for moment in MOMENTS {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("vcn-native");
        fs::write(&target, "old").unwrap();
        let mut fault = |at| if at == moment { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) };
        let error = place_with(file(&target, &new), &|| Ok(()), &mut fault).unwrap_err();
        assert_eq!(error.word(), "no-space");
        assert!(error.to_string().contains("free space on that file system"), "{error}");
        assert_eq!(names(directory.path()), ["vcn-native"], "{moment:?}");
        // After the rename the new file is there whole; only the flush of its directory was not confirmed.
        let expected: &[u8] = if moment == Moment::Renamed { &new } else { b"old" };
        assert!(fs::read(&target).unwrap() == expected, "{moment:?}");
    }
}

#[test]
fn an_objection_at_the_last_moment_keeps_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("05-vcn-native.conflist");
    fs::write(&target, "old").unwrap();
    let objection = || Err(Error::Raced { target: target.clone() });
    let error = place_unless(file(&target, b"new"), &objection).unwrap_err();
    assert_eq!(error.word(), "raced");
    assert_eq!(fs::read_to_string(&target).unwrap(), "old");
    assert_eq!(names(directory.path()), ["05-vcn-native.conflist"]);
}

#[test]
fn what_is_read_back_wrong_is_not_put_in_place() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("vcn-native");
    fs::write(&target, "old").unwrap();
    let mut spoil = |at| {
        if at == Moment::Synced {
            let temporary = names(directory.path()).into_iter().find(|name| is_temporary(name)).unwrap();
            fs::write(directory.path().join(temporary), "spoilt")?;
        }
        Ok(())
    };
    assert_eq!(place_with(file(&target, b"new"), &|| Ok(()), &mut spoil).unwrap_err().word(), "corrupt");
    assert_eq!(fs::read_to_string(&target).unwrap(), "old");
    assert_eq!(names(directory.path()), ["vcn-native"]);
}

/// The part of the test below that runs in a child process: it dies on the spot, as by SIGKILL; no clean-up runs.
fn die_as_told(directory: &str) {
    let moment = MOMENTS[std::env::var("DIE_AT").unwrap().parse::<usize>().unwrap()];
    let mut die = |at| if at == moment { std::process::abort() } else { Ok(()) };
    place_with(file(&Path::new(directory).join("vcn-native"), &vec![b'n'; 3 * CHUNK]), &|| Ok(()), &mut die).unwrap();
}

#[test]
fn death_at_any_moment_leaves_a_whole_file() {
    if let Ok(directory) = std::env::var("DIE_IN") {
        return die_as_told(&directory);
    }
    let new = vec![b'n'; 3 * CHUNK];
    for (index, moment) in MOMENTS.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("vcn-native");
        place(file(&target, b"old")).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "place::tests::death_at_any_moment_leaves_a_whole_file"])
            .env("DIE_IN", directory.path())
            .env("DIE_AT", index.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(6), "{moment:?}: the child has to die by abort");
        let expected: &[u8] = if moment == Moment::Renamed { &new } else { b"old" };
        assert!(fs::read(&target).unwrap() == expected, "{moment:?}");
        assert_eq!(mode(&target), 0o755, "{moment:?}");
        let left: Vec<_> = names(directory.path()).into_iter().filter(|name| name != "vcn-native").collect();
        assert!(left.iter().all(|name| is_temporary(name)), "{left:?}");
        assert_eq!(left.len(), usize::from(moment != Moment::Renamed), "{moment:?}");

        let now = SystemTime::now();
        assert_eq!(stale_in(directory.path(), now, OLD), Vec::<PathBuf>::new(), "a young one may be somebody's");
        let later = stale_in(directory.path(), now + Duration::from_secs(3600), OLD);
        assert_eq!(later.len(), left.len());
        place(file(&target, &new)).unwrap();
        assert!(fs::read(&target).unwrap() == new);
    }
}

#[test]
fn others_files_are_never_stale_in() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["vcn-native", "portmap.tmp", ".hidden.tmp", ".oke-cni-installer.1"] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    assert_eq!(
        stale_in(directory.path(), SystemTime::now() + Duration::from_secs(1 << 20), OLD),
        Vec::<PathBuf>::new()
    );
}

#[test]
fn two_installers_and_a_reader_never_see_part_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("vcn-native");
    let versions = [vec![b'a'; 200_000], vec![b'b'; 300_000]];
    place(file(&target, &versions[0])).unwrap();
    let (done, everybody) = (AtomicBool::new(false), Barrier::new(3));
    thread::scope(|scope| {
        let installers = versions.each_ref().map(|contents| {
            let (target, everybody) = (&target, &everybody);
            scope.spawn(move || {
                everybody.wait();
                (0..20).try_for_each(|_| place(file(target, contents)))
            })
        });
        let reader = scope.spawn(|| {
            everybody.wait();
            loop {
                let mut opened = File::open(&target).unwrap();
                assert_eq!(opened.metadata().unwrap().permissions().mode() & 0o777, 0o755);
                let mut seen = Vec::new();
                opened.read_to_end(&mut seen).unwrap();
                assert!(versions.contains(&seen), "{} bytes", seen.len());
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let results = installers.map(|installer| installer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        reader.join().unwrap();
    });
    assert_eq!(names(directory.path()), ["vcn-native"]);
}

/// As by an installer that has the lock, beside one that has waited long enough for it.
#[test]
fn a_file_whose_temporary_one_somebody_cleared_away_is_begun_again() {
    for moment in [Moment::Created, Moment::ModeSet, Moment::Synced, Moment::Verified] {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("vcn-native");
        let mut left = ATTEMPTS - 1;
        let mut clear = |at| {
            if at == moment && left > 0 {
                left -= 1;
                stale_in(directory.path(), SystemTime::now(), Duration::ZERO).iter().try_for_each(fs::remove_file)?;
            }
            Ok(())
        };
        place_with(file(&target, b"new"), &|| Ok(()), &mut clear).unwrap();
        assert_eq!((fs::read(&target).unwrap().as_slice(), left), (&b"new"[..], 0), "{moment:?}");
        assert_eq!(names(directory.path()), ["vcn-native"]);
        let error = place(file(&directory.path().join("none/vcn-native"), b"new")).unwrap_err();
        assert!(error.to_string().contains("creating a temporary file beside it failed"), "{error}");
    }
}

#[test]
fn a_running_copy_is_no_obstacle_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("vcn-native");
    place(file(&target, &fs::read("/bin/sleep").unwrap())).unwrap();
    let mut running = loop {
        // Another test may fork while we write: its child holds our file open until it executes.
        match Command::new(&target).arg("1000").spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => thread::yield_now(),
            other => break other.unwrap(),
        }
    };
    place(file(&target, b"#!/bin/sh\nexit 7\n")).unwrap();
    assert_eq!(running.try_wait().unwrap(), None, "the old copy goes on");
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"#!/bin/sh\nexit 7\n");
}

/// A small tmpfs of our own, visible to this thread alone.
fn with_tmpfs(test: impl FnOnce(&Path) + Send + 'static) {
    let worker = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace (run as root or by tests/runner)");
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        let directory = tempfile::tempdir().unwrap();
        mount(Some("tmpfs"), directory.path(), Some("tmpfs"), MsFlags::empty(), Some("size=128k")).unwrap();
        test(directory.path());
        nix::mount::umount(directory.path()).unwrap();
    });
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_read_only_file_system_is_named_with_the_next_step() {
    with_tmpfs(|directory| {
        let target = directory.join("vcn-native");
        fs::write(&target, "old").unwrap();
        let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(None::<&str>, directory, None::<&str>, read_only, None::<&str>).unwrap();
        let error = place(file(&target, b"new")).unwrap_err();
        assert_eq!(error.word(), "read-only");
        assert_eq!(
            error.to_string(),
            format!(
                "putting {} in place: creating a temporary file beside it failed; make that directory writable, or use \
                 another (--cni-bin-dir and --cni-conf-dir, which the runtime's configuration names too; --data-dir)",
                target.display()
            )
        );
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
    });
}

#[test]
fn a_full_file_system_keeps_the_old_file_and_gets_its_space_back() {
    with_tmpfs(|directory| {
        let target = directory.join("vcn-native");
        fs::write(&target, "old").unwrap();
        let error = place(file(&target, &vec![b'x'; 1 << 20])).unwrap_err();
        assert_eq!(error.word(), "no-space");
        assert!(error.to_string().contains("writing failed; free space on that file system"), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        assert_eq!(names(directory), ["vcn-native"]);
        place(file(&target, b"new")).unwrap();
    });
}
