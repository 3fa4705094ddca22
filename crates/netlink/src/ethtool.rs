//! Rings, channels and offloads of links, by ethtool's netlink family. Changes need CAP_NET_ADMIN.
//!
//! The crate `ethtool` of rust-netlink is asynchronous and decodes whole messages; this needs six messages on the transport that
//! all other families share.

use std::collections::BTreeMap;

use netlink_packet_core::{DefaultNla, Emitable as _};
use vcn::IfName;

use crate::error::{Cause, Result};
use crate::wire::attributes;
use crate::wire::generic::{self, HEADER_LEN, Message};
use crate::wire::transport::{Request, Transport};

// linux/ethtool_netlink.h
const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
const RINGS_GET: u8 = 15;
const RINGS_SET: u8 = 16;
const CHANNELS_GET: u8 = 17;
const CHANNELS_SET: u8 = 18;
const HEADER: u16 = 1;
const HEADER_DEV_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
const FLAG_OMIT_REPLY: u32 = 2;
const RINGS_RX_MAX: u16 = 2;
const RINGS_TX_MAX: u16 = 5;
const RINGS_RX: u16 = 6;
const RINGS_TX: u16 = 9;
const CHANNELS_RX_MAX: u16 = 2;
const CHANNELS_TX_MAX: u16 = 3;
const CHANNELS_COMBINED_MAX: u16 = 5;
const CHANNELS_RX: u16 = 6;
const CHANNELS_TX: u16 = 7;
const CHANNELS_COMBINED: u16 = 9;
const FEATURES_HW: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;
/// The kernel refuses nested attributes without it.
const NESTED: u16 = 1 << 15;

/// A socket of the family, in the network namespace where it was opened.
#[derive(Debug)]
pub struct EthtoolSocket {
    transport: Transport,
    family: u16,
}

/// A number of entries or queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantity {
    /// The number that is set.
    pub current: u32,
    /// The most that the device has; 0 where it has none of this sort.
    pub limit: u32,
}

/// The rings of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Entries of the receive ring.
    pub rx: Quantity,
    /// Entries of the transmit ring.
    pub tx: Quantity,
}

/// The queues of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Queues that only receive.
    pub rx: Quantity,
    /// Queues that only transmit.
    pub tx: Quantity,
    /// Queues that do both.
    pub combined: Quantity,
}

/// A feature of a link, such as `tx-tcp-segmentation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feature {
    /// Whether it is on.
    pub is_active: bool,
    /// Whether it is requested: one that depends on another is off while the other is.
    pub is_requested: bool,
    /// Whether it can be changed.
    pub is_changeable: bool,
}

/// The features of a link by the kernel's names.
pub type Features = BTreeMap<String, Feature>;

impl EthtoolSocket {
    /// Opens a socket in the calling thread's network namespace; nothing where the kernel lacks the family (before Linux 5.6).
    ///
    /// # Errors
    /// As the kernel answers.
    pub fn open() -> Result<Option<Self>> {
        let opened = generic::open("ethtool").map_err(|cause| cause.during("open", "a socket of ethtool"))?;
        Ok(opened.map(|(transport, family)| Self { transport, family }))
    }

    /// The rings of a link.
    ///
    /// # Errors
    /// `is_unsupported()` where the driver has none; `is_not_found()` when the link is gone.
    pub fn rings(&mut self, link: &IfName) -> Result<Rings> {
        let rings = |numbers: &BTreeMap<u16, u32>| Rings {
            rx: quantity(numbers, RINGS_RX, RINGS_RX_MAX),
            tx: quantity(numbers, RINGS_TX, RINGS_TX_MAX),
        };
        self.numbers(RINGS_GET, link).map(|it| rings(&it)).map_err(|cause| cause.during("read rings of", link))
    }

    /// Sets rings; one that is absent stays.
    ///
    /// # Errors
    /// As [`Socket::rings`], and when the driver refuses the number.
    pub fn set_rings(&mut self, link: &IfName, rx: Option<u32>, tx: Option<u32>) -> Result<()> {
        let numbers = [(RINGS_RX, rx), (RINGS_TX, tx)];
        self.set(RINGS_SET, link, of_numbers(&numbers)).map_err(|cause| cause.during("set rings of", link))
    }

    /// The queues of a link.
    ///
    /// # Errors
    /// As [`Socket::rings`].
    pub fn channels(&mut self, link: &IfName) -> Result<Channels> {
        let channels = |numbers: &BTreeMap<u16, u32>| Channels {
            rx: quantity(numbers, CHANNELS_RX, CHANNELS_RX_MAX),
            tx: quantity(numbers, CHANNELS_TX, CHANNELS_TX_MAX),
            combined: quantity(numbers, CHANNELS_COMBINED, CHANNELS_COMBINED_MAX),
        };
        self.numbers(CHANNELS_GET, link).map(|it| channels(&it)).map_err(|cause| cause.during("read channels of", link))
    }

    /// Sets numbers of queues; one that is absent stays.
    ///
    /// # Errors
    /// As [`Socket::set_rings`].
    pub fn set_channels(
        &mut self,
        link: &IfName,
        rx: Option<u32>,
        tx: Option<u32>,
        combined: Option<u32>,
    ) -> Result<()> {
        let numbers = [(CHANNELS_RX, rx), (CHANNELS_TX, tx), (CHANNELS_COMBINED, combined)];
        self.set(CHANNELS_SET, link, of_numbers(&numbers)).map_err(|cause| cause.during("set channels of", link))
    }

    /// The features of a link by the kernel's names.
    ///
    /// # Errors
    /// As [`Socket::rings`].
    pub fn features(&mut self, link: &IfName) -> Result<Features> {
        let request = Request { message_type: self.family, flags: 0 };
        let message = Message { command: FEATURES_GET, attributes: vec![header(link, 0)] };
        self.transport.one(request, &message, decode_features).map_err(|cause| cause.during("read features of", link))
    }

    /// Sets features by the kernel's names. One that cannot be changed is ignored by the kernel.
    ///
    /// # Errors
    /// As [`Socket::set_rings`].
    pub fn set_features(&mut self, link: &IfName, features: &BTreeMap<String, bool>) -> Result<()> {
        let bit = |(name, is_on): (&String, &bool)| {
            let name = DefaultNla::new(BIT_NAME, [name.as_bytes(), b"\0"].concat());
            let value = is_on.then(|| DefaultNla::new(BIT_VALUE, Vec::new()));
            nested(BITS_BIT, [name].into_iter().chain(value).collect())
        };
        let bits = nested(BITSET_BITS, features.iter().map(bit).collect());
        let attributes = vec![nested(FEATURES_WANTED, vec![bits])];
        self.set(FEATURES_SET, link, attributes).map_err(|cause| cause.during("set features of", link))
    }

    fn numbers(&mut self, command: u8, link: &IfName) -> Result<BTreeMap<u16, u32>, Cause> {
        let request = Request { message_type: self.family, flags: 0 };
        self.transport.one(request, &Message { command, attributes: vec![header(link, 0)] }, decode_numbers)
    }

    fn set(&mut self, command: u8, link: &IfName, mut attributes: Vec<DefaultNla>) -> Result<(), Cause> {
        attributes.insert(0, header(link, FLAG_OMIT_REPLY));
        let request = Request { message_type: self.family, flags: 0 };
        self.transport.acknowledged(request, &Message { command, attributes })
    }
}

fn header(link: &IfName, flags: u32) -> DefaultNla {
    let name = DefaultNla::new(HEADER_DEV_NAME, [link.as_str().as_bytes(), b"\0"].concat());
    nested(HEADER, vec![name, DefaultNla::new(HEADER_FLAGS, flags.to_ne_bytes().to_vec())])
}

fn nested(kind: u16, content: Vec<DefaultNla>) -> DefaultNla {
    let mut bytes = vec![0; content.as_slice().buffer_len()];
    content.as_slice().emit(&mut bytes);
    DefaultNla::new(kind | NESTED, bytes)
}

fn of_numbers(numbers: &[(u16, Option<u32>)]) -> Vec<DefaultNla> {
    let given = numbers.iter().filter_map(|(kind, number)| Some((*kind, (*number)?)));
    given.map(|(kind, number)| DefaultNla::new(kind, number.to_ne_bytes().to_vec())).collect()
}

fn quantity(numbers: &BTreeMap<u16, u32>, current: u16, limit: u16) -> Quantity {
    let number = |kind| numbers.get(&kind).copied().unwrap_or(0);
    Quantity { current: number(current), limit: number(limit) }
}

/// All attributes that are 32-bit numbers.
fn decode_numbers(payload: &[u8]) -> Result<BTreeMap<u16, u32>, Cause> {
    let mut numbers = BTreeMap::new();
    for attribute in attributes::after(payload, HEADER_LEN) {
        let (kind, value) = attribute?;
        if value.len() == 4 && kind != HEADER {
            numbers.insert(kind, attributes::u32_of(value)?);
        }
    }
    Ok(numbers)
}

pub(crate) fn decode_features(payload: &[u8]) -> Result<Features, Cause> {
    let mut features = Features::new();
    for attribute in attributes::after(payload, HEADER_LEN) {
        let (kind, value) = attribute?;
        if !matches!(kind, FEATURES_HW | FEATURES_WANTED | FEATURES_ACTIVE) {
            continue;
        }
        for name in decode_bitset(value)? {
            let feature = features.entry(name).or_default();
            match kind {
                FEATURES_HW => feature.is_changeable = true,
                FEATURES_WANTED => feature.is_requested = true,
                _ => feature.is_active = true,
            }
        }
    }
    Ok(features)
}

/// The names of the bits that are set: all that are listed, or with a mask those with a value.
fn decode_bitset(value: &[u8]) -> Result<Vec<String>, Cause> {
    let (mut has_mask, mut bits) = (true, Vec::new());
    for attribute in attributes::within(value) {
        match attribute? {
            (BITSET_NOMASK, _) => has_mask = false,
            (BITSET_BITS, value) => {
                for bit in attributes::within(value) {
                    let (BITS_BIT, bit) = bit? else { continue };
                    let (mut name, mut has_value) = (String::new(), false);
                    for attribute in attributes::within(bit) {
                        match attribute? {
                            (BIT_NAME, value) => name = attributes::text_of(value),
                            (BIT_VALUE, _) => has_value = true,
                            _ => {}
                        }
                    }
                    bits.push((name, has_value));
                }
            }
            _ => {}
        }
    }
    Ok(bits.into_iter().filter(|(_, has_value)| *has_value || !has_mask).map(|(name, _)| name).collect())
}
