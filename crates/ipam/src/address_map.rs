//! Sets and maps of addresses, hashed by one multiplication. Every ADD looks up every address of the node; the standard
//! hasher's strength is against keys that an attacker chooses, and which addresses a node has is not the pods' choice.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

pub(crate) type AddressSet = HashSet<IpAddr, BuildHasherDefault<AddressHasher>>;
pub(crate) type AddressMap<V> = HashMap<IpAddr, V, BuildHasherDefault<AddressHasher>>;

/// The hash of an address.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 over the golden ratio; the rotation brings the bits that differ, the highest, where a table looks first.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn write_u128(&mut self, number: u128) {
        // An IPv6 address, in two halves.
        self.write_u64((number >> 64) as u64);
        self.write_u64(number as u64);
    }

    /// Which family it is: the number says that well enough.
    fn write_isize(&mut self, _: isize) {}
}
