//! Ethernet addresses. OCI writes them in either case, so they are compared as bytes.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr(pub [u8; 6]);

/// Why a text is not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not an Ethernet address (six hexadecimal bytes, as 02:00:17:00:00:01)")]
pub struct MacAddrError(String);

impl MacAddr {
    /// An address of our own making: locally administered, unicast, from 48 bits of `seed` (the rest is kept).
    pub const fn local(seed: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = seed.to_be_bytes();
        Self([(a & 0xfc) | 0x02, b, c, d, e, f])
    }

    /// The link-local address that belongs to it (modified EUI-64: RFC 4291, appendix A).
    pub const fn link_local(self) -> Ipv6Addr {
        let Self([a, b, c, d, e, f]) = self;
        Ipv6Addr::from_octets([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || MacAddrError(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(bad)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() {
            return Err(bad());
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for MacAddr {
    type Error = MacAddrError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_does_not_matter() {
        assert_eq!("B8:CE:F6:00:00:01".parse::<MacAddr>(), "b8:ce:f6:00:00:01".parse());
    }

    #[test]
    fn anything_but_six_bytes_is_refused() {
        for bad in
            ["", "02:00:17:00:00", "02:00:17:00:00:01:02", "02:00:17:00:00:+1", "02:00:17:00:00:1", "é2:00:17:00:00:01"]
        {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn link_local_address_contains_mac_with_one_bit_flipped() {
        for (mac, address) in
            [("02:00:17:00:00:21", "fe80::17ff:fe00:21"), ("00:00:17:01:02:03", "fe80::200:17ff:fe01:203")]
        {
            assert_eq!(Ok(mac.parse::<MacAddr>().unwrap().link_local()), address.parse());
        }
    }

    #[test]
    fn local_addresses_are_unicast_and_locally_administered() {
        for seed in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            let MacAddr([first, ..]) = MacAddr::local(seed);
            assert_eq!(first & 0x03, 0x02);
        }
    }
}
