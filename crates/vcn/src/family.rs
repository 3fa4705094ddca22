//! IPv4 and IPv6 as equals (promise P8): a value per family, so that no code path can forget one.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::words;

/// An IP address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4, with addresses of 32 bits.
    Ipv4,
    /// IPv6, with addresses of 128 bits.
    Ipv6,
}

impl Family {
    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }

    /// The prefix length of a single address: 32 or 128 bits.
    pub const fn host_prefix(self) -> u8 {
        match self {
            Self::Ipv4 => 32,
            Self::Ipv6 => 128,
        }
    }
}

words!(Family: Ipv4 = "IPv4", Ipv6 = "IPv6");

/// At most one value per family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerFamily<T> {
    /// The value for IPv4, if there is one.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<T>,
    /// The value for IPv6, if there is one.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<T>,
}

const fn none<T>() -> Option<T> {
    None
}

impl<T> Default for PerFamily<T> {
    fn default() -> Self {
        Self { ipv4: None, ipv6: None }
    }
}

impl<T> PerFamily<T> {
    /// The value of one family.
    pub const fn of(&self, family: Family) -> Option<&T> {
        match family {
            Family::Ipv4 => self.ipv4.as_ref(),
            Family::Ipv6 => self.ipv6.as_ref(),
        }
    }

    /// The slot of one family.
    pub const fn slot(&mut self, family: Family) -> &mut Option<T> {
        match family {
            Family::Ipv4 => &mut self.ipv4,
            Family::Ipv6 => &mut self.ipv6,
        }
    }

    /// The values present, IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = (Family, &T)> {
        Family::ALL.into_iter().filter_map(|family| self.of(family).map(|value| (family, value)))
    }

    /// Whether neither family has a value.
    pub const fn is_empty(&self) -> bool {
        self.ipv4.is_none() && self.ipv6.is_none()
    }
}
