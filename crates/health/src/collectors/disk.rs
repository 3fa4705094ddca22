//! Room in the file systems that the agent, the plugins and the host use.

use std::io;

use super::block_devices::mount_of;
use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};
use crate::system::Space;

const REMEDY: &str = "Remove what fills it (images: `crictl rmi --prune`; logs: `journalctl --vacuum-size=1G`), or enlarge it: \
                      see `root_disk_unused`.";

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "disk",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "disk_use",
            unit: Unit::Percent,
            source: "statvfs(3) of the agent's folders and of the host's /usr",
            why: "Without room no pod starts, and the kubelet evicts those that run.",
            remedy: REMEDY,
        },
        Signal {
            name: "inode_use",
            unit: Unit::Percent,
            source: "statvfs(3) of the same",
            why: "Without free inodes no file can be created, whatever room is left.",
            remedy: REMEDY,
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let (mut room, mut inodes) = (Vec::new(), Vec::new());
    let (mut gap, mut error) = (Gap::unknown("no folder is known"), None);
    let mounts = host.proc("self/mountinfo").unwrap_or_default();
    for path in &host.facts.paths {
        match host.system.space(path) {
            // An image without room for more, such as composefs, and one without any, are complete.
            Ok(Space { available: 0, .. }) if mount_of(&mounts, path).is_some_and(|mount| mount.is_read_only) => {
                gap = Gap::absent("the file systems are read-only images");
            }
            Ok(Space { bytes: 0, .. }) => {}
            Ok(space) => {
                let share = |free: u64, all: u64| 100.0 - 100.0 * free as f64 / all.max(1) as f64;
                room.push((share(space.available, space.bytes), path.display().to_string()));
                if space.files > 0 {
                    inodes.push((share(space.files_free, space.files), path.display().to_string()));
                }
            }
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                gap = Gap::unknown(format!("{} is missing", path.display()));
            }
            Err(cause) => error = Some(Gap::unknown(format!("statvfs {}: {cause}", path.display()))),
        }
    }
    // That one may be the full one.
    if let Some(error) = error {
        return Err(error);
    }
    let fullest = |shares: Vec<(f64, String)>| shares.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    sample.result("disk_use", fullest(room).ok_or(gap));
    let unbounded = || Gap::absent("the file systems have no bound on files");
    sample.result("inode_use", fullest(inodes).ok_or_else(unbounded));
    Ok(())
}
