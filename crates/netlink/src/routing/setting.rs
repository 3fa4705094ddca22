//! Settings of links, as the kernel tells of them when one is written: by whomever, in /proc/sys or otherwise.

use vcn::Family;

use crate::error::{Cause, Result};
use crate::wire::attributes;

// linux/netconf.h
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_IFINDEX_ALL: i32 = -1;
const NETCONFA_IFINDEX_DEFAULT: i32 = -2;

/// The family, and padding to the attributes' alignment.
const HEADER_LEN: usize = 4;

/// A setting that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Of which family.
    pub family: Family,
    /// Of which link.
    pub of: SettingOf,
    /// Which one.
    pub key: SettingKey,
    /// Its new value.
    pub value: i32,
}

/// Whose setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettingOf {
    /// The link's of this index.
    Link(u32),
    /// `conf/all`.
    All,
    /// `conf/default`.
    Default,
}

/// Those of which the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettingKey {
    /// `forwarding`; of all links and IPv4 also `ip_forward`.
    Forwarding,
    /// `rp_filter`.
    ReversePath,
    /// `proxy_arp`, `proxy_ndp`.
    ProxyNeighbours,
    /// Another one, by its number.
    Other(u16),
}

impl Setting {
    /// Nothing where the message lists all settings of a link: that link is new, and no program wrote them.
    pub(crate) fn decode(payload: &[u8]) -> Result<Option<Self>, Cause> {
        let family = match payload.first().map(|number| i32::from(*number)) {
            Some(libc::AF_INET) => Family::Ipv4,
            Some(libc::AF_INET6) => Family::Ipv6,
            // MPLS has settings, too.
            Some(_) => return Ok(None),
            None => return Err(Cause::Malformed("short settings message")),
        };
        let (mut of, mut values) = (None, Vec::new());
        for attribute in attributes::after(payload, HEADER_LEN) {
            let (kind, value) = attribute?;
            let value = attributes::i32_of(value)?;
            match (kind, value) {
                (NETCONFA_IFINDEX, NETCONFA_IFINDEX_ALL) => of = Some(SettingOf::All),
                (NETCONFA_IFINDEX, NETCONFA_IFINDEX_DEFAULT) => of = Some(SettingOf::Default),
                (NETCONFA_IFINDEX, index) => of = u32::try_from(index).ok().map(SettingOf::Link),
                (number, value) => values.push((SettingKey::numbered(number), value)),
            }
        }
        let of = of.ok_or(Cause::Malformed("a setting of no link"))?;
        Ok(match values.as_slice() {
            [(key, value)] => Some(Self { family, of, key: *key, value: *value }),
            _ => None,
        })
    }
}

impl SettingKey {
    const fn numbered(number: u16) -> Self {
        match number {
            2 => Self::Forwarding,
            3 => Self::ReversePath,
            5 => Self::ProxyNeighbours,
            other => Self::Other(other),
        }
    }
}
