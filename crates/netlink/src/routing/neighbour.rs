//! Neighbours: which Ethernet address an IP address has, and for which addresses we answer (proxy entries).

use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::Emitable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourHeader, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteProtocol;
use vcn::{Family, MacAddr};

use crate::error::{Cause, Result};
use crate::routing::address::family_of;
use crate::routing::route::wire_family;
use crate::routing::socket::{Socket, Write};
use crate::wire::attributes;
use crate::wire::transport::Request;

const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const NDA_PROTOCOL: u16 = 12;

/// An entry of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// The index of the link on which it is.
    pub index: u32,
    /// The neighbour's IP address.
    pub address: IpAddr,
    /// Its Ethernet address, once known; a proxy entry has none.
    pub mac: Option<MacAddr>,
    /// A proxy entry: this host answers for the address on the link.
    pub proxy: bool,
    /// A program set it, and it never expires. A proxy entry reads as false.
    pub permanent: bool,
    /// The program that created it, if it was given.
    pub protocol: Option<u8>,
}

/// Which neighbour entries to list. Proxy entries are a list of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourFilter {
    /// Of this family; both when `None`.
    pub family: Option<Family>,
    /// Only entries on the link with this index.
    pub index: Option<u32>,
    /// Proxy entries instead of others.
    pub proxy: bool,
}

impl Neighbour {
    /// An entry that the kernel never removes by itself.
    pub const fn permanent(index: u32, address: IpAddr, mac: MacAddr) -> Self {
        Self { index, address, mac: Some(mac), proxy: false, permanent: true, protocol: None }
    }

    /// A proxy entry. It outlasts the loss of its link's carrier, as a permanent entry does; not that the link is lowered.
    pub const fn proxy(index: u32, address: IpAddr) -> Self {
        Self { index, address, mac: None, proxy: true, permanent: false, protocol: None }
    }

    /// The same, marked with its maker's number.
    #[must_use]
    pub const fn by(mut self, protocol: u8) -> Self {
        self.protocol = Some(protocol);
        self
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Option<Self>, Cause> {
        let header = NeighbourHeader::parse(payload).map_err(|_| Cause::Malformed("short neighbour message"))?;
        // A bridge's forwarding table comes by the same messages.
        if !matches!(header.family, AddressFamily::Inet | AddressFamily::Inet6) {
            return Ok(None);
        }
        let (mut address, mut mac, mut protocol) = (None, None, None);
        for attribute in attributes::after(payload, header.buffer_len()) {
            match attribute? {
                (libc::NDA_DST, value) => address = Some(attributes::address_of(value)?),
                (libc::NDA_LLADDR, value) => mac = <[u8; 6]>::try_from(value).ok().map(MacAddr),
                (NDA_PROTOCOL, value) => protocol = value.first().copied().filter(|number| *number != 0),
                _ => {}
            }
        }
        let proxy = header.flags.contains(NeighbourFlags::Proxy);
        Ok(Some(Self {
            index: header.ifindex,
            address: address.ok_or(Cause::Malformed("a neighbour message without address"))?,
            mac,
            proxy,
            permanent: !proxy && header.state == NeighbourState::Permanent,
            protocol,
        }))
    }

    pub(crate) fn message(&self) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = family_of(self.address);
        message.header.ifindex = self.index;
        // A proxy entry that is not marked so goes when its link loses its carrier.
        let lasting = self.permanent || self.proxy;
        message.header.state = if lasting { NeighbourState::Permanent } else { NeighbourState::Reachable };
        message.header.flags.set(NeighbourFlags::Proxy, self.proxy);
        message.attributes.push(NeighbourAttribute::Destination(self.address.into()));
        message.attributes.extend(self.mac.map(|MacAddr(bytes)| NeighbourAttribute::LinkLayerAddress(bytes.to_vec())));
        message
            .attributes
            .extend(self.protocol.map(|number| NeighbourAttribute::Protocol(RouteProtocol::from(number))));
        message
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.proxy { "proxy " } else { "" })?;
        write!(f, "{}", self.address)?;
        if let Some(mac) = self.mac {
            write!(f, " lladdr {mac}")?;
        }
        write!(f, " dev {}", self.index)?;
        f.write_str(if self.permanent { " nud permanent" } else { "" })
    }
}

impl NeighbourFilter {
    fn message(self) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = self.family.map_or(AddressFamily::Unspec, wire_family);
        message.header.flags.set(NeighbourFlags::Proxy, self.proxy);
        message.attributes.extend(self.index.map(NeighbourAttribute::IfIndex));
        message
    }
}

impl Socket {
    /// The neighbour entries that pass a filter.
    ///
    /// # Errors
    /// `is_retryable()` when the list kept changing.
    pub fn neighbours(&mut self, filter: &NeighbourFilter) -> Result<Vec<Neighbour>> {
        self.transport
            .list(Request { message_type: RTM_GETNEIGH, flags: 0 }, &filter.message(), |payload| {
                // The kernel does not filter proxy entries by link.
                let passes = |neighbour: &Neighbour| filter.index.is_none_or(|index| index == neighbour.index);
                Ok(Neighbour::decode(payload)?.filter(passes))
            })
            .map_err(|cause| cause.during("list", "neighbours"))
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `is_already_exists()` when the link has one for the address, even one that the kernel learnt: replace those.
    /// Adding a proxy entry again succeeds.
    pub fn add_neighbour(&mut self, neighbour: &Neighbour) -> Result<()> {
        self.write(Write::Add(RTM_NEWNEIGH), &neighbour.message(), "add neighbour", neighbour)
    }

    /// Adds an entry in place of the one for the same address, if any.
    ///
    /// # Errors
    /// `is_not_found()` when there is no such link.
    pub fn replace_neighbour(&mut self, neighbour: &Neighbour) -> Result<()> {
        self.write(Write::Replace(RTM_NEWNEIGH), &neighbour.message(), "replace neighbour", neighbour)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// `is_not_found()` when it is not there.
    pub fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<()> {
        self.write(Write::Existing(RTM_DELNEIGH), &neighbour.message(), "delete neighbour", neighbour)
    }
}
