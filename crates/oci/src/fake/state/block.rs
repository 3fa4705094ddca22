//! The blocks of a subnet, and the addresses of one by number.

use ipnetwork::IpNetwork;
use vcn::{Family, Ocid};

use super::{State, refuse};
use crate::address::CreateAddress;
use crate::error::Refusal;
use crate::subnet::Subnet;

impl State {
    /// The block that an address comes from: the one that is asked for, or the only one.
    pub(in crate::fake) fn block(&self, id: &Ocid, family: Family, wish: &CreateAddress) -> Result<IpNetwork, Refusal> {
        let subnet = self.subnets.get(id);
        let block = match (family, wish.ipv6_subnet_cidr, subnet.map_or(&[][..], Subnet::ipv6_blocks)) {
            (Family::Ipv4, _, _) => subnet.and_then(|subnet| subnet.cidr_block),
            (Family::Ipv6, Some(asked), blocks) => blocks.iter().copied().find(|block| *block == asked),
            (Family::Ipv6, None, [only]) => Some(*only),
            (Family::Ipv6, None, _) => None,
        };
        block.ok_or_else(|| refuse(400, "InvalidParameter"))
    }
}

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
