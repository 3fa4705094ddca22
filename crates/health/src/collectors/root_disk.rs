//! A root file system that is smaller than its disk: boot volumes are created larger, and nothing grows the file system.

use std::path::{Path, PathBuf};

use super::FIVE_MINUTES;
use crate::collector::{Area, Gap, Kind, Sample, Signal, Unit};
use crate::host::{Host, names};

/// Where a file system of the host's root is mounted in the agent's container; on the host, the root itself.
const ROOTS: &[&str] = &["/host/usr", "/usr", "/"];

/// /sys counts in sectors, whatever the disk's are.
const SECTOR: f64 = 512.0;

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
        source: "`/proc/self/mountinfo`, `/sys/dev/block`, statvfs(3)",
        why: "The boot volume is larger than the root file system, so images and logs fill the node although room was paid for.",
        remedy: "Run `/usr/libexec/oci-growfs -y` on the node, and add it to the node pool's cloud-init.",
    }],
};

/// What of a disk no file system of the root's uses, in bytes.
struct UnusedBytes {
    disk: f64,
    partitions: f64,
    volumes: f64,
    file_system: f64,
}

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let mounts = host.proc("self/mountinfo")?;
    let mount = ROOTS.iter().find_map(|root| mounts.lines().map(fields).find(|found| found.1 == *root));
    let Some((device, root)) = mount else {
        return Err(Gap::unknown("no mount shows the host's root file system"));
    };
    let space = host.system.space(Path::new(root)).map_err(|error| Gap::unknown(format!("statvfs {root}: {error}")))?;
    let folder = host.sys.join("dev/block").join(device);
    if size(&folder).is_none() {
        return Err(Gap::absent(format!("the root file system is on no disk (device {device})")));
    }
    let unused = UnusedBytes::of(&folder, space.bytes as f64);
    let total = unused.partitions + unused.volumes + unused.file_system;
    let gib = |bytes: f64| bytes / GIB;
    let detail = format!(
        "of {:.1} GiB, {:.1} GiB are in no partition, {:.1} GiB in no logical volume, {:.1} GiB in no file system",
        gib(unused.disk),
        gib(unused.partitions),
        gib(unused.volumes),
        gib(unused.file_system)
    );
    sample.value("root_disk_unused", 100.0 * total / unused.disk.max(1.0), detail);
    Ok(())
}

impl UnusedBytes {
    /// `device` is the file system's: a disk, a partition, or a volume of the device mapper on one.
    fn of(device: &Path, file_system: f64) -> Self {
        let whole = size(device).unwrap_or(0.0);
        let slaves = names(&device.join("slaves"));
        let below = slaves.first().map_or_else(|| device.to_owned(), |slave| device.join("slaves").join(slave));
        let volumes = if slaves.is_empty() {
            0.0
        } else {
            let holders = below.join("holders");
            let held: f64 = names(&holders).iter().filter_map(|name| size(&holders.join(name))).sum();
            size(&below).unwrap_or(held) - held
        };
        let disk = if below.join("partition").exists() { below.join("..") } else { below };
        let all = size(&disk).unwrap_or(whole);
        let parts: Vec<PathBuf> = names(&disk).iter().map(|name| disk.join(name)).collect();
        let parts: Vec<f64> =
            parts.iter().filter(|part| part.join("partition").exists()).filter_map(|part| size(part)).collect();
        let partitions = if parts.is_empty() { 0.0 } else { all - parts.iter().sum::<f64>() };
        let positive = |bytes: f64| bytes.max(0.0);
        Self {
            disk: all,
            partitions: positive(partitions),
            volumes: positive(volumes),
            file_system: positive(whole - file_system),
        }
    }
}

fn size(folder: &Path) -> Option<f64> {
    let sectors: f64 = std::fs::read_to_string(folder.join("size")).ok()?.trim().parse().ok()?;
    Some(sectors * SECTOR)
}

/// The device and the mount point of a line.
fn fields(line: &str) -> (&str, &str) {
    let mut words = line.split(' ');
    (words.nth(2).unwrap_or_default(), words.nth(1).unwrap_or_default())
}
