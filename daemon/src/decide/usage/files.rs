//! Reads the files that are counted.

use std::path::Path;

use ipam::{BootId, BootTime, Pools, Store};

use super::Usage;

impl Usage {
    /// The pools and what pods hold of them, as far as records can be read.
    /// An error if there are no pools of this boot.
    pub(crate) fn read(state_dir: &Path, boot: &BootId) -> Result<Self, ipam::Error> {
        held(&Pools::read(state_dir, boot)?, state_dir, boot)
    }

    /// The same for metrics: without published pools there are no addresses, and pods may run all the same.
    pub(crate) fn counted(state_dir: &Path, boot: &BootId) -> Result<Self, ipam::Error> {
        match Pools::read(state_dir, boot) {
            Err(ipam::Error::NoPools { .. }) => held(&Pools::new(boot.clone(), Vec::new(), None), state_dir, boot),
            pools => held(&pools?, state_dir, boot),
        }
    }
}

fn held(pools: &Pools, state_dir: &Path, boot: &BootId) -> Result<Usage, ipam::Error> {
    let (allocations, _) = Store::new(state_dir, boot.clone()).read_sound()?;
    Ok(Usage::of(pools, &allocations, BootTime::now()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ipam::{Allocation, FamilyPool, VnicPool};
    use tempfile::TempDir;
    use vcn::{Mtu, PerFamily, Purpose, TableId};

    use super::*;
    use crate::fixture::mac;

    fn boot() -> BootId {
        BootId::from_text("a")
    }

    /// Four addresses, of which the pods `a` and `b` hold one each.
    fn two_pods() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let addresses = FamilyPool {
            router: "10.0.33.1".parse().unwrap(),
            reserved: Vec::new(),
            addresses: vec!["10.0.33.32/30".parse().unwrap()],
        };
        let vnic = VnicPool {
            vnic_id: "ocid1.vnic.oc1.iad.pods".parse().unwrap(),
            link: "ens5".parse().unwrap(),
            mac: mac(0x0b),
            link_has_mac: true,
            mtu: Mtu::VCN,
            table: TableId(1000),
            purpose: Purpose::Pods,
            attach: None,
            families: PerFamily { ipv4: Some(addresses), ipv6: None },
        };
        let pools = Pools::new(boot(), vec![vnic], None);
        pools.write(folder.path()).unwrap();
        let store = Store::new(folder.path(), boot());
        for container in ["a", "b"] {
            let key = format!("vcn-native/{container}/eth0").parse().unwrap();
            let host_link = format!("vcn{container}").parse().unwrap();
            let request = Allocation::requested(key, host_link);
            store.update(|held| held.reserve(&pools, request, BootTime::now()?)).unwrap();
        }
        folder
    }

    /// Addresses in all, in use and free; and how many attachments are known.
    fn counts(usage: &Usage) -> (Vec<[u64; 3]>, usize) {
        let pools = usage.pools.iter().map(|pool| [pool.total, pool.in_use, pool.free]).collect();
        (pools, usage.attachments.committed + usage.attachments.tentative)
    }

    #[test]
    fn addresses_of_a_damaged_record_are_not_free() {
        let folder = two_pods();
        for read in [Usage::read, Usage::counted] {
            assert_eq!(counts(&read(folder.path(), &boot()).unwrap()), (vec![[4, 2, 2]], 2));
        }
        let mut records = fs::read_dir(folder.path().join("allocations")).unwrap();
        let of_a = |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("a-");
        let record = records.find_map(|entry| Some(entry.unwrap().path()).filter(of_a)).unwrap();
        fs::write(record, "{half").unwrap();
        for read in [Usage::read, Usage::counted] {
            assert_eq!(counts(&read(folder.path(), &boot()).unwrap()), (vec![[4, 2, 2]], 1));
        }
    }

    #[test]
    fn pods_are_counted_without_pools() {
        let folder = two_pods();
        fs::remove_file(folder.path().join("pools.json")).unwrap();
        assert!(matches!(Usage::read(folder.path(), &boot()), Err(ipam::Error::NoPools { .. })));
        assert_eq!(counts(&Usage::counted(folder.path(), &boot()).unwrap()), (Vec::new(), 2));
        fs::write(folder.path().join("allocations.json"), "{half").unwrap();
        assert!(matches!(Usage::counted(folder.path(), &boot()), Err(ipam::Error::Damaged { .. })));
    }
}
