//! Which addresses of a subnet's block are in use. The lowest free ones go first, so that they recycle as in a VCN.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

/// OCI keeps the first two addresses of a block (its name, the router) and the last one.
const RESERVED: u128 = 2;

/// The addresses of one block.
#[derive(Debug)]
pub(crate) struct Addresses {
    block: IpNetwork,
    /// First → last offset of what is in use.
    used: BTreeMap<u128, u128>,
}

impl Addresses {
    pub(crate) fn new(block: IpNetwork) -> Self {
        Self { block, used: BTreeMap::from([(0, RESERVED - 1)]) }
    }

    /// Takes `size` addresses in a row, aligned to `size` (a power of two); returns the first.
    pub(crate) fn take(&mut self, size: u128) -> Option<IpAddr> {
        let size = size.max(1);
        let bits = u32::from(width(self.block) - self.block.prefix());
        let end = 1_u128.checked_shl(bits).unwrap_or(u128::MAX) - 1;
        let mut first = 0_u128;
        for (from, to) in &self.used {
            if first.checked_add(size)? <= *from {
                break;
            }
            first = first.max(to.checked_add(1)?.div_ceil(size).checked_mul(size)?);
        }
        let last = first.checked_add(size - 1)?;
        if last >= end {
            return None;
        }
        self.used.insert(first, last);
        self.at(first)
    }

    /// Takes a row of addresses that begins with this one; `false` when one of them is in use, reserved or elsewhere.
    pub(crate) fn take_at(&mut self, first: IpAddr, size: u128) -> bool {
        let bits = u32::from(width(self.block) - self.block.prefix());
        let end = 1_u128.checked_shl(bits).unwrap_or(u128::MAX) - 1;
        let Some(from) = number(first).checked_sub(number(self.block.network())) else { return false };
        let Some(to) = from.checked_add(size.max(1) - 1) else { return false };
        let free = self.block.contains(first) && to < end && self.used.range(..=to).all(|(_, last)| *last < from);
        if free {
            self.used.insert(from, to);
        }
        free
    }

    /// Gives back what `take` returned.
    pub(crate) fn give_back(&mut self, first: IpAddr) {
        if let Some(offset) = number(first).checked_sub(number(self.block.network())) {
            self.used.remove(&offset);
        }
    }

    fn at(&self, offset: u128) -> Option<IpAddr> {
        let number = number(self.block.network()).checked_add(offset)?;
        Some(match self.block {
            IpNetwork::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).ok()?)),
            IpNetwork::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
        })
    }
}

/// The bits of an address of the block's family.
pub(crate) const fn width(block: IpNetwork) -> u8 {
    match block {
        IpNetwork::V4(_) => 32,
        IpNetwork::V6(_) => 128,
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(block: &str) -> Addresses {
        Addresses::new(block.parse().unwrap())
    }

    #[test]
    fn blocks_are_aligned_and_never_overlap() {
        let mut addresses = addresses("10.0.0.0/26");
        assert_eq!(addresses.take(1), "10.0.0.2".parse().ok());
        assert_eq!(addresses.take(16), "10.0.0.16".parse().ok());
        assert_eq!(addresses.take(16), "10.0.0.32".parse().ok());
        assert_eq!(addresses.take(16), None, "the last one has the broadcast address");
        assert_eq!(addresses.take(1), "10.0.0.3".parse().ok());
    }

    #[test]
    fn a_given_address_is_taken_once_and_only_inside() {
        let mut addresses = addresses("10.0.0.0/28");
        let mut take = |first: &str, size| addresses.take_at(first.parse().unwrap(), size);
        assert!(take("10.0.0.9", 1));
        for (first, size) in [("10.0.0.9", 1), ("10.0.0.8", 4), ("10.0.0.1", 1), ("10.0.0.15", 1), ("10.0.1.3", 1)] {
            assert!(!take(first, size), "{first} {size}");
        }
        assert!(take("10.0.0.4", 4));
        assert_eq!(addresses.take(1), "10.0.0.2".parse().ok());
    }
}
