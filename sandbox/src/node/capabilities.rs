//! What this kernel can emulate, found out by trying.

use netlink::{LinkKind, Netns, NewLink, Peer, Socket, nft};
use vcn::{IfName, VlanTag};

use crate::error::{Error, ErrorContext, Result};

/// The features that the kernel was found to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// 802.1Q: bare-metal nodes are possible.
    pub vlan: bool,
    /// nf_tables: the agent can let pods use 169.254.169.254.
    pub nft: bool,
}

impl Capabilities {
    /// Tries, in a namespace of its own.
    pub fn probe() -> Result<Self> {
        let netns = Netns::create().during(|| "make a namespace to try VLANs in")?;
        let mut socket = Socket::open_in(&netns).during(|| "manage links to try VLANs")?;
        let name = |text: &str| IfName::new(text).map_err(|error| Error::Invalid(error.to_string()));
        let peer = Peer { name: name("b")?, mac: None, mtu: None, netns: None };
        let mut parent = NewLink::new(name("a")?, LinkKind::Veth(peer));
        parent.up = true;
        parent.index = Some(PARENT);
        socket.add_link(&parent).during(|| "make a link to try VLANs on")?;
        let tag = VlanTag::new(1).map_err(|error| Error::Invalid(error.to_string()))?;
        let vlan = socket.add_link(&NewLink::new(name("a.1")?, LinkKind::Vlan { parent: PARENT, tag })).is_ok();
        let nft = nft::NftSocket::open_in(&netns)
            .and_then(|mut socket| socket.comments(nft::TableFamily::Inet, vcn::NFT_TABLE))
            .is_ok();
        Ok(Self { vlan, nft })
    }
}

const PARENT: u32 = 16;
