//! Disks that take nothing more, and folders that are not there.

use std::fs;
use std::io::Write;
use std::path::Path;

use ipam::{BootTime, Error, Store};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::node::{boot, everything, pools, record, request, reserve};

const PAGE: usize = 4096;

/// Runs `body` with a file system of its own, in memory and of 256 KiB, that no other thread sees.
fn on_a_small_disk(body: impl FnOnce(&Path) + Send) {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = None::<&str>;
    std::thread::scope(|scope| {
        let with_disk = || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            mount(nowhere, "/", nowhere, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nowhere).unwrap();
            mount(Some("tmpfs"), dir.path(), Some("tmpfs"), MsFlags::empty(), Some("size=256k")).unwrap();
            body(dir.path());
        };
        scope.spawn(with_disk).join().unwrap();
    });
}

/// Leaves so many pages free.
fn fill(dir: &Path, free: usize) {
    let path = dir.join("filler");
    let mut filler = fs::File::create(&path).unwrap();
    while filler.write_all(&[0; PAGE]).is_ok() {}
    let full = fs::metadata(&path).unwrap().len();
    filler.set_len(full - u64::try_from(free * PAGE).unwrap()).unwrap();
}

#[test]
fn full_disk_fails_add_without_change_but_del_succeeds() {
    on_a_small_disk(|dir| {
        let (store, all) = (Store::new(dir, boot()), pools("10.9.1.0/26"));
        for id in ["a", "b"] {
            reserve(&store, &all, id).unwrap();
        }
        store.commit(&request("a").key).unwrap();
        all.write(dir).unwrap();
        let now = BootTime(5);
        // The record and the index take a page each.
        for free in [0, 1] {
            fill(dir, free);
            let before = everything(dir);
            let key = request("c").key;
            let added = store.update_for(&key, |held| held.reserve(&all, request("c"), now)).map(drop);
            let full = |error: &Error| {
                let kind = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
                kind.is_some_and(|error| error.kind() == std::io::ErrorKind::StorageFull)
            };
            assert!(added.as_ref().is_err_and(full), "{free}: {added:?}");
            assert_eq!(everything(dir), before, "{free}");
            assert_eq!(store.find(&key).unwrap(), None);
        }
        fill(dir, 0);
        let before = everything(dir);
        let key = request("a").key;
        let published = pools("10.9.1.0/27").write(dir);
        let text = published.as_ref().unwrap_err().to_string();
        assert!(text.contains("pools.json (the previous content is intact)"), "{text}");
        assert_eq!(everything(dir), before);
        // What takes no room works: a lasting pod is looked up, and an ADD under way succeeds.
        assert!(store.find(&key).unwrap().is_some());
        store.commit(&request("b").key).unwrap();
        // So does what makes room: pods that go.
        assert!(store.update_for(&key, |held| Ok::<_, Error>(held.release(&key, now))).unwrap().is_some());
        assert_eq!(store.read().unwrap().freed.len(), 1, "its address cools down");
        // And with room everything does.
        fs::remove_file(dir.join("filler")).unwrap();
        assert!(reserve(&store, &all, "c").is_ok());
    });
}

/// As on a full disk, where it cannot be written.
#[test]
fn pod_is_released_without_index_write_while_index_holds_address() {
    let dir = tempfile::tempdir().unwrap();
    let (store, index) = (Store::new(dir.path(), boot()), dir.path().join("allocations.json"));
    reserve(&store, &pools("10.9.1.0/26"), "a").unwrap();
    let (sound, records) = (fs::read_to_string(&index).unwrap(), everything(&dir.path().join("allocations")));
    let (key, had) = (request("a").key, ["10.9.1.0".parse().unwrap()]);
    let freed = r#"{"version":1,"bootId":"this","held":"","freed":"10.9.1.0@1"}"#;
    let none = r#"{"version":1,"bootId":"this","held":"","freed":""}"#;
    for (text, goes) in [(sound.as_str(), true), ("{", true), ("", true), (freed, false), (none, false)] {
        fs::write(&index, text).unwrap();
        assert_eq!(store.let_go(&key, &had).unwrap(), goes, "{text}");
        assert_eq!(everything(&dir.path().join("allocations")).is_empty(), goes, "{text}");
        assert_eq!(fs::read_to_string(&index).unwrap(), text);
        records.iter().for_each(|(path, record)| fs::write(path, record).unwrap());
    }
    fs::remove_file(&index).unwrap();
    assert!(!store.let_go(&key, &had).unwrap(), "without an index no address is known to cool down");
    assert_eq!(everything(&dir.path().join("allocations")), records);
    fs::write(&index, r#"{"version":2}"#).unwrap();
    assert!(matches!(store.let_go(&key, &had), Err(Error::TooNew { .. })));
    assert_eq!(everything(&dir.path().join("allocations")), records);
}

#[test]
fn read_only_disk_allows_reads_and_fails_changes_by_name() {
    on_a_small_disk(|dir| {
        let (store, all) = (Store::new(dir, boot()), pools("10.9.1.0/26"));
        reserve(&store, &all, "a").unwrap();
        let nowhere = None::<&str>;
        mount(nowhere, dir, nowhere, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, nowhere).unwrap();
        let (before, key) = (everything(dir), request("a").key);
        assert_eq!(store.read().unwrap().allocations.len(), 1);
        assert!(store.find(&key).unwrap().is_some());
        let failures = [
            reserve(&store, &all, "b").map(drop),
            store.commit(&key),
            store.update_for(&key, |held| Ok::<_, Error>(held.release(&key, BootTime(5)))).map(drop),
            store.sweep().map(drop),
            store.set_aside().map(drop),
        ];
        for failure in failures {
            let text = failure.unwrap_err().to_string();
            assert!(text.starts_with("cannot lock ") && text.ends_with("/allocations.lock"), "{text}");
        }
        assert!(matches!(all.write(dir), Err(Error::Write { .. })));
        assert_eq!(everything(dir), before);
    });
}

#[test]
fn missing_state_directory_is_created_by_write_and_reads_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/vcn-native");
    let store = Store::new(&path, boot());
    assert!(store.read().unwrap().is_empty());
    assert_eq!(store.find(&request("a").key).unwrap(), None);
    assert!(!path.exists());
    assert!(reserve(&store, &pools("10.9.1.0/26"), "a").is_ok());
    assert_eq!(store.read().unwrap().allocations.len(), 1);
}

#[test]
fn non_directory_in_place_of_directory_is_a_named_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    fs::write(&path, "").unwrap();
    let text = reserve(&Store::new(&path, boot()), &pools("10.9.1.0/26"), "a").unwrap_err().to_string();
    assert!(text.contains("/state/allocations.lock"), "{text}");

    let folder = dir.path().join("allocations");
    fs::write(&folder, "").unwrap();
    let store = Store::new(dir.path(), boot());
    let key = request("a").key;
    let now = BootTime(1);
    let error = store.update_for(&key, |held| held.reserve(&pools("10.9.1.0/26"), request("a"), now)).unwrap_err();
    assert!(error.to_string().ends_with("/allocations"), "{error}");
    assert!(!dir.path().join("allocations.json").exists(), "nothing is held of which nothing is known");
}

#[test]
fn record_that_cannot_be_renamed_leaves_state_unchanged() {
    let place = {
        let elsewhere = tempfile::tempdir().unwrap();
        reserve(&Store::new(elsewhere.path(), boot()), &pools("10.9.1.0/26"), "c").unwrap();
        record(elsewhere.path(), "tentative").file_name().unwrap().to_owned()
    };
    for first in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, pools) = (Store::new(dir.path(), boot()), pools("10.9.1.0/29"));
        let folder = dir.path().join("allocations");
        fs::create_dir(&folder).unwrap();
        if !first {
            reserve(&store, &pools, "a").unwrap();
        }
        let obstacle = folder.join(&place);
        let mut before = None;
        // Two of them, so that one has its place already. The obstacle comes when all has been read.
        let failed = store.update(|held| {
            for id in ["b", "c"] {
                held.reserve(&pools, request(id), BootTime(2))?;
            }
            before = Some(everything(dir.path()));
            fs::create_dir(&obstacle).unwrap();
            Ok::<_, Error>(())
        });
        let text = failed.unwrap_err().to_string();
        assert!(text.contains(obstacle.to_str().unwrap()), "{text}");
        fs::remove_dir(&obstacle).unwrap();
        assert_eq!(Some(everything(dir.path())), before, "first: {first}");
    }
}
