//! A node's pools, and attachments that request addresses.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cni::{AttachmentKey, ContainerId, NetworkName};
use ipam::{Allocation, BootId, BootTime, Error, FamilyPool, Pools, Reservation, Store, VnicPool};
use vcn::{IfName, Mtu, PerFamily, Purpose, TableId};

pub(crate) fn boot() -> BootId {
    BootId::from_text("this")
}

pub(crate) fn pools(range: &str) -> Pools {
    let pool =
        FamilyPool { router: "10.9.0.1".parse().unwrap(), reserved: vec![], addresses: vec![range.parse().unwrap()] };
    let vnic = VnicPool {
        vnic_id: "ocid1.vnic.oc1.iad.a".parse().unwrap(),
        link: IfName::new("ens5").unwrap(),
        mac: "02:00:17:00:00:01".parse().unwrap(),
        link_has_mac: true,
        mtu: Mtu::VCN,
        table: TableId(1001),
        purpose: Purpose::Pods,
        attach: None,
        families: PerFamily { ipv4: Some(pool), ipv6: None },
    };
    Pools::new(boot(), vec![vnic], None)
}

pub(crate) fn request(id: &str) -> Allocation {
    let key = AttachmentKey {
        network: NetworkName::new("vcn-native").unwrap(),
        container_id: ContainerId::new(id).unwrap(),
        ifname: IfName::new("eth0").unwrap(),
    };
    Allocation::requested(key, IfName::new("vcn0").unwrap())
}

pub(crate) fn reserve(store: &Store, pools: &Pools, id: &str) -> Result<Reservation, Error> {
    store.update(|held| held.reserve(pools, request(id), BootTime(1)))
}

/// The only file of that kind in the folder of records.
pub(crate) fn record(dir: &Path, extension: &str) -> PathBuf {
    let files = fs::read_dir(dir.join("allocations")).unwrap().map(|entry| entry.unwrap().path());
    let mut files = files.filter(|file| file.extension().is_some_and(|its| its == extension));
    let (first, second) = (files.next().unwrap(), files.next());
    assert_eq!(second, None);
    first
}

/// Every file and what is in it, but for the filler.
pub(crate) fn everything(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => all.extend(everything(&entry)),
            false if entry.ends_with("filler") => {}
            false => drop(all.insert(entry.clone(), fs::read_to_string(&entry).unwrap())),
        }
    }
    all
}
