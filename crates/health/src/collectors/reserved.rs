//! Memory that pods cannot use, so that the kubelet, the runtime and the kernel have some; and the kubelet's eviction threshold.

use super::cgroup::Cgroups;
use crate::collector::{CGROUPS, FIVE_MINUTES, Kind, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

const MIB: f64 = (1 << 20) as f64;

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "reserved",
    every: FIVE_MINUTES,
    privilege: CGROUPS,
    collect,
    signals: &[
        Signal {
            name: "reserved_memory",
            unit: Unit::Percent,
            source: "`/proc/meminfo` and the memory bound of the pods' cgroup, as a share of what cloud providers reserve for this size",
            why: "Pods that may use all memory starve the kubelet: the node turns NotReady instead of evicting a pod.",
            remedy: "Set `kubeReserved` and `systemReserved` (`--kubelet-extra-args` in the node pool's cloud-init).",
        },
        Signal {
            name: "eviction_memory",
            unit: Unit::Mebibytes,
            source: "the memory bound of the pods' cgroup minus the Node's allocatable memory, which the controller reports",
            why: "The kubelet measures every 10 s; with a small threshold the kernel kills processes before the kubelet evicts a pod.",
            remedy: "Set `evictionHard` with `memory.available` of 100Mi or more in the kubelet's configuration.",
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    sample.result("reserved_memory", reserved(host));
    sample.result("eviction_memory", eviction_threshold(host));
    Ok(())
}

fn reserved(host: &Host) -> Result<(f64, String), Gap> {
    let total = host.total_memory()?;
    let bound = Cgroups::of(host)?.pods_memory()?;
    let reserved = bound.map_or(0.0, |bound| (total - bound / MIB).max(0.0));
    let usual = usual(total);
    let detail = format!("{reserved:.0} MiB of {total:.0} MiB; usual for this size: {usual:.0} MiB");
    Ok((100.0 * reserved / usual, detail))
}

/// What the pods' cgroup may use and the Node does not offer: the kubelet subtracts the threshold from Allocatable only.
fn eviction_threshold(host: &Host) -> Result<(f64, String), Gap> {
    let allocatable = host.facts.allocatable_memory;
    let allocatable =
        allocatable.ok_or_else(|| Gap::absent("no controller has reported the Node (docs/signals.md)"))?;
    let bound = Cgroups::of(host)?.pods_memory()?;
    // Version 1 has a bound beyond all memory where none is set.
    let total = host.total_memory()?;
    let bound = bound
        .filter(|bound| *bound <= total * MIB)
        .ok_or_else(|| Gap::absent("the kubelet does not bound the memory of all pods"))?;
    let (bound, allocatable) = (bound / MIB, allocatable as f64 / MIB);
    let detail = format!("pods may use {bound:.0} MiB, of which {allocatable:.0} MiB are allocatable");
    // The kubelet restarted with another bound, and the Node's amount is older; or a webhook raised it.
    if allocatable > bound + 1.0 {
        return Err(Gap::unknown(detail));
    }
    // The kernel rounds the bound down to pages.
    Ok(((bound - allocatable).round().max(0.0), detail))
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
