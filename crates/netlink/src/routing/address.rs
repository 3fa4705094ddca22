//! Addresses of links.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::Emitable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeader, AddressMessage};

use crate::error::{Cause, Result};
use crate::routing::socket::{Socket, Write};
use crate::wire::attributes;
use crate::wire::transport::Request;

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;

/// An address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The index of the link that has it.
    pub index: u32,
    /// The address and its prefix length.
    pub address: IpNetwork,
    /// No duplicate address detection (IPv6): usable at once.
    pub nodad: bool,
    /// No route for its prefix comes with it.
    pub noprefixroute: bool,
    /// Read only: it has no lifetime: no router or DHCP server gave it.
    pub permanent: bool,
    /// Read only: duplicate address detection has not finished, it cannot be used yet.
    pub tentative: bool,
    /// Read only: duplicate address detection found another holder.
    pub dad_failed: bool,
}

impl Address {
    /// A permanent address that is valid everywhere.
    pub const fn new(index: u32, address: IpNetwork) -> Self {
        Self {
            index,
            address,
            nodad: false,
            noprefixroute: false,
            permanent: true,
            tentative: false,
            dad_failed: false,
        }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Option<Self>, Cause> {
        let header = AddressHeader::parse(payload).map_err(|_| Cause::Malformed("short address message"))?;
        if !matches!(header.family, AddressFamily::Inet | AddressFamily::Inet6) {
            return Ok(None);
        }
        let (mut local, mut peer, mut flags) = (None, None, u32::from(header.flags.bits()));
        for attribute in attributes::after(payload, header.buffer_len()) {
            match attribute? {
                (libc::IFA_LOCAL, value) => local = Some(attributes::address_of(value)?),
                (libc::IFA_ADDRESS, value) => peer = Some(attributes::address_of(value)?),
                (libc::IFA_FLAGS, value) => flags = attributes::u32_of(value)?,
                _ => {}
            }
        }
        // IPv6 leaves IFA_LOCAL out unless there is a peer.
        let address = local.or(peer).ok_or(Cause::Malformed("an address message without address"))?;
        let set = |flag| flags & flag != 0;
        Ok(Some(Self {
            index: header.index,
            address: attributes::network(address, header.prefix_len)?,
            nodad: set(libc::IFA_F_NODAD),
            noprefixroute: set(libc::IFA_F_NOPREFIXROUTE),
            permanent: set(libc::IFA_F_PERMANENT),
            tentative: set(libc::IFA_F_TENTATIVE),
            dad_failed: set(libc::IFA_F_DADFAILED),
        }))
    }

    fn message(&self) -> AddressMessage {
        let mut flags = AddressFlags::empty();
        flags.set(AddressFlags::Nodad, self.nodad);
        flags.set(AddressFlags::Noprefixroute, self.noprefixroute);
        let mut message = AddressMessage::default();
        message.header.family = family_of(self.address.ip());
        message.header.prefix_len = self.address.prefix();
        message.header.index = self.index;
        message.attributes =
            vec![AddressAttribute::Local(self.address.ip()), AddressAttribute::Address(self.address.ip())];
        if !flags.is_empty() {
            message.attributes.push(AddressAttribute::Flags(flags));
        }
        message
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dev {}", self.address, self.index)?;
        f.write_str(if self.nodad { " nodad" } else { "" })?;
        f.write_str(if self.noprefixroute { " noprefixroute" } else { "" })
    }
}

impl Socket {
    /// The addresses of one link, or of all.
    ///
    /// # Errors
    /// `is_not_found()` when the link is gone.
    pub fn addresses(&mut self, index: Option<u32>) -> Result<Vec<Address>> {
        let mut message = AddressMessage::default();
        message.header.index = index.unwrap_or(0);
        self.transport.list(Request { message_type: RTM_GETADDR, flags: 0 }, &message, Address::decode).map_err(
            |cause| match index {
                Some(index) => cause.during("list addresses of link", index),
                None => cause.during("list", "addresses"),
            },
        )
    }

    /// Adds an address.
    ///
    /// # Errors
    /// `is_already_exists()` when the link has it; `is_not_found()` when there is no such link.
    pub fn add_address(&mut self, address: &Address) -> Result<()> {
        self.write(Write::Add(RTM_NEWADDR), &address.message(), "add address", address)
    }

    /// Adds an address or changes the flags of the one that is there.
    ///
    /// # Errors
    /// `is_not_found()` when there is no such link.
    pub fn replace_address(&mut self, address: &Address) -> Result<()> {
        self.write(Write::Replace(RTM_NEWADDR), &address.message(), "replace address", address)
    }

    /// Removes an address.
    ///
    /// # Errors
    /// `is_not_found()` when it is not there.
    pub fn delete_address(&mut self, address: &Address) -> Result<()> {
        self.write(Write::Existing(RTM_DELADDR), &address.message(), "delete address", address)
    }
}

pub(crate) const fn family_of(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
