//! Links (network interfaces): listed, made (`link/new.rs`), changed and moved (`link/change.rs`), removed; and which one is a
//! VNIC's (`link/identity.rs`).

use netlink_packet_core::Emitable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkHeader, LinkLayerType, LinkMessage};
use vcn::{IfName, MacAddr, Mtu, VlanTag};

use crate::error::{Cause, Result};
use crate::routing::socket::{Socket, Write};
use crate::wire::attributes;
use crate::wire::transport::Request;

mod altname;
mod change;
mod identity;
mod new;
mod unlist;

pub use change::LinkChange;
pub use new::{LinkKind, NewLink, Peer};

pub(crate) const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const IFLA_VLAN_ID: u16 = 1;
const AF_INET6: u16 = 10;
const IFLA_INET6_CONF: u16 = 2;
/// The place of a setting in IFLA_INET6_CONF, an array of 32-bit numbers (linux/ipv6.h).
const DEVCONF_ACCEPT_RA: usize = 3;

/// A link, as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index in its namespace.
    pub index: u32,
    /// Its name. Bytes that are not text are shown as `?`.
    pub name: IfName,
    /// Its Ethernet address; loopback and layer-3 links have none.
    pub mac: Option<MacAddr>,
    /// The Ethernet address that its driver calls permanent. No user can change it; virtual links have none.
    pub permanent_mac: Option<MacAddr>,
    /// The MTU of the link, in bytes.
    pub mtu: Mtu,
    /// The length of its transmit queue, in packets.
    pub queue_length: u32,
    /// Whether the administrator raised it.
    pub up: bool,
    /// Whether it has a carrier (the kernel's LOWER_UP).
    pub running: bool,
    /// Whether it requests its neighbours' Ethernet addresses, and tells its own: of both families, not IPv4's ARP alone.
    pub arp: bool,
    /// The free text that marks whose it is.
    pub alias: Option<String>,
    /// Its group, 0 by default.
    pub group: u32,
    /// `veth`, `vlan`, `macvlan`, …; a physical link has none.
    pub kind: Option<String>,
    /// The link it stands on, or a veth's other end; an index in that link's namespace.
    pub parent: Option<u32>,
    /// The namespace of `parent` where it is another one, by this namespace's own numbering. -1: not numbered here.
    pub peer_netns_id: Option<i32>,
    /// The bridge, bond or VRF it belongs to.
    pub master: Option<u32>,
    /// A VLAN link's tag.
    pub vlan: Option<VlanTag>,
    /// Whether it is a loopback link.
    pub loopback: bool,
    /// Its `net/ipv6/conf/…/accept_ra`: 0 is not to believe router advertisements. Nothing where it knows no IPv6.
    pub accept_ra: Option<i32>,
}

impl Link {
    pub(crate) fn decode(payload: &[u8]) -> Result<Option<Self>, Cause> {
        let header = LinkHeader::parse(payload).map_err(|_| Cause::Malformed("short link message"))?;
        // A bridge reports its ports in link messages of its own family, which do not describe links.
        if header.interface_family != AddressFamily::Unspec {
            return Ok(None);
        }
        let loopback = header.flags.contains(LinkFlags::Loopback);
        let ethernet = header.link_layer_type == LinkLayerType::Ether;
        let mut name = None;
        let mut link = Self {
            index: header.index,
            name: unnamed()?,
            mac: None,
            permanent_mac: None,
            mtu: Mtu(0),
            queue_length: 0,
            up: header.flags.contains(LinkFlags::Up),
            running: header.flags.contains(LinkFlags::LowerUp),
            arp: !header.flags.contains(LinkFlags::Noarp),
            alias: None,
            group: 0,
            kind: None,
            parent: None,
            peer_netns_id: None,
            master: None,
            vlan: None,
            loopback,
            accept_ra: None,
        };
        for attribute in attributes::after(payload, header.buffer_len()) {
            match attribute? {
                (libc::IFLA_IFNAME, value) => name = Some(name_of(value)?),
                (libc::IFLA_ADDRESS, value) if ethernet => link.mac = mac_of(value),
                (libc::IFLA_PERM_ADDRESS, value) if ethernet => link.permanent_mac = mac_of(value),
                (libc::IFLA_TXQLEN, value) => link.queue_length = attributes::u32_of(value)?,
                (libc::IFLA_MTU, value) => link.mtu = Mtu(attributes::u32_of(value)?),
                (libc::IFLA_IFALIAS, value) => link.alias = Some(attributes::text_of(value)),
                (libc::IFLA_GROUP, value) => link.group = attributes::u32_of(value)?,
                (libc::IFLA_LINK, value) => link.parent = Some(attributes::u32_of(value)?).filter(|index| *index != 0),
                (libc::IFLA_LINK_NETNSID, value) => link.peer_netns_id = Some(attributes::i32_of(value)?),
                (libc::IFLA_MASTER, value) => link.master = Some(attributes::u32_of(value)?),
                (libc::IFLA_LINKINFO, value) => link.decode_kind(value)?,
                (libc::IFLA_AF_SPEC, value) => link.decode_settings(value)?,
                _ => {}
            }
        }
        link.name = name.ok_or(Cause::Malformed("a link message without name"))?;
        Ok(Some(link))
    }

    fn decode_kind(&mut self, value: &[u8]) -> Result<(), Cause> {
        let mut data: &[u8] = &[];
        for attribute in attributes::within(value) {
            match attribute? {
                (libc::IFLA_INFO_KIND, value) => self.kind = Some(attributes::text_of(value)),
                (libc::IFLA_INFO_DATA, value) => data = value,
                _ => {}
            }
        }
        if self.kind.as_deref() == Some("vlan") {
            for attribute in attributes::within(data) {
                if let (IFLA_VLAN_ID, value) = attribute? {
                    self.vlan = VlanTag::new(attributes::u16_of(value)?).ok();
                }
            }
        }
        Ok(())
    }

    fn decode_settings(&mut self, value: &[u8]) -> Result<(), Cause> {
        for family in attributes::within(value) {
            let (AF_INET6, value) = family? else { continue };
            for attribute in attributes::within(value) {
                if let (IFLA_INET6_CONF, settings) = attribute? {
                    let accept_ra = settings.chunks_exact(4).nth(DEVCONF_ACCEPT_RA);
                    self.accept_ra = accept_ra.map(attributes::i32_of).transpose()?;
                }
            }
        }
        Ok(())
    }
}

fn unnamed() -> Result<IfName, Cause> {
    IfName::new("?").map_err(|_| Cause::Malformed("an impossible link name"))
}

fn mac_of(value: &[u8]) -> Option<MacAddr> {
    <[u8; 6]>::try_from(value).ok().map(MacAddr)
}

/// The kernel allows any bytes but a few in a name. One that is not text must not hide the link.
fn name_of(value: &[u8]) -> Result<IfName, Cause> {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let bytes = value.get(..end).unwrap_or_default();
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect(),
    };
    IfName::new(text).map_err(|_| Cause::Malformed("an impossible link name"))
}

impl Socket {
    /// The link of a name.
    ///
    /// # Errors
    /// `is_not_found()` when there is no such link.
    pub fn link(&mut self, name: &IfName) -> Result<Link> {
        let mut message = without_statistics();
        message.attributes.push(LinkAttribute::IfName(name.as_str().to_owned()));
        self.get_link(&message).map_err(|cause| cause.during("find link", name))
    }

    /// The link of an index.
    ///
    /// # Errors
    /// `is_not_found()` when there is no such link.
    pub fn link_at(&mut self, index: u32) -> Result<Link> {
        let mut message = without_statistics();
        message.header.index = index;
        self.get_link(&message).map_err(|cause| cause.during("find link", index))
    }

    /// All links.
    ///
    /// # Errors
    /// `is_retryable()` when the list kept changing.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        self.transport
            .list(Request { message_type: RTM_GETLINK, flags: 0 }, &without_statistics(), Link::decode)
            .map_err(|cause| cause.during("list", "links"))
    }

    /// Removes a link (of a veth pair: both ends).
    ///
    /// # Errors
    /// `is_not_found()` when it is gone already.
    pub fn delete_link(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.write(Write::Existing(RTM_DELLINK), &message, "delete link", &index)
    }

    /// As [`Socket::delete_link`], without looking up the index first.
    ///
    /// # Errors
    /// `is_not_found()` when it is gone already.
    pub fn delete_link_named(&mut self, name: &IfName) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.as_str().to_owned()));
        self.write(Write::Existing(RTM_DELLINK), &message, "delete link", name)
    }

    fn get_link(&mut self, message: &LinkMessage) -> Result<Link, Cause> {
        self.transport
            .one(Request { message_type: RTM_GETLINK, flags: 0 }, message, Link::decode)?
            .ok_or(Cause::Malformed("a link of another family than requested"))
    }
}

/// A request that leaves out the statistics, which are most of a link's description.
fn without_statistics() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    message
}
