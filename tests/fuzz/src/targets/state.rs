//! The state documents. What is understood is written as the same, and never gives an address to two pods.

use std::collections::BTreeSet;
use std::fmt::Debug;

use cni::AttachmentKey;
use ipam::{Allocation, Allocations, BootId, BootTime, FamilyPool, Pools, VnicPool};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use vcn::{IfName, Mtu, Ocid, PerFamily, Purpose, TableId};

pub(super) const NOW: BootTime = BootTime(1_000_000);

pub(super) fn pools(input: &[u8]) {
    let Ok(pools) = serde_json::from_slice::<Pools>(input) else { return };
    is_kept(&pools, input);
    let mut held = Allocations::none(boot());
    let mut given = BTreeSet::new();
    for number in 0..3 {
        let Ok(request) = format!("n/c{number}/eth0").parse() else { continue };
        let Ok(reservation) = held.reserve(&pools, requested(request), NOW) else { continue };
        for assigned in reservation.allocation.addresses {
            assert!(given.insert(assigned.address), "{} was given out twice", assigned.address);
            let carries = |vnic: &&VnicPool| {
                vnic.vnic_id == assigned.vnic_id
                    && vnic.families.iter().any(|(_, pool)| pool.contains(assigned.address))
            };
            assert!(pools.for_pods().any(|vnic| carries(&vnic)), "{} is not a pod address", assigned.address);
        }
    }
}

/// The index alone, in memory: a hundred times as fast as with its folder.
pub(super) fn index(input: &[u8]) {
    let Ok(mut held) = serde_json::from_slice::<Allocations>(input) else { return };
    is_kept_as(&held, input, Allocations::to_index);
    let mut given = BTreeSet::new();
    for number in 0..3 {
        let Ok(key) = format!("vcn-native/new{number}/eth0").parse::<AttachmentKey>() else { continue };
        let Ok(reservation) = held.reserve(&two_vnics(), requested(key), NOW) else { break };
        for assigned in reservation.allocation.addresses {
            assert!(given.insert(assigned.address), "{} was given out twice", assigned.address);
        }
    }
    if let Some(key) = held.allocations.first().map(|held| held.key.clone()) {
        assert!(held.commit(&key).is_ok() && held.release(&key, NOW).is_some() && held.find(&key).is_none());
    }
}

pub(super) fn record(input: &[u8]) {
    if let Ok(held) = serde_json::from_slice::<Allocation>(input) {
        is_kept(&held, input);
    }
}

/// What was read is written and read as the same. But for fractions, which none of our formats has: as `serde_json` reads
/// them their last digit may change (reading them exactly would make a plugin 42 KB larger).
fn is_kept<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, input: &[u8]) {
    is_kept_as(value, input, serde_json::to_vec);
}

fn is_kept_as<T: DeserializeOwned + PartialEq + Debug>(
    value: &T,
    input: &[u8],
    written: impl Fn(&T) -> serde_json::Result<Vec<u8>>,
) {
    // Bytes that are not text may be in a field that no reader uses.
    if serde_json::from_str(&String::from_utf8_lossy(input)).is_ok_and(|document| has_fraction(&document)) {
        return;
    }
    let again: Option<T> = written(value).ok().and_then(|text| serde_json::from_slice(&text).ok());
    assert_eq!(again.as_ref(), Some(value), "what was read is written and read as the same");
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(fields) => fields.values().any(has_fraction),
        _ => false,
    }
}

pub(super) fn written_pools() -> Vec<Vec<u8>> {
    serde_json::to_vec(&two_vnics()).into_iter().collect()
}

pub(super) fn boot() -> BootId {
    BootId::from_text("boot")
}

pub(super) fn requested(key: AttachmentKey) -> Allocation {
    Allocation::requested(key, link("oci0"))
}

pub(super) fn two_vnics() -> Pools {
    let vnic = |number: u8| VnicPool {
        vnic_id: id(number),
        link: link(&format!("ens{number}")),
        mac: vcn::MacAddr([2, 0, 23, 0, 0, number]),
        link_has_mac: number.is_multiple_of(2),
        mtu: Mtu::VCN,
        table: TableId(1000 + u32::from(number)),
        purpose: Purpose::Pods,
        attach: None,
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
