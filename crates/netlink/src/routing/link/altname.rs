//! Alternative names of links: each counts as a name that is taken, and keeps a link from moving to a namespace that has it.

use netlink_packet_core::DefaultNla;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, Prop};

use super::RTM_GETLINK;
use crate::error::{Cause, Result};
use crate::routing::socket::{Socket, Write};
use crate::wire::attributes;
use crate::wire::transport::Request;

const RTM_DELLINKPROP: u16 = 109;

/// The length of a link message's header (struct ifinfomsg), in bytes.
const HEADER_LEN: usize = 16;

impl Socket {
    /// Removes all alternative names of a link, as the kernel lists them: any bytes.
    ///
    /// # Errors
    /// `is_not_found()` when the link is gone, or another program removed a name meanwhile.
    pub fn delete_altnames(&mut self, index: u32) -> Result<()> {
        let mut message = super::without_statistics();
        message.header.index = index;
        let names = self.transport.one(Request { message_type: RTM_GETLINK, flags: 0 }, &message, altnames);
        let names = names.map_err(|cause| cause.during("find link", index))?;
        if names.is_empty() {
            return Ok(());
        }
        let mut message = LinkMessage::default();
        message.header.index = index;
        let name = |name: Vec<u8>| Prop::Other(DefaultNla::new(libc::IFLA_ALT_IFNAME, name));
        message.attributes.push(LinkAttribute::PropList(names.into_iter().map(name).collect()));
        self.write(Write::Existing(RTM_DELLINKPROP), &message, "delete alternative names of link", &index)
    }
}

/// The alternative names in a link message, each with its closing NUL.
fn altnames(payload: &[u8]) -> Result<Vec<Vec<u8>>, Cause> {
    let mut names = Vec::new();
    for attribute in attributes::after(payload, HEADER_LEN) {
        let (kind, list) = attribute?;
        if kind != libc::IFLA_PROP_LIST {
            continue;
        }
        for property in attributes::within(list) {
            if let (libc::IFLA_ALT_IFNAME, name) = property? {
                names.push(name.to_owned());
            }
        }
    }
    Ok(names)
}
