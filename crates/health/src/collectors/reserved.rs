//! Memory that pods cannot use, so that the kubelet, the runtime and the kernel have some.

use super::cgroup::Cgroups;
use super::{CGROUPS, FIVE_MINUTES};
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

pub(super) const MIB: f64 = (1 << 20) as f64;

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "reserved",
    every: FIVE_MINUTES,
    privilege: CGROUPS,
    make: || Box::new(Reserved),
    signals: &[Signal {
        name: "reserved_memory",
        unit: Unit::Percent,
        source: "`/proc/meminfo` and the memory bound of the pods' cgroup, as a share of what cloud providers reserve for this size",
        why: "Pods that may use all memory starve the kubelet: the node turns NotReady instead of evicting a pod.",
        remedy: "Set `kubeReserved` and `systemReserved` (`--kubelet-extra-args` in the node pool's cloud-init).",
    }],
};

struct Reserved;

impl Collector for Reserved {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
        let total = host.total_memory()?;
        let bound = Cgroups::of(host)?.pods_memory()?;
        let reserved = bound.map_or(0.0, |bound| (total - bound / MIB).max(0.0));
        let usual = usual(total);
        let detail = format!("{reserved:.0} MiB of {total:.0} MiB; usual for this size: {usual:.0} MiB");
        sample.value("reserved_memory", 100.0 * reserved / usual, detail);
        Ok(())
    }
}

/// The usual reservation in MiB for a memory in MiB: shares of its parts, 25 % of the first 4 GiB down to 2 % beyond 128 GiB.
fn usual(total: f64) -> f64 {
    const PARTS: [(f64, f64); 5] = [(4.0, 0.25), (8.0, 0.20), (16.0, 0.10), (128.0, 0.06), (f64::INFINITY, 0.02)];
    let mut from = 0.0;
    let mut sum = 0.0;
    for (to, share) in PARTS {
        let to = (to * 1024.0).min(total);
        sum += (to - from).max(0.0) * share;
        from = to;
    }
    sum.max(255.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_reservation_grows_with_memory_in_steps() {
        let gib = |gib: f64| usual(gib * 1024.0).round();
        assert_eq!([gib(0.5), gib(4.0), gib(16.0), gib(128.0), gib(1024.0)], [255.0, 1024.0, 2662.0, 9544.0, 27894.0]);
    }
}
