//! CIDR blocks, and the kinds of addresses that no VNIC has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use vcn::{Family, METADATA_ADDRESS_V6};

/// Kinds of IPv4 addresses that OCI gives to no VNIC.
const KINDS_V4: [(Ipv4Addr, u8, &str); 6] = [
    (Ipv4Addr::UNSPECIFIED, 8, "unspecified"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::BROADCAST, 32, "broadcast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "class E"),
];

/// The IPv6 addresses that OCI gives to VNICs: global unicast and unique local ones.
const UNICAST_V6: [(Ipv6Addr, u8); 2] =
    [(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3), (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7)];

/// Names for the most common of the others.
const KINDS_V6: [(Ipv6Addr, u8, &str); 6] = [
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "IPv4-mapped"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
    (METADATA_ADDRESS_V6, 128, "the metadata service"),
];

/// What kind of addresses a block has that no VNIC gets.
pub(super) fn kind(block: IpNetwork) -> Option<&'static str> {
    let is = |base: IpAddr, prefix: u8| share(block.ip(), base, prefix.min(block.prefix()));
    match block {
        IpNetwork::V4(_) => {
            KINDS_V4.iter().find(|(base, prefix, _)| is((*base).into(), *prefix)).map(|(.., kind)| *kind)
        }
        IpNetwork::V6(_) => {
            let named = KINDS_V6.iter().find(|(base, prefix, _)| is((*base).into(), *prefix)).map(|(.., kind)| *kind);
            let unicast = |(base, prefix): &(Ipv6Addr, u8)| *prefix <= block.prefix() && is((*base).into(), *prefix);
            named.or_else(|| (!UNICAST_V6.iter().any(unicast)).then_some("no unicast address of a VCN"))
        }
    }
}

pub(super) fn is_single(block: IpNetwork) -> bool {
    block.prefix() == Family::of(block.ip()).host_prefix()
}

pub(super) fn holds(outer: IpNetwork, inner: IpNetwork) -> bool {
    outer.prefix() <= inner.prefix() && overlap(outer, inner)
}

pub(super) fn overlap(one: IpNetwork, other: IpNetwork) -> bool {
    share(one.ip(), other.ip(), one.prefix().min(other.prefix()))
}

/// Whether two addresses begin with the same bits.
fn share(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let family = Family::of(one);
    let behind = u32::from(family.host_prefix().saturating_sub(prefix));
    family == Family::of(other) && (bits(one) ^ bits(other)).checked_shr(behind).unwrap_or(0) == 0
}

/// A block without one of its addresses: of each size from half of it down to one address, the part that lacks it.
pub(super) fn without(block: IpNetwork, address: IpAddr) -> Vec<IpNetwork> {
    if !block.contains(address) {
        return vec![block];
    }
    let host_prefix = Family::of(address).host_prefix();
    let part = |prefix: u8| {
        let bit = 1u128.checked_shl(u32::from(host_prefix.saturating_sub(prefix))).unwrap_or(0);
        let other = bits(address) ^ bit;
        let other = match address {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::from(u32::try_from(other).ok()?)),
            IpAddr::V6(_) => IpAddr::from(Ipv6Addr::from(other)),
        };
        let part = IpNetwork::new(other, prefix).ok()?;
        IpNetwork::new(part.network(), prefix).ok()
    };
    (block.prefix().saturating_add(1)..=host_prefix).filter_map(part).collect()
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}
