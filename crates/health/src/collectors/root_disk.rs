//! A root file system that is smaller than its disk: boot volumes are created larger, and nothing grows the file system.

use std::path::Path;

use super::block_devices::{Stack, holders, is_partition, partitions, root_mount, size, slaves};
use crate::collector::{FIVE_MINUTES, Kind, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

const GIB: f64 = (1_u64 << 30) as f64;

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "root_disk",
    every: FIVE_MINUTES,
    privilege: "`/usr`, read-only: it shows the device of the root file system",
    collect,
    signals: &[Signal {
        name: "root_disk_unused",
        unit: Unit::Percent,
        source: "`/proc/self/mountinfo`, `/sys/dev/block` with all devices below, statvfs(3)",
        why: "The boot volume is larger than the root file system, so images and logs fill the node although room was paid for.",
        remedy: "Rescan each of its disks on the node (`echo 1 > /sys/class/block/sda/device/rescan`), then run `/usr/libexec/oci-growfs -y`. Add both to the node pool's cloud-init.",
    }],
};

/// What of the root's disks no file system uses, in bytes.
#[derive(Default)]
struct UnusedBytes {
    disks: f64,
    partitions: f64,
    volumes: f64,
    file_system: f64,
}

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let mounts = host.proc("self/mountinfo")?;
    let Some(mount) = root_mount(&mounts) else {
        return Err(Gap::unknown("no mount shows the host's root file system"));
    };
    if mount.kind == "btrfs" {
        return Err(Gap::absent("not examined: btrfs divides its disks itself"));
    }
    let root = mount.point;
    let space = host.system.space(Path::new(root)).map_err(|error| Gap::unknown(format!("statvfs {root}: {error}")))?;
    let Some(stack) = Stack::of(host, &mount).filter(|stack| stack.top().and_then(size).is_some()) else {
        return Err(Gap::absent(format!("the root file system is on no disk (device {})", mount.device)));
    };
    let unused = UnusedBytes::of(&stack, space.bytes as f64);
    let total = unused.partitions + unused.volumes + unused.file_system;
    let gib = |bytes: f64| bytes / GIB;
    let detail = format!(
        "of {:.1} GiB, {:.1} GiB are in no partition, {:.1} GiB in no logical volume, {:.1} GiB in no file system",
        gib(unused.disks),
        gib(unused.partitions),
        gib(unused.volumes),
        gib(unused.file_system)
    );
    sample.value("root_disk_unused", (100.0 * total / unused.disks.max(1.0)).min(100.0), detail);
    Ok(())
}

impl UnusedBytes {
    fn of(stack: &Stack, file_system: f64) -> Self {
        let positive = |bytes: f64| bytes.max(0.0);
        let mut unused = Self::default();
        for device in stack.devices() {
            let Some(whole) = size(device) else { continue };
            if Some(device) == stack.top() {
                unused.file_system = positive(whole - file_system);
            }
            let parts: f64 = partitions(device).iter().filter_map(|part| size(part)).sum();
            let holders = holders(device);
            if parts > 0.0 && !is_partition(device) {
                unused.partitions += positive(whole - parts);
            } else if !holders.is_empty() {
                // A volume on several devices takes at most the whole of each: its share of one is not in /sys. The copies of
                // a mirror are as large as the mirror.
                let held: f64 = holders.iter().map(|holder| share(holder, whole)).sum();
                unused.volumes += positive(whole - held);
            }
        }
        let disks: Option<f64> = stack.disks().map(size).sum();
        let largest = || stack.devices().filter_map(size).fold(0.0, f64::max);
        unused.disks = disks.unwrap_or_else(largest);
        unused
    }
}

/// How much of a device of some size a holder takes. One of unknown size takes all.
fn share(holder: &Path, whole: f64) -> f64 {
    let size = size(holder).unwrap_or(whole);
    if slaves(holder).len() > 1 { size.min(whole) } else { size }
}
