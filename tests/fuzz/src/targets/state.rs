//! The state files. A file of somebody else's, a damaged one, one of a later version: it is refused by name and left
//! alone, or understood; and what is understood never gives an address to two pods.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use cni::AttachmentKey;
use ipam::{Allocations, BootId, BootTime, Error, FamilyPool, Pools, Request, Store, VnicPool};
use vcn::{IfName, Mtu, Ocid, PerFamily, Purpose, TableId};

const NOW: BootTime = BootTime(1_000_000);
const NEW: &str = "vcn-native/new/eth0";

thread_local! {
    /// A folder of this thread's, in memory.
    static FOLDER: LazyCell<tempfile::TempDir> = LazyCell::new(|| {
        tempfile::tempdir_in("/dev/shm").unwrap_or_else(|error| panic!("a folder in /dev/shm: {error}"))
    });
}

pub(super) fn pools(input: &[u8]) {
    let Ok(pools) = serde_json::from_slice::<Pools>(input) else { return };
    let again = serde_json::to_vec(&pools).ok().and_then(|text| serde_json::from_slice(&text).ok());
    assert_eq!(again.as_ref(), Some(&pools), "what was read is written and read as the same");
    let mut held = Allocations::none(boot());
    let mut given = BTreeSet::new();
    for number in 0..3 {
        let Ok(request) = format!("n/c{number}/eth0").parse() else { continue };
        let Ok(reservation) = held.reserve(&pools, asked(request), NOW) else { continue };
        for assigned in reservation.allocation.addresses {
            assert!(given.insert(assigned.address), "{} was given out twice", assigned.address);
            let carries = |vnic: &&VnicPool| {
                vnic.vnic_id == assigned.vnic_id
                    && vnic.families.iter().any(|(_, pool)| pool.contains(assigned.address))
            };
            assert!(pools.for_pods().any(|vnic| carries(&vnic)), "{} is no pod address", assigned.address);
        }
    }
}

pub(super) fn allocations(input: &[u8]) {
    FOLDER.with(|folder| read_and_change(folder.path(), input));
}

fn read_and_change(folder: &Path, input: &[u8]) {
    let file = folder.join("allocations.json");
    let written = fs::write(&file, input);
    assert!(written.is_ok(), "{written:?}");
    let store = Store::new(folder, boot());
    let before = match store.read() {
        Ok(before) => before,
        Err(Error::Damaged { .. }) => {
            let aside = store.set_aside().ok().flatten();
            assert_eq!(aside.and_then(|aside| fs::read(aside).ok()).as_deref(), Some(input), "kept for whoever asks");
            assert!(store.read().is_ok_and(|held| held.is_empty()));
            return;
        }
        Err(Error::TooNew { .. }) => {
            let refused = store.update(|held| Ok::<_, Error>(held.freed.clear()));
            assert!(matches!(refused, Err(Error::TooNew { .. })), "{refused:?}");
            assert_eq!(fs::read(&file).ok().as_deref(), Some(input), "a later version's file is left alone");
            return;
        }
        Err(other) => panic!("{other}"),
    };
    let Ok(key) = NEW.parse::<AttachmentKey>() else { return };
    let lives = |held: &&ipam::Allocation| held.key != key && held.tentative_until.is_none_or(|until| until > NOW);
    let taken: BTreeSet<IpAddr> =
        before.allocations.iter().filter(lives).flat_map(|held| held.addresses.iter().map(|a| a.address)).collect();
    let known = before.find(&key).is_some();
    match store.update(|held| held.reserve(&two_vnics(), asked(key.clone()), NOW)) {
        Ok(reservation) => {
            let given = &reservation.allocation.addresses;
            assert!(known || given.iter().all(|assigned| !taken.contains(&assigned.address)), "{given:?} is taken");
        }
        Err(Error::Exhausted(_)) => return,
        Err(other) => panic!("{other}"),
    }
    let committed = store.commit(&key);
    assert!(committed.is_ok(), "{committed:?}");
    let (own, another) = (store.read().ok(), Store::new(folder, boot()).read().ok());
    assert!(own.is_some() && own == another, "what is remembered is what is in the file");
    assert!(own.is_some_and(|held| held.find(&key).is_some_and(|held| held.tentative_until.is_none())));
    let released = store.update(|held| Ok::<_, Error>(held.release(&key, NOW)));
    assert!(released.is_ok_and(|released| released.is_some()));
}

pub(super) fn written_pools() -> Vec<Vec<u8>> {
    serde_json::to_vec(&two_vnics()).into_iter().collect()
}

/// One allocation that lasts, one that does not yet, one address that was freed: as the store writes them.
pub(super) fn written_allocations() -> Vec<Vec<u8>> {
    let mut held = Allocations::none(boot());
    for name in ["a", "b", "c", "d"] {
        if let Ok(key) = format!("vcn-native/{name}/eth0").parse::<AttachmentKey>() {
            let _ = held.reserve(&two_vnics(), asked(key), NOW);
        }
    }
    let lasting = held.allocations.first().map(|allocation| allocation.key.clone());
    lasting.into_iter().for_each(|key| drop(held.commit(&key)));
    let freed = held.allocations.last().map(|allocation| allocation.key.clone());
    freed.into_iter().for_each(|key| drop(held.release(&key, NOW)));
    serde_json::to_vec(&held).into_iter().collect()
}

fn boot() -> BootId {
    BootId::from_text("boot")
}

fn asked(key: AttachmentKey) -> Request {
    Request { key, pod: None, host_link: link("oci0"), netns: None }
}

fn two_vnics() -> Pools {
    let vnic = |number: u8| VnicPool {
        vnic_id: id(number),
        link: link(&format!("ens{number}")),
        mac: vcn::MacAddr([2, 0, 23, 0, 0, number]),
        mtu: Mtu::VCN,
        table: TableId(1000 + u32::from(number)),
        purpose: Purpose::Pods,
        families: PerFamily {
            ipv4: family(&format!("10.0.{number}.1"), &format!("10.0.{number}.8/30")),
            ipv6: family(&format!("fd00:{number}::1"), &format!("fd00:{number}::8/126")),
        },
    };
    Pools::new(boot(), vec![vnic(1), vnic(2)], None)
}

fn family(router: &str, addresses: &str) -> Option<FamilyPool> {
    let addresses = vec![addresses.parse().ok()?];
    Some(FamilyPool { router: router.parse().ok()?, reserved: Vec::new(), addresses })
}

fn link(name: &str) -> IfName {
    IfName::new(name).unwrap_or_else(|error| panic!("{error}"))
}

fn id(number: u8) -> Ocid {
    format!("ocid1.vnic.oc1.iad.v{number}").parse().unwrap_or_else(|error| panic!("{error}"))
}
