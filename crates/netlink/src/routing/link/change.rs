//! Changing links: state, address, name, marks, and the move to another namespace.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use vcn::{IfName, MacAddr, Mtu};

use crate::error::Result;
use crate::netns::{Home, Netns};
use crate::routing::socket::{Socket, Write};

const RTM_SETLINK: u16 = 19;

/// One change of a link.
#[derive(Clone, Debug)]
pub enum LinkChange<'a> {
    /// Sets the link up.
    Up,
    /// Sets the link down.
    Down,
    /// Sets the MTU, in bytes.
    Mtu(Mtu),
    /// Sets the Ethernet address.
    Mac(MacAddr),
    /// Its name. Kernels before 6.2 refuse it (EBUSY, retryable) while the link is up, and `Down` in the same request
    /// comes too late for that.
    Rename(IfName),
    /// Its name by the kernel's choice, `dev` and a number: never one that is taken.
    RenameFree,
    /// The free text that marks whose it is, at most 255 bytes; empty removes it.
    Alias(String),
    /// Move it into a namespace. With [`LinkChange::Rename`] in the same request it arrives under the new name, so a
    /// name that is taken there does not stop the move. It arrives lowered and without addresses.
    Netns(&'a Netns),
    /// The same, into the namespace that a thread came from.
    Home(&'a Home),
    /// Sets the number of the link's group.
    Group(u32),
    /// The length of its transmit queue, in packets.
    QueueLength(u32),
    /// As a new Ethernet link: it receives only what is for it and requests its neighbours' addresses (not promiscuous,
    /// not allmulticast, ARP).
    PlainReception,
    /// Forward IPv4 that comes in by it. New links are given what the host says of them (`net/ipv4/conf/default/forwarding`).
    ForwardIpv4,
}

impl Socket {
    /// Changes a link by one request; the order of `changes` does not matter.
    ///
    /// # Errors
    /// `is_not_found()` when it is gone. Changes that the kernel made before the one that it refused stay.
    pub fn change_link(&mut self, index: u32, changes: &[LinkChange<'_>]) -> Result<()> {
        let mut message = message_of(changes);
        message.header.index = index;
        self.write(Write::Existing(RTM_SETLINK), &message, "change link", &index)
    }

    /// As [`Socket::change_link`], without looking up the index first. It cannot rename.
    ///
    /// # Errors
    /// `is_not_found()` when it is gone.
    pub fn change_link_named(&mut self, name: &IfName, changes: &[LinkChange<'_>]) -> Result<()> {
        let mut message = message_of(changes);
        message.attributes.retain(|attribute| !matches!(attribute, LinkAttribute::IfName(_)));
        message.attributes.push(LinkAttribute::IfName(name.as_str().to_owned()));
        self.write(Write::Existing(RTM_SETLINK), &message, "change link", name)
    }
}

/// IFLA_AF_SPEC's content: of AF_INET, of IFLA_INET_CONF, IPV4_DEVCONF_FORWARDING is 1 (linux/if_link.h, linux/ip.h). The kernel
/// reads a list of settings to change, and netlink-packet-route writes what the kernel answers, the array of all.
fn forward_ipv4() -> Vec<u8> {
    const AF_INET: u16 = 2;
    const IFLA_INET_CONF: u16 = 1;
    const IPV4_DEVCONF_FORWARDING: u16 = 1;
    let mut content = Vec::with_capacity(16);
    for (length, kind) in [(16_u16, AF_INET), (12, IFLA_INET_CONF), (8, IPV4_DEVCONF_FORWARDING)] {
        content.extend(length.to_ne_bytes());
        content.extend(kind.to_ne_bytes());
    }
    content.extend(1_u32.to_ne_bytes());
    content
}

fn message_of(changes: &[LinkChange<'_>]) -> LinkMessage {
    let mut message = LinkMessage::default();
    for change in changes {
        let attribute = match change {
            LinkChange::Up | LinkChange::Down => {
                message.header.flags.set(LinkFlags::Up, matches!(change, LinkChange::Up));
                message.header.change_mask |= LinkFlags::Up;
                continue;
            }
            LinkChange::PlainReception => {
                message.header.change_mask |= LinkFlags::Promisc | LinkFlags::Allmulti | LinkFlags::Noarp;
                continue;
            }
            LinkChange::Group(group) => LinkAttribute::Group(*group),
            LinkChange::QueueLength(packets) => LinkAttribute::TxQueueLen(*packets),
            LinkChange::RenameFree => LinkAttribute::IfName("dev%d".to_owned()),
            LinkChange::Mtu(Mtu(bytes)) => LinkAttribute::Mtu(*bytes),
            LinkChange::Mac(MacAddr(bytes)) => LinkAttribute::Address(bytes.to_vec()),
            LinkChange::Rename(name) => LinkAttribute::IfName(name.as_str().to_owned()),
            LinkChange::Alias(text) => LinkAttribute::IfAlias(text.clone()),
            LinkChange::Netns(netns) => LinkAttribute::NetNsFd(netns.as_fd().as_raw_fd()),
            LinkChange::Home(home) => LinkAttribute::NetNsFd(home.as_fd().as_raw_fd()),
            LinkChange::ForwardIpv4 => LinkAttribute::AfSpecUnknown(forward_ipv4()),
        };
        message.attributes.push(attribute);
    }
    message
}
