//! Connection tracking: forgetting an address's connections before another pod gets the address.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use netlink_packet_core::{DefaultNla, Emitable};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterProtoFamily};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::errno::Errno;
use vcn::ConntrackCounts;

use crate::error::{Cause, Result};
use crate::wire::attributes;
use crate::wire::transport::{Request, Transport};

// linux/netfilter/nfnetlink_conntrack.h; the message types belong to subsystem 1.
const IPCTNL_MSG_CT_GET: u16 = 1 << 8 | 1;
const IPCTNL_MSG_CT_DELETE: u16 = 1 << 8 | 2;
const IPCTNL_MSG_CT_GET_STATS_CPU: u16 = 1 << 8 | 4;
const CTA_STATS_INSERT_FAILED: u16 = 9;
const CTA_STATS_DROP: u16 = 10;
const CTA_STATS_EARLY_DROP: u16 = 11;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_TUPLE_IP: u16 = 1;
/// CTA_IP_V4_SRC, V4_DST, V6_SRC, V6_DST.
const CTA_IP_ADDRESSES: std::ops::RangeInclusive<u16> = 1..=4;
const NLA_F_NESTED: u16 = 1 << 15;

const HEADER_LEN: usize = 4;

/// Whether the kernel tracks no connection in the namespace of the caller, by its settings below `sysctl_root`. Going
/// through an empty table costs as much as through a full one; where there is no number, nothing is tracked.
pub fn is_idle(sysctl_root: &Path) -> bool {
    match fs::read(sysctl_root.join("net/netfilter/nf_conntrack_count")) {
        Ok(count) => count.trim_ascii() == b"0",
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Two connection tracking sockets. What one finds, the other deletes before more is read. So memory holds only a few of
/// however many connections. They belong to the network namespace where they were opened.
#[derive(Debug)]
pub struct ConntrackSocket {
    list: Transport,
    delete: Transport,
}

/// How many connections of some addresses were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedConnections {
    /// How many were forgotten.
    pub connections: usize,
    /// Whether there can be no more: none was left for want of time.
    pub all: bool,
}

/// A request: netfilter's header and attributes.
struct Message {
    header: NetfilterHeader,
    attributes: Vec<DefaultNla>,
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.header.buffer_len() + self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.header.emit(buffer);
        if let Some(rest) = buffer.get_mut(HEADER_LEN..) {
            self.attributes.as_slice().emit(rest);
        }
    }
}

impl ConntrackSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// `is_unsupported()` when the kernel has no netfilter.
    pub fn open() -> Result<Self> {
        let open = || Transport::open(NETLINK_NETFILTER);
        match open().and_then(|list| Ok(Self { list, delete: open()? })) {
            Ok(socket) => Ok(socket),
            Err(cause) => Err(cause.during("open", "a connection tracking socket")),
        }
    }

    /// Forgets every connection that has one of the addresses at either end in either direction, also those that NAT redirected.
    /// It stops when `go_on` says so, which is called about every hundred connections. The kernel finds no connection by its
    /// address, so all of them are gone through, once per family; pass many addresses at once. The sockets are spent: a list
    /// that was left before its end is not to be ended otherwise.
    ///
    /// # Errors
    /// `is_unsupported()` when the kernel tracks no connections.
    pub fn delete_by_addresses(
        mut self,
        addresses: &HashSet<IpAddr>,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<DeletedConnections> {
        let mut deleted = DeletedConnections { connections: 0, all: true };
        for family in [NetfilterProtoFamily::IPv4, NetfilterProtoFamily::IPv6] {
            let of_family = |address: &IpAddr| address.is_ipv4() == (family == NetfilterProtoFamily::IPv4);
            if deleted.all && addresses.iter().any(of_family) {
                self.delete_cause(family, addresses, &mut go_on, &mut deleted)
                    .map_err(|cause| cause.during("delete connections of", names(addresses)))?;
            }
        }
        Ok(deleted)
    }

    fn delete_cause(
        &mut self,
        family: NetfilterProtoFamily,
        addresses: &HashSet<IpAddr>,
        mut go_on: impl FnMut() -> bool,
        deleted: &mut DeletedConnections,
    ) -> Result<(), Cause> {
        let message = |attributes| Message { header: NetfilterHeader::new(family, 0, 0), attributes };
        let list = Request { message_type: IPCTNL_MSG_CT_GET, flags: 0 };
        // Connections come and go all the time, and the kernel does not call that an interruption. That those it has listed
        // are deleted while it goes on is what conntrack(8) does, too.
        self.list.begin_list(list, &message(Vec::new()))?;
        let mut found = Vec::new();
        loop {
            let more = self.list.next_piece(|payload| {
                found.extend(key_if_of_any(payload, addresses)?);
                Ok(())
            })?;
            for key in found.drain(..) {
                let delete = Request { message_type: IPCTNL_MSG_CT_DELETE, flags: 0 };
                match self.delete.acknowledged(delete, &message(key)) {
                    Ok(()) => deleted.connections += 1,
                    // It ended by itself meanwhile.
                    Err(cause) if cause.errno() == Some(Errno::ENOENT) => {}
                    Err(cause) => return Err(cause),
                }
            }
            if !more {
                return Ok(());
            }
            if !go_on() {
                deleted.all = false;
                return Ok(());
            }
        }
    }
}

/// What was counted in the calling thread's network namespace.
///
/// # Errors
/// `is_unsupported()` when the kernel tracks no connections.
pub fn counts() -> Result<ConntrackCounts> {
    const SUBJECT: &str = "the counts of connection tracking";
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, 0);
    let request = Request { message_type: IPCTNL_MSG_CT_GET_STATS_CPU, flags: 0 };
    let mut counts = ConntrackCounts::default();
    let read = || {
        let mut socket = Transport::open(NETLINK_NETFILTER)?;
        socket.begin_list(request, &Message { header, attributes: Vec::new() })?;
        while socket.next_piece(|payload| add_cpu(&mut counts, payload))? {}
        Ok(())
    };
    read().map_err(|cause: Cause| cause.during("read", SUBJECT))?;
    Ok(counts)
}

/// Adds what one CPU counted.
fn add_cpu(counts: &mut ConntrackCounts, payload: &[u8]) -> Result<(), Cause> {
    for attribute in attributes::after(payload, HEADER_LEN) {
        let (kind, value) = attribute?;
        let count = match kind {
            CTA_STATS_INSERT_FAILED => &mut counts.insert_failed,
            CTA_STATS_DROP => &mut counts.drop,
            CTA_STATS_EARLY_DROP => &mut counts.early_drop,
            _ => continue,
        };
        let number = value.try_into().map(u32::from_be_bytes).unwrap_or_default();
        *count = count.saturating_add(number.into());
    }
    Ok(())
}

fn names(addresses: &HashSet<IpAddr>) -> String {
    match addresses.iter().min() {
        Some(first) if addresses.len() == 1 => first.to_string(),
        Some(first) => format!("{} addresses ({first}, …)", addresses.len()),
        None => "no address".to_owned(),
    }
}

/// What names a connection (original direction, zone, id), if any of the addresses is part of it.
pub(crate) fn key_if_of_any(payload: &[u8], addresses: &HashSet<IpAddr>) -> Result<Option<Vec<DefaultNla>>, Cause> {
    let (mut key, mut concerned) = (Vec::new(), false);
    for attribute in attributes::after(payload, HEADER_LEN) {
        let (kind, value) = attribute?;
        if matches!(kind, CTA_TUPLE_ORIG | CTA_TUPLE_REPLY) {
            concerned |= holds(value, addresses)?;
        }
        match kind {
            CTA_TUPLE_ORIG => key.push(DefaultNla::new(kind | NLA_F_NESTED, value.to_vec())),
            CTA_ZONE | CTA_ID => key.push(DefaultNla::new(kind, value.to_vec())),
            _ => {}
        }
    }
    Ok(concerned.then_some(key))
}

fn holds(tuple: &[u8], addresses: &HashSet<IpAddr>) -> Result<bool, Cause> {
    for attribute in attributes::within(tuple) {
        let (CTA_TUPLE_IP, ends) = attribute? else { continue };
        for end in attributes::within(ends) {
            let (kind, value) = end?;
            if CTA_IP_ADDRESSES.contains(&kind) && addresses.contains(&attributes::address_of(value)?) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
