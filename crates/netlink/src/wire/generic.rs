//! Generic netlink: families by name, and messages of a command and attributes.

use netlink_packet_core::{DefaultNla, Emitable};
use netlink_sys::protocols::NETLINK_GENERIC;
use nix::errno::Errno;

use crate::error::Cause;
use crate::wire::attributes;
use crate::wire::transport::{Request, Transport};

// linux/genetlink.h
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// The length of a message's header.
pub(crate) const HEADER_LEN: usize = 4;

/// A message: command, version, attributes.
pub(crate) struct Message {
    pub(crate) command: u8,
    pub(crate) attributes: Vec<DefaultNla>,
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        HEADER_LEN + self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        if let Some((header, rest)) = buffer.split_at_mut_checked(HEADER_LEN) {
            header.copy_from_slice(&[self.command, 1, 0, 0]);
            self.attributes.as_slice().emit(rest);
        }
    }
}

/// A socket, and the message type of a family; nothing where the kernel lacks the family.
pub(crate) fn open(family: &str) -> Result<Option<(Transport, u16)>, Cause> {
    let mut socket = Transport::open(NETLINK_GENERIC)?;
    let name = DefaultNla::new(CTRL_ATTR_FAMILY_NAME, [family.as_bytes(), b"\0"].concat());
    let lookup = Message { command: CTRL_CMD_GETFAMILY, attributes: vec![name] };
    match socket.one(Request { message_type: GENL_ID_CTRL, flags: 0 }, &lookup, family_id) {
        Ok(family) => Ok(Some((socket, family))),
        Err(cause) if cause.errno() == Some(Errno::ENOENT) => Ok(None),
        Err(cause) => Err(cause),
    }
}

fn family_id(payload: &[u8]) -> Result<u16, Cause> {
    for attribute in attributes::after(payload, HEADER_LEN) {
        if let (CTRL_ATTR_FAMILY_ID, value) = attribute? {
            return attributes::u16_of(value);
        }
    }
    Err(Cause::Malformed("a family without a number"))
}
