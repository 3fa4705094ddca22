//! Records that are lost while the pods live: no address that a route leads to is ever free.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ipam::{BootTime, Error, Pools, Store};
use vcn::{IfName, PodRoute};

use crate::node::{boot, pools, request, reserve};

/// Three pods at the first addresses of the pools.
fn three_pods(dir: &Path, pools: &Pools) -> Store {
    let store = Store::new(dir, boot());
    for id in ["a", "b", "c"] {
        reserve(&store, pools, id).unwrap();
        store.commit(&request(id).key).unwrap();
    }
    store
}

fn link(id: &str) -> IfName {
    IfName::new(format!("vcn{id}")).unwrap()
}

fn routed(id: &str, address: &str) -> PodRoute {
    let identity = Some(request(id).key.to_string());
    PodRoute { address: address.parse().unwrap(), link: link(id), identity }
}

fn held(store: &Store) -> Vec<(String, IpAddr)> {
    let all = store.read().unwrap().allocations;
    let mut held: Vec<_> = all.iter().map(|it| (it.key.container_id.to_string(), it.addresses[0].address)).collect();
    held.sort();
    held
}

fn lose_records(dir: &Path) {
    fs::remove_dir_all(dir.join("allocations")).unwrap();
}

/// Every address that can be had.
fn all_free(store: &Store, pools: &Pools) -> Vec<String> {
    let reserved = (0..).map_while(|id| reserve(store, pools, &format!("new{id}")).ok());
    let fresh = reserved.filter(|got| !got.existing);
    fresh.map(|got| got.allocation.addresses[0].address.to_string()).collect()
}

#[test]
fn unrecorded_address_is_freed_only_when_no_route_uses_it() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
    let store = three_pods(dir.path(), &pools);
    lose_records(dir.path());
    assert!(store.sweep().unwrap(), "the kernel must be queried");
    assert_eq!(store.read().unwrap().freed, [], "and nothing is free before");
    // The last one is on its way out: there is no route any more.
    let kernel = [routed("a", "10.9.1.0"), routed("b", "10.9.1.1")];
    assert_eq!(store.reconcile_with_kernel(&kernel, Some(&pools), None, |_| true).unwrap(), 2);
    assert_eq!(held(&store), [("a".into(), "10.9.1.0".parse().unwrap()), ("b".into(), "10.9.1.1".parse().unwrap())]);
    assert_eq!(store.read().unwrap().freed.iter().map(|it| it.address.to_string()).collect::<Vec<_>>(), ["10.9.1.2"]);
    assert!(!store.sweep().unwrap());
    let next = reserve(&store, &pools, "d").unwrap();
    assert_eq!(
        (next.rested, next.unforgotten),
        (None, vec![]),
        "the index was there, so the others are known to be clean"
    );
}

#[test]
fn unnamed_routed_address_is_held_until_its_route_is_gone() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/30"));
    let store = three_pods(dir.path(), &pools);
    lose_records(dir.path());
    fs::remove_file(dir.path().join("allocations.json")).unwrap();
    let nameless = PodRoute { identity: Some("#0123456789abcdef".into()), ..routed("b", "10.9.1.1") };
    let kernel = [routed("a", "10.9.1.0"), nameless];
    assert_eq!(store.reconcile_with_kernel(&kernel, None, None, |_| true).unwrap(), 0);
    assert_eq!(store.reconcile_with_kernel(&kernel, Some(&pools), None, |_| true).unwrap(), 1, "the other has no name");
    assert_eq!(all_free(&store, &pools), ["10.9.1.2", "10.9.1.3"]);
    assert!(store.sweep().unwrap());
    store.reconcile_with_kernel(&kernel[..1], Some(&pools), None, |_| true).unwrap();
    assert_eq!(all_free(&store, &pools), ["10.9.1.1"]);
}

/// DEL uses the record: if it named only some of the addresses, the rules of the rest would stay.
#[test]
fn unrecorded_attachment_with_address_outside_pools_is_held_whole() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/31"));
    let store = Store::new(dir.path(), boot());
    let kernel = [routed("a", "10.9.1.0"), routed("a", "fd00::9")];
    assert_eq!(store.reconcile_with_kernel(&kernel, Some(&pools), None, |_| true).unwrap(), 0);
    assert_eq!(store.find(&request("a").key).unwrap(), None);
    assert_eq!(all_free(&store, &pools), ["10.9.1.1"]);
    let key = request("a").key;
    store.update_for(&key, |held| Ok::<_, Error>(held.release(&key, BootTime(5)))).unwrap();
    let mut freed: Vec<_> = store.read().unwrap().freed.iter().map(|it| it.address.to_string()).collect();
    freed.sort();
    assert_eq!(freed, ["10.9.1.0", "fd00::9"]);
}

#[test]
fn record_missing_from_stale_index_is_adopted_and_gaps_cool() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
    let store = Store::new(dir.path(), boot());
    reserve(&store, &pools, "a").unwrap();
    let index = dir.path().join("allocations.json");
    let old = fs::read(&index).unwrap();
    reserve(&store, &pools, "b").unwrap();
    reserve(&store, &pools, "c").unwrap();
    fs::write(&index, old).unwrap();
    let record = fs::read_dir(dir.path().join("allocations")).unwrap().map(|entry| entry.unwrap().path());
    let of_c = record.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("c-")).unwrap();
    fs::remove_file(of_c).unwrap();
    let kernel = [routed("a", "10.9.1.0"), routed("b", "10.9.1.1"), routed("c", "10.9.1.2")];
    assert_eq!(store.reconcile_with_kernel(&kernel, Some(&pools), None, |_| true).unwrap(), 1, "b has its record");
    assert_eq!(held(&store).len(), 3);
    let next = reserve(&store, &pools, "d").unwrap();
    assert_eq!(next.allocation.addresses[0].address.to_string(), "10.9.1.3");
    assert!(next.rested.is_some() && next.unforgotten.len() == 1, "a pod may have had it until now");
}

#[test]
fn pod_with_del_in_progress_is_not_adopted() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
    let store = Store::new(dir.path(), boot());
    let kernel = [routed("a", "10.9.1.0"), routed("b", "10.9.1.1")];
    let _del = store.attachment(&request("a").key).unwrap();
    assert_eq!(store.reconcile_with_kernel(&kernel, Some(&pools), None, |name| *name != link("b")).unwrap(), 0);
    let freed: Vec<_> = store.read().unwrap().freed.iter().map(|it| it.address.to_string()).collect();
    assert_eq!(freed, ["10.9.1.0", "10.9.1.1"], "the one by its DEL, the other had gone before we could look");
}

/// Between the look at the records and the change there is no lock. `lives` is called in between.
#[test]
fn pod_deleted_during_reconciliation_is_not_adopted() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
    let store = three_pods(dir.path(), &pools);
    let kernel = [routed("a", "10.9.1.0"), routed("b", "10.9.1.1"), routed("c", "10.9.1.2"), routed("x", "10.9.1.3")];
    let del = |name: &IfName| {
        assert_eq!(*name, link("x"), "no other pod is unknown");
        let key = request("b").key;
        store.update_for(&key, |held| Ok::<_, Error>(held.release(&key, BootTime(2)))).unwrap().is_some()
    };
    assert_eq!(store.reconcile_with_kernel(&kernel, Some(&pools), None, del).unwrap(), 1, "x alone");
    let expected = [("a", "10.9.1.0"), ("c", "10.9.1.2"), ("x", "10.9.1.3")];
    assert_eq!(held(&store), expected.map(|(id, address)| (id.into(), address.parse().unwrap())));
    let freed: Vec<_> = store.read().unwrap().freed.iter().map(|it| it.address.to_string()).collect();
    assert_eq!(freed, ["10.9.1.1"]);
}

/// The links show that one pod has an address, the records that another has it: both keep it.
#[test]
fn recorded_address_is_not_reassigned_to_pod_in_a_route() {
    let (dir, pools) = (tempfile::tempdir().unwrap(), pools("10.9.1.0/29"));
    let store = three_pods(dir.path(), &pools);
    let before = held(&store);
    let kernel = [routed("x", "10.9.1.0"), routed("b", "10.9.1.1"), routed("b", "10.9.1.5"), routed("c", "10.9.1.2")];
    assert_eq!(store.reconcile_with_kernel(&kernel, Some(&pools), None, |_| true).unwrap(), 0);
    assert_eq!(held(&store), before);
    assert!(!all_free(&store, &pools).contains(&"10.9.1.5".into()), "an address next to the recorded one is held, too");
}
