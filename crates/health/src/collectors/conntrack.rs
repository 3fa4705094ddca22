//! The kernel's table of tracked connections.

use std::time::Instant;

use vcn::ConntrackCounts;

use super::kernel_table::sum_hex;
use crate::collector::{Kind, MINUTE, Sample};
use crate::host::{Host, number};
use crate::signal::{Area, Gap, Signal, Unit};
use crate::verdict::Severity;

const REMEDY: &str = "Raise `net.netfilter.nf_conntrack_max` (a connection takes about 400 bytes), and find the pod with the \
                      most connections: `conntrack -L`.";

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "conntrack",
    every: MINUTE,
    privilege: "nothing; on a kernel without `/proc/net/stat/nf_conntrack`, `NET_ADMIN`",
    collect,
    signals: &[
        Signal {
            name: "conntrack_use",
            unit: Unit::Percent,
            source: "`/proc/sys/net/netfilter/nf_conntrack_{count,max}`",
            why: "A full table drops the packets of every new connection on the node. It is critical only while connections are dropped.",
            remedy: REMEDY,
        },
        Signal {
            name: "conntrack_drops",
            unit: Unit::PerMinute,
            source: "`/proc/net/stat/nf_conntrack`, or the same counts by netlink: drop without insert_failed, and early_drop",
            why: "New connections were dropped, or old ones forgotten, because the table was full. It is critical only while at least 95 % of the table are in use.",
            remedy: REMEDY,
        },
        Signal {
            name: "conntrack_insert_failures",
            unit: Unit::PerMinute,
            source: "`/proc/net/stat/nf_conntrack`, or the same count by netlink: insert_failed",
            why: "Two packets raced for the same flow or the same NAT port, and one was lost: DNS lookups that time out after 5 s.",
            remedy: "Use NodeLocal DNSCache, or let resolvers send A and AAAA queries one after the other (`single-request`).",
        },
    ],
};

/// From this use on, a loss of connections is one of a full table.
const FULL_PERCENT: f64 = 95.0;

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let Some(count) = host.proc_if_present("sys/net/netfilter/nf_conntrack_count")? else {
        return Err(Gap::absent("the kernel tracks no connections"));
    };
    let count = number(&count, "nf_conntrack_count")?;
    let limit = host.proc_number("sys/net/netfilter/nf_conntrack_max")?;
    let used = 100.0 * count / limit.max(1.0);
    let counts = counts(host);
    let lost = counts.clone().and_then(|counts| lost_connections(sample, counts, host.now));
    // Races for NAT ports are in `drop`, too: neither number proves alone that connections are lost for lack of room.
    let is_full = used >= FULL_PERCENT && lost.as_ref().is_ok_and(|rate| *rate > 0.0);
    let severity = if is_full { Severity::Critical } else { Severity::Warning };
    sample.value_at_most("conntrack_use", used, format!("{count} of {limit} connections"), severity);
    let ConntrackCounts { drop, early_drop, insert_failed } = counts?;
    sample.rate("conntrack_insert_failures", insert_failed as f64, host.now, format!("{insert_failed} since boot"));
    let detail = format!(
        "since boot {drop} dropped, of which {insert_failed} by races, {early_drop} forgotten; {used:.1} % of the table in use"
    );
    sample.value_at_most("conntrack_drops", lost?, detail, severity);
    Ok(())
}

/// Connections per minute that were lost for lack of room.
fn lost_connections(sample: &mut Sample, counts: ConntrackCounts, now: Instant) -> Result<f64, Gap> {
    let mut rate = |name, total: u64| sample.per_minute(name, total as f64, now);
    // Each of them only grows; their difference may shrink for a moment, because CPUs are counted one after the other.
    let (drop, failed, early) =
        (rate("drop", counts.drop), rate("insert_failed", counts.insert_failed), rate("early_drop", counts.early_drop));
    Ok((drop? - failed? + early?).max(0.0))
}

fn counts(host: &Host) -> Result<ConntrackCounts, Gap> {
    let Some(stat) = host.proc_if_present("net/stat/nf_conntrack")? else {
        let counts = host.system.conntrack_counts();
        return counts.map_err(|error| Gap::unknown(format!("the counts of connection tracking: {error}")));
    };
    let sum = |column| sum_hex(&stat, column).ok_or_else(|| Gap::unknown(format!("no column {column}")));
    let count = |column| sum(column).map(|sum| sum as u64);
    Ok(ConntrackCounts {
        drop: count("drop")?,
        early_drop: count("early_drop")?,
        insert_failed: count("insert_failed")?,
    })
}
