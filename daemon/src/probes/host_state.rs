//! What the kernel counts that explains lost packets, read from `/proc`. A file that is missing leaves its numbers absent.

use std::fs;
use std::path::Path;

use nettest::probe::HostState;
use vcn::Family;

/// Reads the state of the calling thread's network namespace; `device` is the link whose reverse-path filter counts, `family` that
/// of the packets: each has a neighbour table of its own.
pub(super) fn read(proc: &Path, device: &str, family: Family) -> HostState {
    // A thread may be in another namespace than its process: tests are.
    let net = proc.join("thread-self/net");
    let text = |path: &str| fs::read_to_string(net.join(path)).unwrap_or_default();
    let number = |path: &str| fs::read_to_string(proc.join(path)).ok()?.trim().parse::<u64>().ok();
    let (table, settings) = match family {
        Family::Ipv4 => ("stat/arp_cache", "ipv4"),
        Family::Ipv6 => ("stat/ndisc_cache", "ipv6"),
    };
    let (neighbours, conntrack) = (text(table), text("stat/nf_conntrack"));
    let filter = |link: &str| number(&format!("sys/net/ipv4/conf/{link}/rp_filter"));
    let rp_filter = filter("all").into_iter().chain(filter(device).filter(|_| !device.is_empty())).max();
    HostState {
        rp_filter_drops: column(&text("netstat"), "TcpExt:", "IPReversePathFilter"),
        rp_filter: rp_filter.and_then(|value| u8::try_from(value).ok()),
        // Each CPU's row repeats the number of the whole table.
        neighbours: hex_rows(&neighbours, "entries").first().copied(),
        neighbour_limit: number(&format!("sys/net/{settings}/neigh/default/gc_thresh3")),
        neighbour_overflows: sum(&hex_rows(&neighbours, "table_fulls")),
        connections: number("sys/net/netfilter/nf_conntrack_count"),
        connection_limit: number("sys/net/netfilter/nf_conntrack_max"),
        connection_drops: sum(&hex_rows(&conntrack, "drop")),
        insert_failures: sum(&hex_rows(&conntrack, "insert_failed")),
    }
}

/// A number of /proc/net/netstat: names in one line, numbers in the next, both with the same first word.
fn column(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let at = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// A column of a table of hexadecimal numbers, a row per CPU.
fn hex_rows(text: &str, name: &str) -> Vec<u64> {
    let mut lines = text.lines();
    let at = lines.next().and_then(|names| names.split_whitespace().position(|word| word == name));
    let Some(at) = at else { return Vec::new() };
    lines.filter_map(|row| u64::from_str_radix(row.split_whitespace().nth(at)?, 16).ok()).collect()
}

fn sum(rows: &[u64]) -> Option<u64> {
    (!rows.is_empty()).then(|| rows.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_names() {
        let netstat = "TcpExt: SyncookiesSent IPReversePathFilter\nTcpExt: 7 42\nIpExt: InNoRoutes\nIpExt: 1\n";
        assert_eq!(column(netstat, "TcpExt:", "IPReversePathFilter"), Some(42));
        assert_eq!(column(netstat, "IpExt:", "IPReversePathFilter"), None);
        let arp = "entries allocs table_fulls\n00000a00 1 00000002\n00000a00 1 00000001\n";
        assert_eq!(hex_rows(arp, "entries").first(), Some(&2560));
        assert_eq!(sum(&hex_rows(arp, "table_fulls")), Some(3));
        assert_eq!(sum(&hex_rows("", "table_fulls")), None);
    }
}
