//! Reading netlink attributes: one walk over (type, value) pairs, and the few value shapes the kernel uses.
//!
//! Only attributes that we use are looked at. A typed decoder must understand a whole message, and one attribute that
//! it does not know how to read makes a link or a route vanish from a list.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netlink_packet_core::NlasIterator;
use vcn::Family;

use crate::error::Cause;

/// The attributes after a message's fixed header of `header_len` bytes.
pub(crate) fn after(payload: &[u8], header_len: usize) -> impl Iterator<Item = Result<(u16, &[u8]), Cause>> {
    within(payload.get(header_len..).unwrap_or_default())
}

/// The attributes nested in a value.
pub(crate) fn within(value: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), Cause>> {
    NlasIterator::new(value).map(|attribute| match attribute {
        Ok(attribute) => {
            let (kind, end) = (attribute.kind(), usize::from(attribute.length()));
            // The crate's own `value()` borrows from its short-lived view.
            Ok((kind, attribute.into_inner().get(4..end).unwrap_or_default()))
        }
        Err(_) => Err(Cause::Malformed("an attribute is longer than its message")),
    })
}

pub(crate) fn u16_of(value: &[u8]) -> Result<u16, Cause> {
    value.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes)).ok_or(Cause::Malformed("short 16-bit number"))
}

pub(crate) fn u32_of(value: &[u8]) -> Result<u32, Cause> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Cause::Malformed("short 32-bit number"))
}

pub(crate) fn i32_of(value: &[u8]) -> Result<i32, Cause> {
    value.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or(Cause::Malformed("short 32-bit number"))
}

/// netfilter's numbers are in network byte order.
pub(crate) fn u32_be_of(value: &[u8]) -> Result<u32, Cause> {
    value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).ok_or(Cause::Malformed("short 32-bit number"))
}

/// A text up to its closing NUL; bytes that are not UTF-8 are replaced.
pub(crate) fn text_of(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

pub(crate) fn address_of(value: &[u8]) -> Result<IpAddr, Cause> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        Ok(IpAddr::V4(Ipv4Addr::from(octets)))
    } else if let Ok(octets) = <[u8; 16]>::try_from(value) {
        Ok(IpAddr::V6(Ipv6Addr::from(octets)))
    } else {
        Err(Cause::Malformed("an IP address of neither 4 nor 16 bytes"))
    }
}

pub(crate) fn network(address: IpAddr, prefix: u8) -> Result<IpNetwork, Cause> {
    IpNetwork::new(address, prefix).map_err(|_| Cause::Malformed("a prefix longer than its address"))
}

/// The unspecified address, `0.0.0.0` or `::`.
pub(crate) const fn any(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::Ipv6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}
