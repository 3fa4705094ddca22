//! The kernel's table of tracked connections.

use super::kernel_table::sum_hex;
use super::{MINUTE, NOTHING};
use crate::collector::{Area, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

const REMEDY: &str = "Raise `net.netfilter.nf_conntrack_max` (a connection takes about 400 bytes), and find the pod with the \
                      most connections: `conntrack -L`.";

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "conntrack",
    every: MINUTE,
    privilege: NOTHING,
    collect,
    signals: &[
        Signal {
            name: "conntrack_use",
            unit: Unit::Percent,
            source: "`/proc/sys/net/netfilter/nf_conntrack_{count,max}`",
            why: "A full table drops the packets of every new connection on the node.",
            remedy: REMEDY,
        },
        Signal {
            name: "conntrack_drops",
            unit: Unit::PerMinute,
            source: "`/proc/net/stat/nf_conntrack`: drop, early_drop",
            why: "New connections were dropped, or old ones forgotten, because the table was full.",
            remedy: REMEDY,
        },
        Signal {
            name: "conntrack_insert_failures",
            unit: Unit::PerMinute,
            source: "`/proc/net/stat/nf_conntrack`: insert_failed",
            why: "Two packets of the same UDP flow raced, and one was lost: DNS lookups that time out after 5 s.",
            remedy: "Use NodeLocal DNSCache, or let resolvers send A and AAAA queries one after the other (`single-request`).",
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let not_loaded = |_| Gap::absent("the kernel tracks no connections");
    let count = host.proc_number("sys/net/netfilter/nf_conntrack_count").map_err(not_loaded)?;
    let most = host.proc_number("sys/net/netfilter/nf_conntrack_max")?;
    sample.value("conntrack_use", 100.0 * count / most.max(1.0), format!("{count} of {most} connections"));
    let stat = host.proc("net/stat/nf_conntrack")?;
    let sum = |column| sum_hex(&stat, column).ok_or_else(|| Gap::unknown(format!("no column {column}")));
    let (drop, early) = (sum("drop")?, sum("early_drop")?);
    let detail = format!("{drop} dropped, {early} forgotten since boot");
    sample.rate("conntrack_drops", drop + early, host.now, detail);
    let failed = sum("insert_failed")?;
    sample.rate("conntrack_insert_failures", failed, host.now, format!("{failed} since boot"));
    Ok(())
}
