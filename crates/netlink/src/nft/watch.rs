//! Notices that a table was touched. A hint to read it, as [`crate::Monitor`] is for the rest of the network.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::errno::Errno;

use super::socket::NFNL_SUBSYS_NFTABLES;
use crate::error::{Cause, Result};
use crate::wire::attributes;
use crate::wire::transport::{messages, receive};

/// linux/netfilter/nfnetlink.h
const NFNLGRP_NFTABLES: u32 = 7;

/// linux/netfilter/nf_tables.h: tables, chains and rules, which all name their table in attribute 1.
const NFT_MSG_LAST_OF_RULES: u16 = 8;
const TABLE: u16 = 1;
const HEADER_LEN: usize = 4;

/// Room for what a proxy that replaces thousands of its own rules makes the kernel say.
const RECEIVE_QUEUE: i32 = 1024 * 1024;

/// The most datagrams read at once, so that a storm cannot keep the caller forever.
const DRAIN_LIMIT: usize = 4096;

/// A subscription to one table, in the network namespace where it was opened. Reading never blocks.
#[derive(Debug)]
pub struct Watch {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
    table: String,
}

impl Watch {
    /// Subscribes in the calling thread's network namespace; needs CAP_NET_ADMIN there.
    ///
    /// # Errors
    /// `is_unsupported()` when the kernel has no netfilter.
    pub fn open(table: &str) -> Result<Self> {
        let open = || -> Result<Self, Cause> {
            let mut socket = netlink_sys::Socket::new(NETLINK_NETFILTER)?;
            socket.bind_auto()?;
            socket.set_non_blocking(true)?;
            // A smaller queue only means an overrun sooner.
            let _ = socket.set_rx_buf_sz(RECEIVE_QUEUE);
            socket.add_membership(NFNLGRP_NFTABLES)?;
            Ok(Self { socket, buffer: Vec::with_capacity(64 * 1024), table: table.to_owned() })
        };
        open().map_err(|cause| cause.during("subscribe to", "nft changes"))
    }

    /// Whether the table was touched since the last call, as far as is known: lost events may have been about it.
    /// Wait by polling the descriptor.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn drain(&mut self) -> Result<Option<bool>> {
        let mut touched = None;
        for _ in 0..DRAIN_LIMIT {
            let was = touched.unwrap_or(false);
            match receive(&self.socket, &mut self.buffer) {
                Ok(()) => touched = Some(was || concerns(&self.buffer, &self.table)),
                Err(Cause::TimedOut) => break,
                Err(Cause::Malformed(_)) => touched = Some(true),
                Err(cause) if cause.errno() == Some(Errno::ENOBUFS) => touched = Some(true),
                Err(cause) => return Err(cause.during("read", "nft changes")),
            }
        }
        Ok(touched)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn concerns(datagram: &[u8], table: &str) -> bool {
    messages(datagram).any(|message| {
        // What cannot be read may be about it.
        let Ok(message) = message else { return true };
        let [subsystem, kind] = message.message_type().to_be_bytes();
        if u16::from(subsystem) != NFNL_SUBSYS_NFTABLES || u16::from(kind) > NFT_MSG_LAST_OF_RULES {
            return false;
        }
        let mut named = attributes::after(message.payload(), HEADER_LEN).flatten();
        named.any(|(kind, value)| kind == TABLE && attributes::text_of(value) == table)
    })
}
