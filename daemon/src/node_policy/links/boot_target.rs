//! Which iSCSI targets the node boots from: a link that leads to one is never changed, because the root disk would go with it.
//!
//! Each of three signs is enough. They are the session below a disk of the agent's host folders, the address that OCI's boot
//! volumes have, and the firmware's table (iBFT). Container runtimes hide that table unless it is granted. Sessions of other
//! volumes do not count: their loss stops no node, and a CSI driver opens some at any time.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use netlink::{Link, RoutedPacket, Socket};
use vcn::MacAddr;

/// The address of OCI's boot volumes.
const OCI_BOOT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 0, 2));

/// A disk stands on others (LVM on multipath on iSCSI) to this depth at most.
const DEPTH_MAX: u32 = 6;

/// What the node boots from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BootTargets {
    pub(super) addresses: Vec<IpAddr>,
    /// The links that the firmware used.
    pub(super) macs: Vec<MacAddr>,
    /// A disk of the host is on iSCSI, and its target is unknown: each link could lead there.
    pub(super) is_unknown: bool,
}

/// Reads what the node boots from. `folders` are on the host's disks.
pub(super) fn read(sysfs: &Path, folders: &[PathBuf]) -> BootTargets {
    let mut targets = BootTargets::default();
    let mut sessions = Vec::new();
    for folder in folders {
        let Ok(device) = fs::metadata(folder).map(|it| it.dev()) else { continue };
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        sessions_below(&sysfs.join(format!("dev/block/{major}:{minor}")), DEPTH_MAX, &mut sessions);
    }
    let connections: Vec<Connection> = entries(&sysfs.join("class/iscsi_connection")).map(Connection::read).collect();
    for session in sessions {
        let of_session = connections.iter().filter(|it| it.session == session).filter_map(|it| it.address);
        let known = targets.addresses.len();
        targets.addresses.extend(of_session);
        targets.is_unknown |= targets.addresses.len() == known;
    }
    targets.addresses.extend(connections.iter().filter_map(|it| it.address).filter(|it| *it == OCI_BOOT));
    for entry in entries(&sysfs.join("firmware/ibft")) {
        if is_named(&entry, "target") {
            targets.addresses.extend(number::<IpAddr>(&entry.join("ip-addr")));
        } else if is_named(&entry, "ethernet") {
            targets.macs.extend(number::<MacAddr>(&entry.join("mac")));
        }
    }
    targets.addresses.sort();
    targets.addresses.dedup();
    targets
}

impl BootTargets {
    /// Whether a link leads to a target: by the kernel's route, which may name a link that stands on this one.
    pub(super) fn are_behind(&self, link: &Link, links: &[Link], kernel: &mut Socket) -> bool {
        if self.is_unknown || [link.permanent_mac, link.mac].iter().flatten().any(|mac| self.macs.contains(mac)) {
            return true;
        }
        let mut leads = |address: &IpAddr| {
            let route = kernel.route_of(&RoutedPacket { by: None, from: None, to: *address });
            route.is_ok_and(|route| is_on(route.oif, link.index, links, DEPTH_MAX))
        };
        self.addresses.iter().any(&mut leads)
    }
}

/// Whether a link is another one, or stands on it (a VLAN, a bond).
pub(super) fn is_on(upper: u32, lower: u32, links: &[Link], depth: u32) -> bool {
    if upper == lower || depth == 0 {
        return upper == lower;
    }
    let is_port = |link: &Link| link.master == Some(upper);
    let own = links.iter().filter(|link| link.index == upper && link.peer_netns_id.is_none());
    let parents = own.filter_map(|link| link.parent).filter(|parent| *parent != upper);
    parents.chain(links.iter().filter(|it| is_port(it)).map(|it| it.index)).any(|it| is_on(it, lower, links, depth - 1))
}

/// An open connection of a session.
struct Connection {
    session: u32,
    address: Option<IpAddr>,
}

impl Connection {
    /// Of a folder such as `connection3:0`: session, and connection.
    fn read(folder: PathBuf) -> Self {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let session = name.strip_prefix("connection").and_then(|it| it.split(':').next()?.parse().ok());
        let address = number(&folder.join("persistent_address")).or_else(|| number(&folder.join("address")));
        Self { session: session.unwrap_or(u32::MAX), address }
    }
}

/// The sessions that carry a block device or one below it.
fn sessions_below(device: &Path, depth: u32, found: &mut Vec<u32>) {
    let Ok(path) = device.canonicalize() else { return };
    let session = |name: &str| name.strip_prefix("session").and_then(|number| number.parse::<u32>().ok());
    found.extend(path.iter().filter_map(|name| session(&name.to_string_lossy())));
    if depth == 0 {
        return;
    }
    // A partition's disk is the folder around it.
    let disk = path.parent().filter(|_| path.join("partition").exists()).unwrap_or(&path);
    for lower in entries(&disk.join("slaves")) {
        sessions_below(&lower, depth - 1, found);
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn is_named(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}

/// What a file of one line has, if it can be read.
fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A tree with sessions 1 (169.254.0.5, the disk `sda`) and 2 (169.254.2.4, `sdb`).
    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        for (session, disk, address) in [(1, "sda", "169.254.0.5"), (2, "sdb", "169.254.2.4")] {
            let folder = format!("devices/platform/host{session}/session{session}/target0:0:0/0:0:0:1/block/{disk}");
            write(root, &format!("{folder}/{disk}3/partition"), "3\n");
            fs::create_dir_all(root.join(&folder).join("slaves")).unwrap();
            write(root, &format!("class/iscsi_connection/connection{session}:0/persistent_address"), address);
        }
        tree
    }

    /// Says that the disk of a folder is another device of the tree.
    fn place(root: &Path, device: &str, folder: &Path) {
        let number = fs::metadata(folder).unwrap().dev();
        let link = format!("dev/block/{}:{}", nix::sys::stat::major(number), nix::sys::stat::minor(number));
        fs::create_dir_all(root.join("dev/block")).unwrap();
        symlink(root.join(device), root.join(link)).unwrap();
    }

    fn targets(addresses: &[&str]) -> BootTargets {
        BootTargets { addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(), ..BootTargets::default() }
    }

    #[test]
    fn session_below_the_hosts_disk_is_the_boot_target() {
        let host = tempfile::tempdir().unwrap();
        let folders = [host.path().to_owned()];
        let disk = "devices/platform/host1/session1/target0:0:0/0:0:0:1/block/sda";
        let plain = tree();
        assert_eq!(read(plain.path(), &folders), targets(&[]), "only other volumes are on iSCSI");
        let partition = tree();
        place(partition.path(), &format!("{disk}/sda3"), host.path());
        assert_eq!(read(partition.path(), &folders), targets(&["169.254.0.5"]));
        let mapped = tree();
        fs::create_dir_all(mapped.path().join("devices/virtual/block/dm-0/slaves")).unwrap();
        symlink(mapped.path().join(disk), mapped.path().join("devices/virtual/block/dm-0/slaves/sda")).unwrap();
        place(mapped.path(), "devices/virtual/block/dm-0", host.path());
        assert_eq!(read(mapped.path(), &folders), targets(&["169.254.0.5"]));
        fs::remove_dir_all(mapped.path().join("class")).unwrap();
        assert!(read(mapped.path(), &folders).is_unknown, "without an address each link could lead there");
    }

    #[test]
    fn address_of_boot_volumes_and_the_firmware_are_signs() {
        let tree = tree();
        write(tree.path(), "class/iscsi_connection/connection7:0/address", "169.254.0.2\n");
        write(tree.path(), "firmware/ibft/target0/ip-addr", "10.0.0.9\n");
        write(tree.path(), "firmware/ibft/ethernet0/mac", "02:00:17:00:00:01\n");
        write(tree.path(), "firmware/ibft/ethernet0/ip-addr", "10.0.0.5\n");
        let found = read(tree.path(), &[]);
        assert_eq!(found.addresses, targets(&["10.0.0.9", "169.254.0.2"]).addresses);
        assert_eq!(found.macs, [MacAddr([2, 0, 0x17, 0, 0, 1])]);
    }
}
