//! The directories that the agent works in, as they were when it started. In a container, each is a mount of a directory of the
//! host. If a program removes that directory, or moves it away and makes another, the mount stays with the old one. What is
//! written is then not seen on the host, and only a restarted container sees the new one. The same applies to the lock and the
//! sockets that the agent made in such a directory. Without them it cannot be reached, and another agent would take it for
//! ended.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::facts::reconcile_report::Cause;
use crate::settings::{AGENT_LOCK, AGENT_SOCKET, Settings};

/// Of this process's mounts, a line each (proc_pid_mountinfo(5)).
const MOUNTS: &str = "/proc/self/mountinfo";

/// What the agent makes in the state directory when it starts, and never again.
const MADE_ONCE: [&str; 3] = [AGENT_LOCK, AGENT_SOCKET, telemetry::SOCKET];

/// Those that were there.
#[derive(Debug)]
pub(crate) struct Directories {
    begun: Vec<WatchedDirectory>,
}

#[derive(Debug)]
struct WatchedDirectory {
    path: PathBuf,
    identity: (u64, u64),
    /// Where it is in its file system, if it is a mount.
    root: Option<String>,
}

impl Directories {
    /// As they are now; what is not there is not missed.
    pub(crate) fn of(settings: &Settings) -> Self {
        let installer = &settings.installer;
        let mounts = mounts();
        let begun = |path: &PathBuf| {
            Some(WatchedDirectory {
                path: path.clone(),
                identity: identity(path)?,
                root: root(&mounts, path).map(str::to_owned),
            })
        };
        let all = [&settings.state_dir, &settings.data_dir, &installer.cni_bin_dir, &installer.cni_conf_dir];
        let made = MADE_ONCE.map(|name| settings.state_dir.join(name));
        Self { begun: all.into_iter().chain(&made).filter_map(begun).collect() }
    }

    /// One that was removed or moved away, or that another has taken the place of. One that was moved is not looked for at
    /// every event of the kernel's: reading all mounts takes as long as all the rest of the check.
    pub(crate) fn lost(&self, cause: Cause) -> Option<&Path> {
        let gone = self.begun.iter().find(|begun| identity(&begun.path) != Some(begun.identity));
        let moved = || {
            let mounts = mounts();
            // Mounts that cannot be read say nothing.
            self.begun.iter().find(|begun| {
                let now = root(&mounts, &begun.path);
                now.is_some() && begun.root.is_some() && now != begun.root.as_deref()
            })
        };
        let lost = gone.or_else(|| if cause == Cause::Kernel { None } else { moved() });
        lost.map(|begun| begun.path.as_path())
    }
}

/// Makes a directory that only root may look into, and those above it. One that is there and in use stays as it is.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        // Fresh from the kubelet, which makes a volume's directory readable for all users.
        return match fs::read_dir(path)?.next() {
            None => fs::set_permissions(path, Permissions::from_mode(0o700)),
            Some(_) => Ok(()),
        };
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Which directory this is; `None` where there is none, or it is a removed one that a program keeps open.
fn identity(directory: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(directory).ok().filter(|found| found.nlink() > 0)?;
    Some((found.dev(), found.ino()))
}

fn mounts() -> String {
    fs::read_to_string(MOUNTS).unwrap_or_default()
}

/// Where in its file system a mount's directory is: of several at one place the last, which covers the others. The kernel
/// writes the path as it is now, wherever it was moved to.
fn root<'a>(mounts: &'a str, directory: &Path) -> Option<&'a str> {
    let directory = directory.to_str()?;
    let of = |line: &'a str| {
        let mut fields = line.split(' ').skip(3);
        let root = fields.next()?;
        (fields.next()? == directory).then_some(root)
    };
    mounts.lines().filter_map(of).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
400 300 0:52 / / rw,relatime - overlay overlay rw
401 400 259:1 /etc/cni/net.d /etc/cni/net.d rw,relatime - ext4 /dev/root rw
402 400 259:1 /opt/cni/bin /opt/cni/bin rw,relatime master:1 - ext4 /dev/root rw
";

    #[test]
    fn mount_is_found_by_mount_point_and_last_one_wins() {
        let mounts = format!("{BEFORE}403 401 0:61 /over /etc/cni/net.d rw - tmpfs tmpfs rw\nhalf a li");
        assert_eq!(root(&mounts, Path::new("/opt/cni/bin")), Some("/opt/cni/bin"));
        assert_eq!(root(&mounts, Path::new("/etc/cni/net.d")), Some("/over"));
        assert_eq!(root(&mounts, Path::new("/etc/cni")), None);
    }

    #[test]
    fn plain_directory_is_lost_when_another_replaces_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("net.d");
        fs::create_dir(&path).unwrap();
        let identity = identity(&path).unwrap();
        let directories = Directories { begun: vec![WatchedDirectory { path: path.clone(), identity, root: None }] };
        assert_eq!(directories.lost(Cause::Timer), None);
        fs::write(path.join("10-a.conf"), "").unwrap();
        assert_eq!(directories.lost(Cause::Timer), None, "what is in it does not count");
        fs::rename(&path, directory.path().join("before")).unwrap();
        assert_eq!(directories.lost(Cause::Kernel), Some(path.as_path()));
        fs::create_dir(&path).unwrap();
        assert_eq!(directories.lost(Cause::Kernel), Some(path.as_path()));
    }
}
