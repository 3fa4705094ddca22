//! The kernel's neighbour tables: ARP and IPv6 neighbour discovery.

use super::kernel_table::sum_hex;
use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

const REMEDY: &str = "Raise `net.ipv4.neigh.default.gc_thresh3` and the one of IPv6 in /etc/sysctl.d, to twice the number of \
                      pods and hosts in the node's subnets.";

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "neighbours",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "neighbour_use",
            unit: Unit::Percent,
            source: "`/proc/net/stat/{arp,ndisc}_cache`, `/proc/sys/net/{ipv4,ipv6}/neigh/default/gc_thresh3`",
            why: "A full table makes addresses in the same subnet unreachable, at random.",
            remedy: REMEDY,
        },
        Signal {
            name: "neighbour_overflows",
            unit: Unit::PerMinute,
            source: "`/proc/net/stat/{arp,ndisc}_cache`: table_fulls",
            why: "The kernel could not add a neighbor: packets to that host were lost.",
            remedy: REMEDY,
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let mut use_of = Vec::new();
    let mut overflows = 0.0;
    for (file, family) in [("arp_cache", "ipv4"), ("ndisc_cache", "ipv6")] {
        // Without IPv6 the second is missing.
        let Ok(stat) = host.proc(&format!("net/stat/{file}")) else { continue };
        let limit = host.proc_number(&format!("sys/net/{family}/neigh/default/gc_thresh3"))?;
        // Each CPU's row repeats the number of the whole table.
        let rows = stat.lines().skip(1).count().max(1) as f64;
        let entries = sum_hex(&stat, "entries").ok_or_else(|| Gap::unknown("no column entries"))? / rows;
        overflows += sum_hex(&stat, "table_fulls").unwrap_or(0.0);
        use_of.push((100.0 * entries / limit.max(1.0), format!("{family}: {entries} of {limit} neighbours")));
    }
    let fullest = use_of.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    sample.result("neighbour_use", fullest.ok_or_else(|| Gap::unknown("/proc/net/stat has no neighbour table")));
    sample.rate("neighbour_overflows", overflows, host.now, format!("{overflows} since boot"));
    Ok(())
}
