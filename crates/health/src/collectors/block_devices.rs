//! The block devices below a file system: partitions, disks and whatever is stacked between them (LVM, LUKS, multipath, RAID).

use std::path::{Path, PathBuf};

use crate::host::{Host, names};

/// Where a file system of the host's root is mounted in the agent's container; on the host, the root itself.
const ROOTS: [&str; 3] = ["/host/usr", "/usr", "/"];

/// More than any stack has. A loop in a recorded tree ends here, too.
const MAX_DEVICES: usize = 64;

/// /sys counts in sectors, whatever the disk's are.
const SECTOR: f64 = 512.0;

/// A line of /proc/self/mountinfo.
pub(super) struct Mount<'a> {
    /// `major:minor`; major 0 where the file system has no device or several.
    pub(super) device: &'a str,
    pub(super) point: &'a str,
    /// The kind of the file system.
    pub(super) kind: &'a str,
    source: &'a str,
    /// Whether the file system itself is read-only: a container's mount of a writable one is read-only, too.
    pub(super) is_read_only: bool,
}

/// A file system's device and all devices below it, each once, from the top.
pub(super) struct Stack(Vec<PathBuf>);

/// The mounts of a text of mountinfo.
pub(super) fn mounts(mountinfo: &str) -> impl DoubleEndedIterator<Item = Mount<'_>> {
    mountinfo.lines().filter_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let (mut head, mut tail) = (head.split(' '), tail.split(' '));
        let (device, point) = (head.nth(2)?, head.nth(1)?);
        let (kind, source, options) = (tail.next()?, tail.next()?, tail.next().unwrap_or_default());
        Some(Mount { device, point, kind, source, is_read_only: options.split(',').any(|option| option == "ro") })
    })
}

/// The mount that shows the host's root file system.
pub(super) fn root_mount(mountinfo: &str) -> Option<Mount<'_>> {
    ROOTS.iter().find_map(|root| mounts(mountinfo).find(|mount| mount.point == *root))
}

/// The mount that holds a path: the last one of the deepest.
pub(super) fn mount_of<'a>(mountinfo: &'a str, path: &Path) -> Option<Mount<'a>> {
    mounts(mountinfo).filter(|mount| path.starts_with(mount.point)).max_by_key(|mount| mount.point.len())
}

/// The names of the root file system's devices and their controllers; none where they are not known. Where the image of the root
/// has no device (composefs), the host's folders that the agent mounts are on the same disk.
pub(super) fn root_devices(host: &Host) -> Vec<String> {
    let Ok(mountinfo) = host.proc("self/mountinfo") else { return Vec::new() };
    let roots = root_mount(&mountinfo).into_iter();
    let others = host.facts.paths.iter().filter_map(|path| mount_of(&mountinfo, path));
    let stack = roots.chain(others).find_map(|mount| Stack::of(host, &mount));
    stack.map(|stack| stack.names()).unwrap_or_default()
}

impl Stack {
    /// The devices of a mount, if it has any.
    pub(super) fn of(host: &Host, mount: &Mount<'_>) -> Option<Self> {
        let numbered = host.sys.join("dev/block").join(mount.device).canonicalize();
        let top = numbered.ok().or_else(|| by_name(host, mount.source))?;
        let mut devices = Vec::new();
        collect(&top, &mut devices);
        Some(Self(devices))
    }

    /// The file system's device.
    pub(super) fn top(&self) -> Option<&Path> {
        self.0.first().map(PathBuf::as_path)
    }

    pub(super) fn devices(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// Whether a device is a disk: no part of one, and stacked on nothing but the paths to the same disk.
    pub(super) fn is_disk(device: &Path) -> bool {
        let paths = slaves(device);
        let is_path = |path: &PathBuf| !is_partition(path) && size(path).is_some() && size(path) == size(device);
        !is_partition(device) && paths.iter().all(is_path)
    }

    /// The disks of the stack that are not a path to another disk of it.
    pub(super) fn disks(&self) -> impl Iterator<Item = &Path> {
        let is_path = |device: &Path| {
            let maps = self.devices().filter(|map| Self::is_disk(map));
            maps.flat_map(slaves).any(|path| path == device)
        };
        self.devices().filter(move |device| Self::is_disk(device) && !is_path(device))
    }

    fn names(&self) -> Vec<String> {
        let controllers = self.devices().filter_map(Path::parent).flat_map(controllers);
        self.devices().filter_map(name).map(str::to_owned).chain(controllers).collect()
    }
}

/// A device's size in bytes.
pub(super) fn size(device: &Path) -> Option<f64> {
    let sectors: f64 = std::fs::read_to_string(device.join("size")).ok()?.trim().parse().ok()?;
    Some(sectors * SECTOR)
}

pub(super) fn is_partition(device: &Path) -> bool {
    device.join("partition").exists()
}

/// The devices that a device is stacked on.
pub(super) fn slaves(device: &Path) -> Vec<PathBuf> {
    linked(&device.join("slaves"))
}

/// The devices that are stacked on a device.
pub(super) fn holders(device: &Path) -> Vec<PathBuf> {
    linked(&device.join("holders"))
}

/// The partitions of a disk.
pub(super) fn partitions(disk: &Path) -> Vec<PathBuf> {
    let parts = names(disk).into_iter().map(|name| disk.join(name));
    parts.filter(|part| is_partition(part)).collect()
}

fn linked(folder: &Path) -> Vec<PathBuf> {
    names(folder).iter().filter_map(|name| folder.join(name).canonicalize().ok()).collect()
}

fn collect(device: &Path, found: &mut Vec<PathBuf>) {
    if found.len() >= MAX_DEVICES || found.iter().any(|known| known == device) {
        return;
    }
    found.push(device.to_owned());
    slaves(device).iter().for_each(|slave| collect(slave, found));
    if let Some(disk) = device.parent().filter(|_| is_partition(device)) {
        collect(disk, found);
    }
}

fn name(device: &Path) -> Option<&str> {
    device.file_name()?.to_str()
}

/// NVMe controllers by the folder of their disk: the controller's own, or that of a subsystem with several.
fn controllers(folder: &Path) -> Vec<String> {
    let is_controller = |name: &str| {
        let number = name.strip_prefix("nvme");
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let own = name(folder).map(str::to_owned).into_iter();
    let is_nvme = name(folder).is_some_and(|name| name.starts_with("nvme"));
    let below = if is_nvme { names(folder) } else { Vec::new() };
    own.chain(below).filter(|name| is_controller(name)).collect()
}

/// The device of a mount's source, such as `/dev/sda2` or `/dev/mapper/ocivolume-root`.
fn by_name(host: &Host, source: &str) -> Option<PathBuf> {
    let class = host.sys.join("class/block");
    let name = source.strip_prefix("/dev/")?;
    if let Some(mapped) = name.strip_prefix("mapper/") {
        let is_it =
            |device: &PathBuf| std::fs::read_to_string(device.join("dm/name")).is_ok_and(|text| text.trim() == mapped);
        return names(&class).iter().filter_map(|name| class.join(name).canonicalize().ok()).find(is_it);
    }
    // A name has no path: the folder is the kernel's, the name is not.
    class.join(name).canonicalize().ok().filter(|_| !name.contains('/'))
}
