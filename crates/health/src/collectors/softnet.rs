//! Packets that the kernel dropped before any protocol saw them.

use super::rate::Rate;
use super::{MINUTE, NOTHING};
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "softnet",
    every: MINUTE,
    privilege: NOTHING,
    make: || Box::<Softnet>::default(),
    signals: &[Signal {
        name: "softnet_drops",
        unit: Unit::PerMinute,
        source: "`/proc/net/softnet_stat`, second column",
        why: "A CPU's queue of arrived packets was full.",
        remedy: "Raise `net.core.netdev_max_backlog`, spread interrupts over more CPUs (`irqbalance`), or use a larger shape.",
    }],
};

#[derive(Default)]
struct Softnet {
    drops: Rate,
}

impl Collector for Softnet {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
        let text = host.proc("net/softnet_stat")?;
        let dropped = |row: &str| u32::from_str_radix(row.split_whitespace().nth(1)?, 16).ok().map(f64::from);
        let total: Option<f64> = text.lines().map(dropped).sum();
        let total = total.ok_or_else(|| Gap::unknown("/proc/net/softnet_stat has no second column"))?;
        let rate = self.drops.per_minute(total, host.now)?;
        sample.value("softnet_drops", rate, format!("{total} since boot"));
        Ok(())
    }
}
