//! A container's file system: an empty one with the image's files, the volumes, `/proc` and a few devices in it. It is
//! prepared while memory may be allocated and made between fork and exec.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{chdir, pivot_root, symlinkat};

use super::Volume;
use crate::error::{Error, Result};
use crate::node::seal;

/// Where it is made, before it becomes `/`: a directory that every machine has and from which nothing is mounted.
const PLACE: &str = "/mnt";

/// What runc makes read-only of /proc.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Where it has terminals of its own.
const TERMINALS: &str = "/dev/pts";

/// Where the loader and the libraries of programs are that are not static.
const LIBRARIES: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];

/// Everything to be made, as the kernel takes it: [`Self::enter`] needs no memory.
#[derive(Debug)]
pub(super) struct Root {
    read_only: bool,
    /// Below PLACE, parents first.
    directories: BTreeSet<CString>,
    files: BTreeSet<CString>,
    /// Target, then the link.
    links: Vec<(CString, CString)>,
    binds: Vec<Bind>,
    /// Of /proc, as it is seen inside.
    sealed: Vec<CString>,
    place: CString,
    proc: CString,
    terminals: CString,
}

#[derive(Debug)]
struct Bind {
    from: CString,
    to: CString,
    read_only: bool,
}

impl Root {
    pub(super) fn new(read_only: bool) -> Self {
        let mut root = Self {
            read_only,
            directories: BTreeSet::new(),
            files: BTreeSet::new(),
            links: vec![(c"pts/ptmx".to_owned(), within("/dev/ptmx"))],
            binds: Vec::new(),
            sealed: READ_ONLY.map(within).to_vec(),
            place: text(PLACE),
            proc: within("/proc"),
            terminals: within(TERMINALS),
        };
        root.directory(Path::new("/proc"));
        root.directory(Path::new(TERMINALS));
        // Of the network namespace that it is in, as runtimes mount it with the host's network.
        root.mount(Path::new("/sys"), Path::new("/sys"), true);
        for device in DEVICES.map(Path::new).into_iter().filter(|device| device.exists()) {
            root.mount(device, device, false);
        }
        root
    }

    /// A file or a directory of the image.
    pub(super) fn file(&mut self, from: &Path, inside: &Path) -> Result<()> {
        let found = from.canonicalize();
        let found = found.map_err(|error| Error::Invalid(format!("the image has no {}: {error}", from.display())))?;
        self.mount(&found, proper(inside)?, true);
        Ok(())
    }

    pub(super) fn libraries(&mut self) {
        for path in LIBRARIES.map(Path::new) {
            if let Ok(target) = fs::read_link(path) {
                self.parents(path);
                self.links.push((text(target), within(path)));
            } else if path.is_dir() {
                self.mount(path, path, true);
            }
        }
    }

    pub(super) fn volume(&mut self, volume: &Volume) -> Result<()> {
        self.mount(&volume.host, proper(&volume.mounted)?, volume.read_only);
        Ok(())
    }

    /// Makes it, in a mount namespace of its own, and enters. Only system calls.
    pub(super) fn enter(&self) -> io::Result<()> {
        let Self { directories, files, links, binds, sealed, place, proc, terminals, .. } = self;
        let none = None::<&std::ffi::CStr>;
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(none, c"/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(Some(c"container"), place.as_c_str(), Some(c"tmpfs"), MsFlags::MS_NODEV, Some(c"mode=0755"))?;
        for directory in directories {
            mkdirat(AT_FDCWD, directory.as_c_str(), Mode::from_bits_truncate(0o755))?;
        }
        for file in files {
            open(file.as_c_str(), OFlag::O_CREAT | OFlag::O_CLOEXEC, Mode::from_bits_truncate(0o644))?;
        }
        for (target, link) in links {
            symlinkat(target.as_c_str(), AT_FDCWD, link.as_c_str())?;
        }
        for Bind { from, to, read_only } in binds {
            let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(from.as_c_str()), to.as_c_str(), none, bind, none)?;
            if *read_only {
                seal(to.as_c_str())?;
            }
        }
        let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some(c"proc"), proc.as_c_str(), Some(c"proc"), safe, none)?;
        let own = Some(c"newinstance,ptmxmode=0666,mode=0620");
        mount(Some(c"devpts"), terminals.as_c_str(), Some(c"devpts"), MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, own)?;
        for path in sealed {
            match mount(Some(path.as_c_str()), path.as_c_str(), none, MsFlags::MS_BIND, none) {
                Ok(()) => seal(path.as_c_str())?,
                // Not every kernel has all of them.
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if self.read_only {
            mount(none, place.as_c_str(), none, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NODEV, none)?;
        }
        // The old root is put on top of the new one and taken away from there.
        chdir(place.as_c_str())?;
        pivot_root(c".", c".")?;
        umount2(c".", MntFlags::MNT_DETACH)?;
        chdir(c"/")?;
        Ok(())
    }

    fn mount(&mut self, from: &Path, inside: &Path, read_only: bool) {
        if from.is_dir() {
            self.directory(inside);
        } else {
            self.parents(inside);
            self.files.insert(within(inside));
        }
        self.binds.push(Bind { from: text(from), to: within(inside), read_only });
    }

    fn directory(&mut self, path: &Path) {
        self.parents(path);
        self.directories.insert(within(path));
    }

    fn parents(&mut self, path: &Path) {
        let above = path.ancestors().skip(1).filter(|path| path.parent().is_some());
        self.directories.extend(above.map(within));
    }
}

/// A path that stays in a container.
fn proper(path: &Path) -> Result<&Path> {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    match path.is_absolute() && plain {
        true => Ok(path),
        false => Err(Error::Invalid(format!("{} is not a path in a container", path.display()))),
    }
}

fn within(path: impl AsRef<Path>) -> CString {
    text(format!("{PLACE}{}", path.as_ref().display()))
}

fn text(path: impl AsRef<Path>) -> CString {
    // A path with a NUL byte becomes an empty one, which the kernel refuses.
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap_or_default()
}
