//! Packets that the kernel dropped before any protocol saw them.

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "softnet",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[Signal {
        name: "softnet_drops",
        unit: Unit::PerMinute,
        source: "`/proc/net/softnet_stat`, second column",
        why: "A CPU's queue of arrived packets was full.",
        remedy: "Raise `net.core.netdev_max_backlog`, spread interrupts over more CPUs (`irqbalance`), or use a larger shape.",
    }],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let text = host.proc("net/softnet_stat")?;
    let dropped = |row: &str| u32::from_str_radix(row.split_whitespace().nth(1)?, 16).ok().map(f64::from);
    let total: Option<f64> = text.lines().map(dropped).sum();
    let total = total.ok_or_else(|| Gap::unknown("/proc/net/softnet_stat has no second column"))?;
    sample.rate("softnet_drops", total, host.now, format!("{total} since boot"));
    Ok(())
}
