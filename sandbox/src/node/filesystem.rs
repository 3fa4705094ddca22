//! A node's files: the machine's own, with empty directories where programs keep state.
//!
//! `/run`, `/var/lib`, `/opt` and `/etc` are new (tmpfs), so that programs run with their default paths and two nodes
//! share nothing; `/sys` shows the node's own links. Everything else is the machine's.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use nix::unistd::sethostname;

use crate::error::{ErrorContext, Result};
use crate::fabric::SERVICES_V4;
use crate::node::seal;
use crate::services::DOMAIN;

/// New and empty. `/opt` gets the machine's other folders back, since tools may be there.
const FRESH: [&str; 4] = ["/run", "/var/lib", "/opt", "/etc"];

/// The entries of `/etc` that programs need: copied.
const COPIED: [&str; 12] = [
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "passwd",
    "group",
    "nsswitch.conf",
    "protocols",
    "services",
    "iproute2",
    "os-release",
    "localtime",
    "ethertypes",
];

/// Entries too large to copy: bind-mounted read-only.
const SHOWN: [&str; 4] = ["/etc/alternatives", "/etc/ssl", "/etc/pki", "/etc/crypto-policies"];

/// Prepares the calling thread's (private) mount namespace.
pub(crate) fn prepare(node: &str, addresses: &[IpAddr]) -> Result<()> {
    let operation = |what: &str| format!("prepare {what} of {node}");
    let etc = read_tree(Path::new("/etc"), &COPIED).during(|| operation("/etc"))?;
    let shown: Vec<_> = SHOWN.iter().map(PathBuf::from).chain(others_in_opt()).collect();
    let shown: Vec<_> = shown.into_iter().filter_map(|path| Some((hold(&path)?, path))).collect();
    let cgroups = hold(Path::new("/sys/fs/cgroup"));
    for place in FRESH {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("sandbox"), place, Some("tmpfs"), flags, Some("mode=0755")).during(|| operation(place))?;
    }
    for (path, entry) in etc {
        write_entry(&path, entry).during(|| operation("/etc"))?;
    }
    for (held, path) in shown {
        show(&held, &path).during(|| format!("show {} to {node}", path.display()))?;
    }
    for folder in ["/run/netns", "/etc/cni/net.d", "/opt/cni/bin", "/run/lock"] {
        fs::create_dir_all(folder).during(|| operation(folder))?;
    }
    fs::write("/etc/hosts", hosts(node, addresses)).during(|| operation("/etc/hosts"))?;
    fs::write("/etc/resolv.conf", format!("search {DOMAIN}\nnameserver {SERVICES_V4}\n"))
        .during(|| operation("/etc/resolv.conf"))?;
    fs::write("/etc/hostname", format!("{node}\n")).during(|| operation("/etc/hostname"))?;
    sethostname(node).during(|| operation("the host name"))?;
    own_sysfs(cgroups);
    Ok(())
}

/// Mounts the node's own `/sys`. The kernel refuses that in a user namespace whose `/sys` is partly hidden (containers); then
/// the machine's stays, and only programs that read links there are misled.
fn own_sysfs(cgroups: Option<OwnedFd>) {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if let Err(error) = mount(Some("sysfs"), "/sys", Some("sysfs"), flags, None::<&str>) {
        tracing::debug!(%error, "no sysfs of the node's own");
        return;
    }
    if let Some(cgroups) = cgroups {
        let source = descriptor_path(&cgroups);
        // Only container runtimes need it.
        let _ = mount(Some(&source), "/sys/fs/cgroup", None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>);
    }
}

enum Entry {
    Directory,
    File(Vec<u8>),
    Link(PathBuf),
}

/// Reads files and folders below `root`; absent or unreadable ones are left out.
fn read_tree(root: &Path, names: &[&str]) -> io::Result<Vec<(PathBuf, Entry)>> {
    let mut waiting: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_symlink() {
            found.push((path.clone(), Entry::Link(fs::read_link(&path)?)));
        } else if metadata.is_dir() {
            found.push((path.clone(), Entry::Directory));
            for entry in fs::read_dir(&path)? {
                waiting.push(entry?.path());
            }
        } else if let Ok(content) = fs::read(&path) {
            found.push((path, Entry::File(content)));
        }
    }
    Ok(found)
}

fn write_entry(path: &Path, entry: Entry) -> io::Result<()> {
    match entry {
        Entry::Directory => fs::create_dir_all(path),
        Entry::File(content) => fs::write(path, content),
        Entry::Link(target) => symlink(target, path),
    }
}

fn others_in_opt() -> Vec<PathBuf> {
    let entries = fs::read_dir("/opt").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.ends_with("cni")).collect()
}

/// Holds a folder, so that it can be mounted after its place was covered.
fn hold(path: &Path) -> Option<OwnedFd> {
    open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).ok()
}

fn descriptor_path(held: &OwnedFd) -> PathBuf {
    // `thread-self`: the descriptor is this thread's, whatever the process's main thread is doing.
    PathBuf::from(format!("/proc/thread-self/fd/{}", held.as_raw_fd()))
}

/// Mounts a held folder at a path, read-only: a program under test must not change the machine.
fn show(held: &OwnedFd, path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(&descriptor_path(held)), path, None::<&str>, bind, None::<&str>)?;
    Ok(seal(path)?)
}

fn hosts(node: &str, addresses: &[IpAddr]) -> String {
    let own = addresses.iter().map(|address| format!("{address} {node}.{DOMAIN} {node}\n"));
    ["127.0.0.1 localhost\n::1 localhost\n".to_owned()].into_iter().chain(own).collect()
}
