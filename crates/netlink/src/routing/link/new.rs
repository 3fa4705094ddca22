//! Making links. One message makes a link in its final namespace with its final name, Ethernet address and MTU, so no
//! half-made link is ever seen in either namespace.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use vcn::{IfName, MacAddr, Mtu, VlanTag};

use super::RTM_NEWLINK;
use crate::error::Result;
use crate::routing::socket::{Socket, Write};

/// A link to be made. (An alias cannot be given at birth: see [`super::LinkChange::Alias`].)
#[derive(Clone, Debug)]
pub struct NewLink<'a> {
    /// The name of the new link.
    pub name: IfName,
    /// The kind of the new link.
    pub kind: LinkKind<'a>,
    /// Its Ethernet address; the kernel's choice when `None` (of a VLAN: its parent's).
    pub mac: Option<MacAddr>,
    /// Its MTU; the kernel's choice when `None`.
    pub mtu: Option<Mtu>,
    /// Whether it is born up.
    pub up: bool,
    /// Its index; the kernel's choice when `None`.
    pub index: Option<u32>,
    /// The namespace it is born in; the socket's when `None`.
    pub netns: Option<BorrowedFd<'a>>,
}

/// What a link is made of.
#[derive(Clone, Debug)]
pub enum LinkKind<'a> {
    /// A pair of links, each of which receives what the other sends.
    Veth(Peer<'a>),
    /// One tag of a parent, in the socket's namespace. The parent must be up first, or ENETDOWN.
    Vlan {
        /// The index of the link below it.
        parent: u32,
        /// The VLAN tag of its frames.
        tag: VlanTag,
    },
    /// An Ethernet bridge without ports.
    Bridge,
}

/// The other end of a veth pair. Always born down: the kernel refuses to raise it before the pair is made. Older kernels look for
/// the name of the link itself in the *socket's* namespace before they make the link elsewhere. So make the end that is to be up,
/// or to have a common name, in that namespace, and the peer in the other one.
#[derive(Clone, Debug)]
pub struct Peer<'a> {
    /// The name of the other end.
    pub name: IfName,
    /// Its Ethernet address; the kernel's choice when `None`.
    pub mac: Option<MacAddr>,
    /// Its MTU; the kernel's choice when `None`.
    pub mtu: Option<Mtu>,
    /// The namespace it is born in; the socket's when `None`.
    pub netns: Option<BorrowedFd<'a>>,
}

impl<'a> NewLink<'a> {
    /// A link that is down, in the socket's namespace, with the kernel's choices.
    pub const fn new(name: IfName, kind: LinkKind<'a>) -> Self {
        Self { name, kind, mac: None, mtu: None, up: false, index: None, netns: None }
    }

    fn message(&self) -> LinkMessage {
        let mut message = end(&self.name, self.mac, self.mtu, self.netns);
        message.header.index = self.index.unwrap_or(0);
        if self.up {
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
        }
        let (kind, data) = match &self.kind {
            LinkKind::Veth(peer) => {
                one_queue(&mut message);
                let mut other = end(&peer.name, peer.mac, peer.mtu, peer.netns);
                one_queue(&mut other);
                (InfoKind::Veth, Some(InfoData::Veth(InfoVeth::Peer(other))))
            }
            LinkKind::Vlan { parent, tag } => {
                message.attributes.push(LinkAttribute::Link(*parent));
                (InfoKind::Vlan, Some(InfoData::Vlan(vec![InfoVlan::Id(tag.get())])))
            }
            LinkKind::Bridge => (InfoKind::Bridge, None),
        };
        let mut info = vec![LinkInfo::Kind(kind)];
        info.extend(data.map(LinkInfo::Data));
        message.attributes.push(LinkAttribute::LinkInfo(info));
        message
    }
}

impl Socket {
    /// Makes a link (of a veth pair: both ends).
    ///
    /// # Errors
    /// `is_already_exists()` when the name is taken in its namespace, or a VLAN tag on its parent;
    /// `is_unsupported()` when the kernel does not know the kind.
    pub fn add_link(&mut self, link: &NewLink<'_>) -> Result<()> {
        self.write(Write::Add(RTM_NEWLINK), &link.message(), "add link", &link.name)
    }
}

fn end(name: &IfName, mac: Option<MacAddr>, mtu: Option<Mtu>, netns: Option<BorrowedFd<'_>>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.reserve(8);
    message.attributes.push(LinkAttribute::IfName(name.as_str().to_owned()));
    message.attributes.extend(mac.map(|MacAddr(bytes)| LinkAttribute::Address(bytes.to_vec())));
    message.attributes.extend(mtu.map(|Mtu(bytes)| LinkAttribute::Mtu(bytes)));
    message.attributes.extend(netns.map(|netns| LinkAttribute::NetNsFd(netns.as_raw_fd())));
    message
}

/// By default a veth end gets a queue per possible processor and gives all but one back. It waits for every processor once per
/// end. That takes a third of the time to make the pair, and much memory on large machines.
fn one_queue(message: &mut LinkMessage) {
    message.attributes.push(LinkAttribute::NumTxQueues(1));
    message.attributes.push(LinkAttribute::NumRxQueues(1));
}
