//! The allocations file under parallel writers, damage and reboots.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]

use std::fs;
use std::path::{Path, PathBuf};

use cni::{AttachmentKey, ContainerId, NetworkName};
use ipam::{
    Allocations, BootId, BootTime, Error, FamilyPool, Freed, NetnsRecord, PodRecord, Pools, Request, Store, VnicPool,
};
use vcn::{IfName, Mtu, PerFamily, Purpose, TableId};

fn boot() -> BootId {
    BootId::from_text("this")
}

fn pools(range: &str) -> Pools {
    let pool =
        FamilyPool { router: "10.9.0.1".parse().unwrap(), reserved: vec![], addresses: vec![range.parse().unwrap()] };
    let vnic = VnicPool {
        vnic_id: "ocid1.vnic.oc1.iad.a".parse().unwrap(),
        link: IfName::new("ens5").unwrap(),
        mac: "02:00:17:00:00:01".parse().unwrap(),
        mtu: Mtu::VCN,
        table: TableId(1001),
        purpose: Purpose::Pods,
        families: PerFamily { ipv4: Some(pool), ipv6: None },
    };
    Pools::new(boot(), vec![vnic], None)
}

fn request(id: &str) -> Request {
    let key = AttachmentKey {
        network: NetworkName::new("vcn-native").unwrap(),
        container_id: ContainerId::new(id).unwrap(),
        ifname: IfName::new("eth0").unwrap(),
    };
    Request { key, pod: None, host_link: IfName::new("vcn0").unwrap(), netns: None }
}

fn reserve(store: &Store, pools: &Pools, id: &str) -> Result<ipam::Reservation, Error> {
    store.update(|held| held.reserve(pools, request(id), BootTime(1)))
}

#[test]
fn fifty_writers_at_once_get_fifty_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pools) = (Store::new(dir.path(), boot()), pools("10.9.1.0/26"));
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
fn what_an_earlier_boot_held_is_void() {
    let dir = tempfile::tempdir().unwrap();
    reserve(&Store::new(dir.path(), boot()), &pools("10.9.1.0/26"), "a").unwrap();
    let next = Store::new(dir.path(), BootId::from_text("next"));
    assert_eq!(next.read().unwrap(), Allocations::none(BootId::from_text("next")));
    pools("10.9.1.0/26").write(dir.path()).unwrap();
    let error = Pools::read(dir.path(), &BootId::from_text("next")).unwrap_err();
    assert!(matches!(error, Error::NoPools { .. }));
}

#[test]
fn a_damaged_file_is_an_error_that_names_it_until_it_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("allocations.json");
    fs::write(&path, "{\"version\":1,").unwrap();
    let error = reserve(&Store::new(dir.path(), boot()), &pools("10.9.1.0/26"), "a").unwrap_err();
    assert!(error.to_string().contains("allocations.json is damaged"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"version\":1,");
    let store = Store::new(dir.path(), boot());
    let aside = store.set_aside().unwrap().unwrap();
    assert_eq!(fs::read_to_string(aside).unwrap(), "{\"version\":1,");
    assert_eq!((store.set_aside().unwrap(), store.read().unwrap()), (None, Allocations::none(boot())));
}

/// The only file of that kind in the folder of records.
fn record(dir: &Path, extension: &str) -> PathBuf {
    let files = fs::read_dir(dir.join("allocations")).unwrap().map(|entry| entry.unwrap().path());
    let mut files = files.filter(|file| file.extension().is_some_and(|its| its == extension));
    let (first, second) = (files.next().unwrap(), files.next());
    assert_eq!(second, None);
    first
}

#[test]
fn fields_of_a_newer_writer_survive_at_every_level() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pools) = (Store::new(dir.path(), boot()), pools("10.9.1.0/26"));
    let mut asked = request("a");
    asked.pod = Some(PodRecord { namespace: "default".into(), name: "web".into(), uid: None });
    asked.netns = Some(NetnsRecord { path: "/run/netns/x".into(), dev: 4, inode: 7 });
    store.update_for(&asked.key, BootTime(1), |held| held.reserve(&pools, asked.clone(), BootTime(1))).unwrap();
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
    // Written anew: the lease is longer now. And then committed, and others come and go.
    store.update_for(&asked.key, BootTime(2), |held| held.reserve(&pools, asked.clone(), BootTime(2))).unwrap();
    store.commit(&asked.key).unwrap();
    reserve(&store, &pools, "b").unwrap();
    store.update(|held| Ok::<_, Error>(held.release(&request("b").key, BootTime(3)))).unwrap();
    let text = fs::read_to_string(record(dir.path(), "json")).unwrap();
    assert!((0..6).all(|number| text.contains(&format!("\"later{number}\":7"))), "{text}");
    let text = fs::read_to_string(&index).unwrap();
    assert!(text.contains("\"colour\":\"blue\""), "{text}");
}

#[test]
fn that_an_address_is_forgotten_is_remembered() {
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
    let freed = Store::new(dir.path(), boot()).read().unwrap().freed;
    let expected = [(a, false), (b, true)].map(|(address, forgotten)| Freed { address, at: BootTime(2), forgotten });
    assert_eq!(freed, expected);
}

#[test]
fn a_file_of_a_newer_format_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("allocations.json");
    let text = r#"{"version":2,"bootId":"this","held":[],"freed":[]}"#;
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
            let got = one.update_for(&key, now, |held| held.reserve(&pools, request(&id), now)).ok();
            assert_eq!(got, all.update(|held| held.reserve(&pools, request(&id), now)).ok());
            if got.is_some() && step % 3 > 0 {
                one.commit(&key).unwrap();
                all.update(|held| held.commit(&key)).unwrap();
                commits += 1;
            }
        } else {
            let gone = one.update_for(&key, now, |held| Ok::<_, Error>(held.release(&key, now))).unwrap();
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
