//! Writers at the same time, of other boots and of other versions.

use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use ipam::{Allocations, BootId, BootTime, Error, FreedAddress, NetnsRecord, PodRecord, Pools, Store};
use serde_json::Value;

use crate::node::{boot, everything, pools, record, request, reserve};

/// Of a thread that waits for another thread of a test: that may stand still for longer than plugins wait.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn fifty_writers_at_once_get_fifty_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pools) = (Store::new(dir.path(), boot()).with_patience(PATIENCE), pools("10.9.1.0/26"));
    std::thread::scope(|scope| {
        for id in 0..50 {
            let (store, pools) = (store.clone(), &pools);
            scope.spawn(move || reserve(&store, pools, &format!("c{id}")).unwrap());
        }
    });
    let held = store.read().unwrap();
    let mut addresses: Vec<_> = held.allocations.iter().map(|a| a.addresses[0].address).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 50);
}

#[test]
fn held_lock_is_awaited_and_named_on_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pools) = (Store::new(dir.path(), boot()).with_patience(PATIENCE), pools("10.9.1.0/26"));
    reserve(&store, &pools, "a").unwrap();
    let kept = fs::File::options().write(true).open(dir.path().join("allocations.lock")).unwrap();
    kept.lock().unwrap();
    let error = reserve(&store.clone().with_patience(Duration::from_millis(50)), &pools, "b").unwrap_err();
    assert!(matches!(&error, Error::Lock { source, .. } if source.kind() == ErrorKind::TimedOut), "{error}");
    assert_eq!(store.read().unwrap().allocations.len(), 1, "reading needs no lock");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| reserve(&store, &pools, "c"));
        drop(kept);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn state_of_an_earlier_boot_is_discarded() {
    let dir = tempfile::tempdir().unwrap();
    reserve(&Store::new(dir.path(), boot()), &pools("10.9.1.0/26"), "a").unwrap();
    let next = Store::new(dir.path(), BootId::from_text("next"));
    assert_eq!(next.read().unwrap(), Allocations::none(BootId::from_text("next")));
    pools("10.9.1.0/26").write(dir.path()).unwrap();
    let error = Pools::read(dir.path(), &BootId::from_text("next")).unwrap_err();
    assert!(matches!(error, Error::NoPools { .. }));
}

#[test]
fn fields_of_a_newer_writer_survive_at_every_level() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pools) = (Store::new(dir.path(), boot()), pools("10.9.1.0/26"));
    let mut requested = request("a");
    requested.pod = Some(PodRecord { namespace: "default".into(), name: "web".into(), uid: None });
    requested.netns = Some(NetnsRecord { path: "/run/netns/x".into(), dev: 4, inode: 7 });
    store.update_for(&requested.key, |held| held.reserve(&pools, requested.clone(), BootTime(1))).unwrap();
    let index = dir.path().join("allocations.json");
    let text = fs::read_to_string(&index).unwrap().replacen('{', "{\"colour\":\"blue\",", 1);
    fs::write(&index, text).unwrap();
    let tentative = record(dir.path(), "tentative");
    let text = fs::read_to_string(&tentative).unwrap();
    let places = ["{\"version\"", "{\"key\"", "{\"network\"", "{\"address\"", "{\"namespace\"", "{\"path\""];
    let text = places.iter().enumerate().fold(text, |text, (number, place)| {
        assert!(text.contains(place), "{text}");
        text.replacen(place, &format!("{{\"later{number}\":7,{}", &place[1..]), 1)
    });
    fs::write(&tentative, text).unwrap();
    // Written again: the lease is longer now. And then committed, while other pods come and go.
    store.update_for(&requested.key, |held| held.reserve(&pools, requested.clone(), BootTime(2))).unwrap();
    store.commit(&requested.key).unwrap();
    reserve(&store, &pools, "b").unwrap();
    store.update(|held| Ok::<_, Error>(held.release(&request("b").key, BootTime(3)))).unwrap();
    let text = fs::read_to_string(record(dir.path(), "json")).unwrap();
    assert!((0..6).all(|number| text.contains(&format!("\"later{number}\":7"))), "{text}");
    let text = fs::read_to_string(&index).unwrap();
    assert!(text.contains("\"colour\":\"blue\""), "{text}");
}

#[test]
fn forgotten_flag_of_an_address_is_persisted() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pools) = (Store::new(dir.path(), boot()), pools("10.9.1.0/26"));
    for id in ["a", "b"] {
        reserve(&store, &pools, id).unwrap();
    }
    let freed = store.update(|held| {
        let freed = ["a", "b"].map(|id| held.release(&request(id).key, BootTime(2)).unwrap().addresses[0].address);
        Ok::<_, Error>(held.forget(freed[1], BootTime(2)).then_some(freed))
    });
    let [a, b] = freed.unwrap().unwrap();
    let freed = Store::new(dir.path(), boot()).freed().unwrap();
    let expected =
        [(a, false), (b, true)].map(|(address, forgotten)| FreedAddress { address, at: BootTime(2), forgotten });
    assert_eq!(freed, expected);
}

#[test]
fn forget_skips_addresses_reassigned_since_the_read() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pools) = (Store::new(dir.path(), boot()), pools("10.9.1.0/30"));
    ["a", "b", "c"].iter().for_each(|id| drop(reserve(&store, &pools, id).unwrap()));
    for (id, at) in [("a", 2), ("b", 3), ("c", 4)] {
        store.update(|held| Ok::<_, Error>(held.release(&request(id).key, BootTime(at)))).unwrap();
    }
    let mut freed = store.freed().unwrap();
    freed[1].at = BootTime(1);
    assert_eq!(store.forget(&freed).unwrap(), 2);
    let noted: Vec<_> = store.freed().unwrap().iter().map(|freed| freed.forgotten).collect();
    assert_eq!(noted, [true, false, true]);
}

#[test]
fn a_file_of_a_newer_format_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("allocations.json");
    let text = r#"{"version":2,"bootId":"this","held":"","freed":""}"#;
    fs::write(&path, text).unwrap();
    assert!(matches!(Store::new(dir.path(), boot()).read(), Err(Error::TooNew { found: 2, .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn changing_one_attachment_and_changing_all_come_to_the_same() {
    let (one, all) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, all, pools) = (Store::new(one.path(), boot()), Store::new(all.path(), boot()), pools("10.9.1.0/29"));
    let mut commits = 0;
    // Adds and deletes of ten attachments in a fixed disorder; every third ADD is killed before it commits.
    for step in 1..400_u64 {
        let (now, id) = (BootTime(step * 7_000), format!("c{}", step * step % 10));
        let key = request(&id).key;
        if step % 4 < 2 {
            let got = one.update_for(&key, |held| held.reserve(&pools, request(&id), now)).ok();
            assert_eq!(got, all.update(|held| held.reserve(&pools, request(&id), now)).ok());
            if got.is_some() && step % 3 > 0 {
                one.commit(&key).unwrap();
                all.update(|held| held.commit(&key)).unwrap();
                commits += 1;
            }
        } else {
            let gone = one.update_for(&key, |held| Ok::<_, Error>(held.release(&key, now))).unwrap();
            assert_eq!(gone, all.update(|held| Ok::<_, Error>(held.release(&key, now))).unwrap());
        }
        assert_eq!(one.find(&key).unwrap(), all.read().unwrap().find(&key).cloned());
        let sorted = |store: &Store| {
            let mut held = store.read().unwrap();
            held.allocations.sort_by(|a, b| a.key.cmp(&b.key));
            held
        };
        assert_eq!(sorted(&one), sorted(&all), "step {step}");
    }
    assert!(commits > 50);
}

#[test]
fn a_commit_that_a_del_overtook_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, others) = (Store::new(dir.path(), boot()), Store::new(dir.path(), boot()));
    reserve(&ours, &pools("10.9.1.0/26"), "a").unwrap();
    others.update(|held| Ok::<_, Error>(held.release(&request("a").key, BootTime(2)))).unwrap();
    assert!(matches!(ours.commit(&request("a").key), Err(Error::NoAllocation(_))));
    assert!(others.read().unwrap().allocations.is_empty());
}

#[test]
fn pools_are_written_only_when_they_changed() {
    let dir = tempfile::tempdir().unwrap();
    let pools = pools("10.9.1.0/26");
    assert!(pools.write(dir.path()).unwrap());
    assert!(!pools.write(dir.path()).unwrap());
    assert_eq!(Pools::read(dir.path(), &boot()).unwrap(), pools);
}

#[test]
fn unknown_vnic_fields_are_kept_as_long_as_the_vnic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pools.json");
    let mut all = pools("10.9.1.0/26");
    all.write(dir.path()).unwrap();
    let mut document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    document["vnics"][0]["weight"] = 3.into();
    document["vnics"][0]["ipv4"]["gone"] = true.into();
    fs::write(&path, serde_json::to_vec_pretty(&document).unwrap()).unwrap();

    all.vnics[0].families.ipv4.as_mut().unwrap().addresses = vec!["10.9.1.0/27".parse().unwrap()];
    assert!(all.write(dir.path()).unwrap());
    assert!(!all.write(dir.path()).unwrap(), "it is not written again for what we do not know");
    document["vnics"][0]["ipv4"]["addresses"][0] = "10.9.1.0/27".into();
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(&path).unwrap()).unwrap(), document);

    all.vnics[0].vnic_id = "ocid1.vnic.oc1.iad.b".parse().unwrap();
    all.write(dir.path()).unwrap();
    assert!(!fs::read_to_string(&path).unwrap().contains("weight"), "another VNIC");
}

#[test]
fn verbs_wait_only_for_verbs_of_the_same_attachment() {
    let dir = tempfile::tempdir().unwrap();
    // The directory is made when it is not there, for root alone.
    let store = Store::new(&dir.path().join("state"), boot()).with_patience(Duration::from_millis(50));
    let (a, b) = (request("a").key, request("b").key);
    let acting = store.attachment(&a).unwrap();
    assert!(store.try_attachment(&a).unwrap().is_none() && store.try_attachment(&b).unwrap().is_some());
    let error = store.attachment(&a).unwrap_err();
    assert!(matches!(&error, Error::Lock { source, .. } if source.kind() == ErrorKind::TimedOut), "{error}");
    std::thread::scope(|scope| {
        let patient = store.clone().with_patience(PATIENCE);
        let waiting = scope.spawn(move || patient.attachment(&request("a").key).map(drop));
        drop(acting);
        waiting.join().unwrap().unwrap();
    });
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(dir.path().join("state")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn no_file_knows_what_time_it_is_outside() {
    let dir = tempfile::tempdir().unwrap();
    let (store, now) = (Store::new(dir.path(), boot()), BootTime::now().unwrap());
    let pools = pools("10.9.1.0/26");
    for id in ["a", "b"] {
        store.update_for(&request(id).key, |held| held.reserve(&pools, request(id), now)).unwrap();
    }
    store.update_for(&request("b").key, |held| Ok::<_, Error>(held.release(&request("b").key, now))).unwrap();
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let uptime: f64 = fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(u128::from(now.0).abs_diff((uptime * 1000.0) as u128) < 60_000, "{now:?} is the time since boot");
    for path in [dir.path().join("allocations.json"), record(dir.path(), "tentative")] {
        let text = fs::read_to_string(path).unwrap();
        let numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok());
        let latest = numbers.max().unwrap();
        assert!(u128::from(latest) < wall.as_millis() / 100, "{text}");
    }
}

#[test]
fn attachment_with_colliding_record_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pools) = (Store::new(dir.path(), boot()), pools("10.9.1.0/26"));
    // Found by trying: the first 13 characters are alike, and so is the hash of all.
    let (first, second) = ("0123456789abc179599", "0123456789abc362382");
    reserve(&store, &pools, first).unwrap();
    store.commit(&request(first).key).unwrap();
    store.sweep().unwrap();
    let before = everything(dir.path());
    let key = request(second).key;
    let refused = store.update_for(&key, |held| held.reserve(&pools, request(second), BootTime(2)));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains(first) && text.ends_with(&format!("so {key} can have none")), "{text}");
    // Its DEL has nothing to do, and does nothing to the other.
    assert_eq!(store.find(&key).unwrap(), None);
    let released = store.update_for(&key, |held| Ok::<_, Error>(held.release(&key, BootTime(2))));
    assert_eq!(released.unwrap(), None);
    assert_eq!(everything(dir.path()), before);
}
