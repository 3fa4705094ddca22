//! Threads of the whole host.

use super::{MINUTE, NOTHING};
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "pids",
    every: MINUTE,
    privilege: NOTHING,
    make: || Box::new(Pids),
    signals: &[Signal {
        name: "pids",
        unit: Unit::Percent,
        source: "`/proc/loadavg`, `/proc/sys/kernel/{pid_max,threads-max}`",
        why: "At the bound no process or thread starts: the kubelet, the runtime and probes fail.",
        remedy: "Find the pod with the most threads (`systemd-cgtop -T`), set the kubelet's `podPidsLimit`, or raise `kernel.pid_max`.",
    }],
};

struct Pids;

impl Collector for Pids {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
        let text = host.proc("loadavg")?;
        // `0.10 0.20 0.30 2/842 12345`: running and all threads of the host, in every PID namespace.
        let threads = text.split(' ').nth(3).and_then(|word| word.split('/').nth(1)?.parse::<f64>().ok());
        let threads = threads.ok_or_else(|| Gap::unknown("/proc/loadavg has no number of threads"))?;
        let most = host.proc_number("sys/kernel/pid_max")?.min(host.proc_number("sys/kernel/threads-max")?);
        sample.value("pids", 100.0 * threads / most.max(1.0), format!("{threads} of {most} threads"));
        Ok(())
    }
}
