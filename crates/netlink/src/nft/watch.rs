//! Notices that a table was touched. A hint to read it, as [`crate::Monitor`] is for the rest of the network.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::encode::HEADER_LEN;
use super::socket::NFNL_SUBSYS_NFTABLES;
use crate::error::Result;
use crate::wire::attributes;
use crate::wire::subscription::Subscription;
use crate::wire::transport::messages;

const NFNLGRP_NFTABLES: u32 = 7;

/// linux/netfilter/nf_tables.h: tables, chains and rules, which all name their table in attribute 1.
const NFT_MSG_LAST_OF_RULES: u16 = 8;
const TABLE: u16 = 1;

/// A subscription to one table, in the network namespace where it was opened. Reading never blocks.
#[derive(Debug)]
pub struct Watch {
    subscription: Subscription,
    table: String,
}

impl Watch {
    /// Subscribes in the calling thread's network namespace; needs CAP_NET_ADMIN there.
    ///
    /// # Errors
    /// `is_unsupported()` when the kernel has no netfilter.
    pub fn open(table: &str) -> Result<Self> {
        match Subscription::open(NETLINK_NETFILTER, &[NFNLGRP_NFTABLES]) {
            Ok(subscription) => Ok(Self { subscription, table: table.to_owned() }),
            Err(cause) => Err(cause.during("subscribe to", "nft changes")),
        }
    }

    /// Whether the table was touched since the last call, as far as is known: lost events may have been about it.
    /// Wait by polling the descriptor.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn drain(&mut self) -> Result<Option<bool>> {
        let Self { subscription, table } = self;
        let mut touched = None;
        let drained = subscription.drain(|datagram| {
            let was = touched.unwrap_or(false);
            touched = Some(was || datagram.is_none_or(|datagram| concerns(datagram, table)));
        });
        drained.map(|()| touched).map_err(|cause| cause.during("read", "nft changes"))
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.subscription.as_fd()
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
