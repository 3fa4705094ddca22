//! The addresses of a block, by number.

use ipnetwork::IpNetwork;

/// How many addresses a block of this prefix length has.
pub(super) fn size(block: IpNetwork, prefix: u8) -> u64 {
    let width: u8 = if block.is_ipv4() { 32 } else { 128 };
    1_u64.checked_shl(u32::from(width.saturating_sub(prefix))).unwrap_or(1 << 32)
}

pub(super) fn nth(block: IpNetwork, number: u64) -> Option<std::net::IpAddr> {
    match block {
        IpNetwork::V4(block) => block.nth(u32::try_from(number).ok()?).map(Into::into),
        IpNetwork::V6(block) => block.nth(number.into()).map(Into::into),
    }
}
