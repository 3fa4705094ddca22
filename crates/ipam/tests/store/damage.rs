//! Files that are not what was written: refused by name, set aside, healed; never believed to be empty.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ipam::{BootTime, Error, FreedAddress, Pools, Store};

use crate::node::{boot, everything, pools, record, request, reserve};

const SECOND_TIME: BootTime = BootTime(9);

/// Three pods, one of them under way, and an address that was freed.
fn used_store(dir: &Path, pools: &Pools) -> Store {
    let store = Store::new(dir, boot());
    for id in ["a", "b", "c", "d"] {
        reserve(&store, pools, id).unwrap();
    }
    for id in ["a", "b", "d"] {
        store.commit(&request(id).key).unwrap();
    }
    store.update(|held| Ok::<_, Error>(held.release(&request("d").key, BootTime(2)))).unwrap();
    store
}

fn add(store: &Store, pools: &Pools, id: &str) -> Result<IpAddr, Error> {
    let key = request(id).key;
    let got = store.update_for(&key, |held| held.reserve(pools, request(id), SECOND_TIME))?;
    store.commit(&key)?;
    Ok(got.allocation.addresses[0].address)
}

fn held(store: &Store) -> BTreeSet<IpAddr> {
    let all = store.read().unwrap();
    all.allocations.iter().flat_map(|held| held.addresses.iter().map(|assigned| assigned.address)).collect()
}

fn files(dir: &Path) -> BTreeSet<String> {
    let names = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names(dir).chain(names(&dir.join("allocations"))).collect()
}

#[test]
fn truncated_index_is_refused_and_rebuilt_from_records() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
    let store = used_store(dir.path(), &pools);
    let before = held(&store);
    let path = dir.path().join("allocations.json");
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        for error in [store.read().unwrap_err(), add(&store, &pools, "e").unwrap_err()] {
            assert!(matches!(&error, Error::Damaged { path: named, .. } if *named == path), "{length}: {error}");
        }
        assert!(store.find(&request("a").key).unwrap().is_some(), "a DEL needs no index");
        let aside = dir.path().join("allocations.json.damaged");
        assert_eq!(store.set_aside().unwrap().as_ref(), Some(&aside));
        fs::remove_file(aside).unwrap();
        store.update(|_| Ok::<_, Error>(())).unwrap();
        assert_eq!(held(&store), before, "{length}");
        assert!(!before.contains(&add(&store, &pools, "e").unwrap()));
        store.update(|held| Ok::<_, Error>(held.release(&request("e").key, SECOND_TIME))).unwrap();
    }
}

#[test]
fn truncated_record_is_refused_and_only_this_record_set_aside() {
    for length in 0.. {
        let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
        let store = used_store(dir.path(), &pools);
        let path = record(dir.path(), "tentative");
        let whole = fs::read(&path).unwrap();
        if length == whole.len() {
            break;
        }
        let key = request("c").key;
        let address = store.find(&key).unwrap().unwrap().addresses[0].address;
        fs::write(&path, &whole[..length]).unwrap();
        for error in [store.read().unwrap_err(), store.find(&key).unwrap_err(), add(&store, &pools, "c").unwrap_err()] {
            assert!(matches!(&error, Error::Damaged { path: named, .. } if *named == path), "{length}: {error}");
        }
        assert_ne!(add(&store, &pools, "e").unwrap(), address, "it is held nevertheless");
        let aside = store.set_aside().unwrap().unwrap();
        assert_eq!(fs::read(aside).unwrap(), &whole[..length]);
        assert_eq!(store.set_aside().unwrap(), None);
        let freed = || store.read().unwrap().freed;
        assert!(freed().iter().all(|freed| freed.address != address), "a pod may use it");
        store.reconcile_with_kernel(&[], Some(&pools), None, |_| true).unwrap();
        assert!(freed().iter().any(|freed| freed.address == address && !freed.forgotten), "no route leads to it");
    }
}

/// An address that is given to a second pod must be found: by an error here, or when all records are read next.
#[test]
fn flipped_bit_is_detected_before_an_address_is_held_twice() {
    let (dir, pools) = (tempfile::tempdir_in("/dev/shm").unwrap(), pools("10.9.1.0/28"));
    let store = used_store(dir.path(), &pools);
    let before = held(&store);
    let index = dir.path().join("allocations.json");
    let kept = record(dir.path(), "tentative");
    let (whole, whole_record) = (fs::read(&index).unwrap(), fs::read(&kept).unwrap());
    let snapshot = everything(dir.path());
    let (mut refused, mut unaffected) = (0, 0);
    for (path, bytes) in [(&index, &whole), (&kept, &whole_record)] {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(path, &flipped).unwrap();
            // An empty record is not believed: it is made again before an address is given.
            if store.read().is_ok_and(|held| held.is_empty()) {
                store.update(|_| Ok::<_, Error>(())).unwrap();
            }
            match add(&store, &pools, "e") {
                Ok(address) if before.contains(&address) => {
                    let noticed = store.sweep().unwrap_err();
                    assert!(matches!(noticed, Error::Damaged { .. }), "bit {bit}: {noticed}");
                }
                Ok(_) => unaffected += 1,
                Err(Error::Damaged { path: named, .. } | Error::TooNew { path: named, .. }) => {
                    assert!(files(dir.path()).contains(named.file_name().unwrap().to_str().unwrap()));
                    refused += 1;
                }
                Err(other) => panic!("bit {bit}: {other}"),
            }
            // As it was.
            fs::remove_dir_all(dir.path().join("allocations")).unwrap();
            fs::create_dir(dir.path().join("allocations")).unwrap();
            snapshot.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        }
    }
    assert!(refused > 500 && unaffected > 500, "{refused} {unaffected}");
}

/// As when an old folder was put back. The holder according to the index keeps the address.
#[test]
fn unindexed_record_of_held_address_is_set_aside() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/32"));
    let store = Store::new(dir.path(), boot());
    add(&store, &pools, "old").unwrap();
    let unindexed = record(dir.path(), "json");
    let of_old = fs::read(&unindexed).unwrap();
    store.update(|held| Ok::<_, Error>(held.release(&request("old").key, BootTime(2)))).unwrap();
    add(&store, &pools, "new").unwrap();
    let before = store.read().unwrap();
    fs::write(&unindexed, &of_old).unwrap();
    for error in [store.sweep().unwrap_err(), store.update(|_| Ok::<_, Error>(())).unwrap_err()] {
        assert!(matches!(&error, Error::Damaged { path, .. } if *path == unindexed), "{error}");
    }
    assert_eq!(store.read().unwrap(), before);
    let aside = store.set_aside().unwrap().unwrap();
    assert_eq!(fs::read(aside).unwrap(), of_old);
    assert!(!store.sweep().unwrap());
    assert_eq!(store.read().unwrap(), before);
}

/// A link is not followed, a pipe not waited for, a huge file not read.
#[test]
fn special_file_is_treated_as_damage_and_set_aside() {
    let plant: [fn(&Path); 3] = [
        |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        |path| std::os::unix::fs::symlink("/etc/hostname", path).unwrap(),
        |path| fs::File::create(path).unwrap().set_len(3 << 30).unwrap(),
    ];
    for plant in plant {
        let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
        let store = used_store(dir.path(), &pools);
        let before = held(&store);
        for path in [dir.path().join("allocations.json"), record(dir.path(), "tentative")] {
            fs::remove_file(&path).unwrap();
            plant(&path);
            let error = store.read().unwrap_err();
            assert!(matches!(&error, Error::Damaged { path: named, .. } if *named == path), "{error}");
            let aside = store.set_aside().unwrap().unwrap();
            assert!(aside.symlink_metadata().is_ok() && path.symlink_metadata().map_or(true, |it| it.is_file()));
            store.update(|_| Ok::<_, Error>(())).unwrap();
        }
        // The one whose record is gone is held until the kernel was queried.
        assert_eq!(store.held().unwrap().into_iter().collect::<BTreeSet<_>>(), before);
        plant(&dir.path().join("pools.json"));
        assert!(matches!(Pools::read(dir.path(), &boot()), Err(Error::Damaged { .. })));
        pools.write(dir.path()).unwrap();
        assert_eq!(Pools::read(dir.path(), &boot()).unwrap().vnics, pools.vnics);
    }
}

#[test]
fn invalid_element_is_damage_and_quoted_in_error() {
    let dir = tempfile::tempdir().unwrap();
    for (held, freed, quoted) in [
        ("a-1", "", "\"a-1\""),
        ("a-1=10.9.1.1,", "", "\"a-1=10.9.1.1,\""),
        ("a-1=10.9.1.256", "", "\"a-1=10.9.1.256\""),
        ("=10.9.1.1", "", "\"=10.9.1.1\""),
        ("", "10.9.1.1", "\"10.9.1.1\""),
        ("", "10.9.1.2@1 10.9.1.1@", "\"10.9.1.1@\""),
        ("", "10.9.1.1@-1", "\"10.9.1.1@-1\""),
        ("", "10.9.1.1@18446744073709551616", "\"10.9.1.1@18446744073709551616\""),
        ("", "10.9.1.1@1!!", "\"10.9.1.1@1!!\""),
        ("", "10.9.1@1", "\"10.9.1@1\""),
        ("../../../etc/passwd=10.9.1.1", "", ""),
        // An address twice.
        ("a-1=10.9.1.1 b-2=10.9.1.1", "", ""),
        ("a-1=10.9.1.1", "10.9.1.1@5", ""),
        ("", "10.9.1.1@5 10.9.1.1@6", ""),
    ] {
        let text = format!(r#"{{"version":1,"bootId":"this","held":"{held}","freed":"{freed}"}}"#);
        fs::write(dir.path().join("allocations.json"), &text).unwrap();
        match Store::new(dir.path(), boot()).read() {
            Err(Error::Damaged { source, .. }) => assert!(source.to_string().contains(quoted), "{text}: {source}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn index_rewritten_by_another_program_reads_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let text =
        r#"{ "freed": "10.9.1.2@5  2603:c020:0:0:0::9\u0040\u0036! ", "held": "", "version": 1, "bootId": "this" }"#;
    fs::write(dir.path().join("allocations.json"), text).unwrap();
    let freed = Store::new(dir.path(), boot()).freed().unwrap();
    let of =
        |address: &str, at, forgotten| FreedAddress { address: address.parse().unwrap(), at: BootTime(at), forgotten };
    assert_eq!(freed, [of("10.9.1.2", 5, false), of("2603:c020::9", 6, true)]);
}

#[test]
fn lost_index_is_rebuilt_from_records_before_release() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
    let store = used_store(dir.path(), &pools);
    let before = store.read().unwrap().allocations;
    fs::remove_file(dir.path().join("allocations.json")).unwrap();
    assert!(store.read().unwrap().is_empty(), "so that a reader makes sure first");
    let key = request("a").key;
    let released = store.update_for(&key, |held| Ok::<_, Error>(held.release(&key, SECOND_TIME))).unwrap().unwrap();
    let mut after = store.read().unwrap();
    after.allocations.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(after.allocations, before[1..], "the other ones are on record");
    assert!(after.freed.iter().any(|freed| freed.address == released.addresses[0].address && !freed.forgotten));
    let next = store.update_for(&request("e").key, |held| held.reserve(&pools, request("e"), SECOND_TIME)).unwrap();
    assert_eq!((next.unforgotten.len(), next.rested.is_some()), (1, true), "what else there was is not known any more");
}

#[test]
fn sweep_removes_remains_of_killed_verbs() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
    let store = used_store(dir.path(), &pools);
    let folder = dir.path().join("allocations");
    // A DEL that removed its record and did not get to the index, an ADD that staged its record and no more.
    fs::remove_file(record(dir.path(), "tentative")).unwrap();
    fs::write(folder.join("x-1.new"), "{").unwrap();
    assert_eq!(held(&store).len(), 2);
    assert!(store.sweep().unwrap());
    store.reconcile_with_kernel(&[], Some(&pools), None, |_| true).unwrap();
    let all = store.read().unwrap();
    assert_eq!((all.allocations.len(), all.freed.len()), (2, 2), "its address cools down");
    assert!(files(dir.path()).iter().all(|file| !file.ends_with(".new")), "{:?}", files(dir.path()));
}

/// An ADD that was killed before anything had its place: nothing of it is on record, and its DEL changes nothing.
#[test]
fn del_removes_files_staged_by_killed_add() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
    let store = used_store(dir.path(), &pools);
    let before = everything(dir.path());
    // As it leaves them: the ADD is carried out elsewhere, and what it has made is put where it is staged.
    let elsewhere = tempfile::tempdir().unwrap();
    reserve(&Store::new(elsewhere.path(), boot()), &pools, "e").unwrap();
    let made = record(elsewhere.path(), "tentative");
    let staged = dir.path().join("allocations").join(made.with_extension("new").file_name().unwrap());
    fs::copy(&made, staged).unwrap();
    fs::copy(elsewhere.path().join("allocations.json"), dir.path().join("allocations.json.new")).unwrap();
    let key = request("e").key;
    assert_eq!(store.update_for(&key, |held| Ok::<_, Error>(held.release(&key, SECOND_TIME))).unwrap(), None);
    assert_eq!(everything(dir.path()), before);
}

#[test]
fn one_damaged_record_hides_no_other() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
    let store = used_store(dir.path(), &pools);
    fs::write(record(dir.path(), "tentative"), "{").unwrap();
    let (sound, trouble) = store.read_sound().unwrap();
    assert_eq!(sound.allocations.len(), 2);
    assert!(matches!(trouble, Some(Error::Damaged { .. })));
    assert!(matches!(store.read(), Err(Error::Damaged { .. })));
}

/// One that is taken for both families would be given out twice to one pod.
#[test]
fn pools_with_address_of_the_wrong_family_are_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pools.json");
    pools("10.9.1.0/29").write(dir.path()).unwrap();
    let sound = fs::read_to_string(&path).unwrap();
    for (own, other) in [("10.9.1.0/29", "fd00::8/125"), ("\"ipv4\"", "\"ipv6\"")] {
        fs::write(&path, sound.replace(own, other)).unwrap();
        let error = Pools::read(dir.path(), &boot()).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(matches!(error, Error::Damaged { .. }) && cause.contains("is not an IPv"), "{cause}");
    }
}
