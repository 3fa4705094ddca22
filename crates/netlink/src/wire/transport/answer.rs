//! What the kernel answers: datagrams of messages, the end of a request, its refusal in numbers and words.

use netlink_packet_core::{NLM_F_ACK_TLVS, NLM_F_CAPPED, NetlinkBuffer};
use nix::errno::Errno;

use super::HEADER_LEN;
use crate::error::{Cause, Refusal};
use crate::wire::attributes;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLMSGERR_ATTR_MSG: u16 = 1;

pub(super) enum Answer<'a> {
    /// The request is done; an error number of 0 is success.
    End(Result<(), Refusal>),
    Object(u16, &'a [u8]),
}

/// The messages of one datagram.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Result<NetlinkBuffer<&[u8]>, Cause>> {
    std::iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(datagram) else {
            datagram = &[];
            return Some(Err(Cause::Malformed("a message is longer than its datagram")));
        };
        let length = (message.length() as usize).next_multiple_of(4);
        datagram = datagram.get(length..).unwrap_or_default();
        Some(Ok(message))
    })
}

pub(super) fn answer<'a>(message: &NetlinkBuffer<&'a [u8]>) -> Result<Option<Answer<'a>>, Cause> {
    let payload = message.payload();
    Ok(match message.message_type() {
        NLMSG_NOOP => None,
        NLMSG_OVERRUN => return Err(Cause::System(Errno::ENOBUFS.into())),
        NLMSG_ERROR => Some(Answer::End(ended(payload, message.flags(), true)?)),
        // A list may end without a number: that is success.
        NLMSG_DONE if payload.is_empty() => Some(Answer::End(Ok(()))),
        NLMSG_DONE => Some(Answer::End(ended(payload, message.flags(), false)?)),
        kind => Some(Answer::Object(kind, payload)),
    })
}

/// Reads the number that ends a request and, of a refusal, its text. An NLMSG_ERROR repeats the request (its header
/// alone when capped) before the text; an NLMSG_DONE does not.
fn ended(payload: &[u8], flags: u16, repeats_request: bool) -> Result<Result<(), Refusal>, Cause> {
    let number = attributes::i32_of(payload)?;
    if number == 0 {
        return Ok(Ok(()));
    }
    let mut text = None;
    if flags & NLM_F_ACK_TLVS != 0 {
        let repeated = if !repeats_request {
            0
        } else if flags & NLM_F_CAPPED != 0 {
            HEADER_LEN
        } else {
            let length = attributes::u32_of(payload.get(4..).unwrap_or_default())?;
            (length as usize).next_multiple_of(4)
        };
        // A number with an unreadable text is still the number.
        text = attributes::after(payload, 4 + repeated)
            .flatten()
            .find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)
            .map(|(_, value)| attributes::text_of(value));
    }
    Ok(Err(Refusal { errno: Errno::from_raw(number.saturating_neg()), text }))
}
