//! The tables of `iptables-legacy` and `ip6tables-legacy`, which nf_tables knows nothing of: which of them stop packets on
//! their way through this host. Only read, and only those that are there: asking for one that is not makes the kernel make it.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use vcn::Family;

use crate::error::{Cause, Result};
use crate::nft::{Barrier, LinkMatch, Way};

mod blob;

/// Tables with a chain at the forward hook whose rules may stop what passes.
const TABLES: [&str; 3] = ["mangle", "filter", "security"];

/// Tables of millions of rules are not read: nobody waits for the answer that long.
const MOST_BYTES: u32 = 16 * 1024 * 1024;

// linux/netfilter_ipv4/ip_tables.h; the same numbers for IPv6.
const SO_GET_INFO: i32 = 64;
const SO_GET_ENTRIES: i32 = 65;
const NAME_LEN: usize = 32;
/// `struct ipt_getinfo`: name, valid hooks, 5 entries, 5 underflows, number of entries, size.
const INFO_LEN: usize = NAME_LEN + 13 * 4;
/// `struct ipt_get_entries`: name, size, padding.
const ENTRIES_LEN: usize = NAME_LEN + 8;

/// The base chains that stop packets on any of some ways. Every table is read once, whatever their number.
///
/// # Errors
/// `is_retryable()` when a table was replaced while it was read; when it may not be read (CAP_NET_ADMIN).
pub fn barriers(ways: &[Way]) -> Result<Vec<Barrier>> {
    let mut found = Vec::new();
    for family in Family::ALL {
        let stopped = present(family).into_iter().map(|table| Ok((table, stopped_by(family, table, ways)?)));
        let stopped: Result<Vec<_>, Cause> = stopped.collect();
        let stopped = stopped.map_err(|cause| cause.during("read", format!("{family} tables of iptables-legacy")))?;
        let word = if family == Family::Ipv4 { "ip" } else { "ip6" };
        found.extend(stopped.into_iter().filter_map(|(table, how)| {
            let (table, chain) = (table.to_owned(), "FORWARD".to_owned());
            Some(Barrier { family: word, table, chain, how: how?, legacy: true })
        }));
    }
    Ok(found)
}

/// Those that somebody has made in this namespace.
fn present(family: Family) -> Vec<&'static str> {
    let file = if family == Family::Ipv4 { "ip_tables_names" } else { "ip6_tables_names" };
    // The calling thread may be in another namespace than its process. No file: a kernel without them.
    let names = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    TABLES.into_iter().filter(|table| names.lines().any(|name| name == *table)).collect()
}

fn stopped_by(family: Family, table: &str, ways: &[Way]) -> Result<Option<&'static str>, Cause> {
    let of_family = if family == Family::Ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    // Any socket of the family will do.
    let socket = socket(of_family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut info = named(table, INFO_LEN);
    ask(&socket, family, SO_GET_INFO, &mut info)?;
    let header = blob::Header::read(info.get(NAME_LEN..).unwrap_or_default())?;
    if header.size > MOST_BYTES {
        return Err(Cause::Invalid("a table of more than 16 MiB is not read"));
    }
    let size = usize::try_from(header.size).map_err(|_| Cause::Malformed("a table's size"))?;
    let mut entries = named(table, ENTRIES_LEN + size);
    if let Some(field) = entries.get_mut(NAME_LEN..NAME_LEN + 4) {
        field.copy_from_slice(&header.size.to_ne_bytes());
    }
    ask(&socket, family, SO_GET_ENTRIES, &mut entries)?;
    blob::forward(entries.get(ENTRIES_LEN..).unwrap_or_default(), family, &header, ways)
}

/// A request's buffer, with the table's name where it belongs.
fn named(table: &str, length: usize) -> Vec<u8> {
    let mut buffer = table.as_bytes().to_vec();
    buffer.resize(length, 0);
    buffer
}

#[expect(unsafe_code, reason = "no crate wraps netfilter's socket options")]
fn ask(socket: &OwnedFd, family: Family, option: i32, buffer: &mut [u8]) -> Result<(), Cause> {
    let level = if family == Family::Ipv4 { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 };
    let mut length = libc::socklen_t::try_from(buffer.len()).map_err(|_| Cause::Malformed("a table's size"))?;
    // SAFETY: the kernel writes `length` bytes at most, which is what `buffer` has.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, buffer.as_mut_ptr().cast(), &raw mut length) };
    // EAGAIN: the table is another by now.
    Errno::result(result).map(drop).map_err(Cause::from)
}

/// Whether a link's name is what a rule asks for: its bytes under a mask.
fn matches(link: &LinkMatch, wanted: &[u8], mask: &[u8]) -> blob::Meets {
    let asked = mask.iter().take_while(|byte| **byte != 0).count();
    let name = match link {
        LinkMatch::Exact(name) => name.as_str().as_bytes(),
        LinkMatch::Prefix(prefix) => prefix.as_bytes(),
    };
    let at = |name: &[u8], index: usize| name.get(index).copied().unwrap_or_default();
    // As far as the name is known.
    let known = if matches!(link, LinkMatch::Prefix(_)) { asked.min(name.len()) } else { asked };
    if (0..known).any(|index| at(name, index) != at(wanted, index)) {
        blob::Meets::No
    } else if known < asked {
        blob::Meets::Perhaps
    } else {
        blob::Meets::Yes
    }
}
