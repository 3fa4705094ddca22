//! A container's file system: an empty one with the image's files, the volumes, `/proc` and a few devices in it. It is
//! prepared while memory may be allocated and made between fork and exec.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

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

/// Everything to be made, in order.
#[derive(Debug, Default)]
pub(super) struct Root {
    read_only: bool,
    /// Below PLACE, parents first.
    directories: BTreeSet<PathBuf>,
    files: BTreeSet<PathBuf>,
    links: Vec<(PathBuf, PathBuf)>,
    binds: Vec<(PathBuf, PathBuf, bool)>,
    made: Prepared,
}

/// The same as the kernel takes it.
#[derive(Debug, Default)]
struct Prepared {
    directories: Vec<CString>,
    files: Vec<CString>,
    /// Target, then the link.
    links: Vec<(CString, CString)>,
    binds: Vec<Bind>,
    /// Of /proc, as it is seen inside.
    read_only: Vec<CString>,
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
        let mut root = Self { read_only, ..Self::default() };
        root.directory(Path::new("/proc"));
        root.directory(Path::new(TERMINALS));
        root.links.push(("pts/ptmx".into(), "/dev/ptmx".into()));
        // Of the network namespace that it is in, as runtimes mount it with the host's network.
        root.directory(Path::new("/sys"));
        root.binds.push(("/sys".into(), "/sys".into(), true));
        for device in DEVICES.map(Path::new).into_iter().filter(|device| device.exists()) {
            root.mount_file(device, device, false);
        }
        root
    }

    /// A file or a directory of the image.
    pub(super) fn file(&mut self, from: &Path, inside: &Path) -> Result<()> {
        let found = from.canonicalize();
        let found = found.map_err(|error| Error::Invalid(format!("the image has no {}: {error}", from.display())))?;
        let inside = proper(inside)?;
        if found.is_dir() {
            self.directory(inside);
            self.binds.push((found, inside.to_owned(), true));
        } else {
            self.mount_file(&found, inside, true);
        }
        Ok(())
    }

    /// The machine's libraries.
    pub(super) fn libraries(&mut self) -> Result<()> {
        for path in LIBRARIES.map(Path::new) {
            if let Ok(target) = fs::read_link(path) {
                self.parents(path);
                self.links.push((target, path.to_owned()));
            } else if path.is_dir() {
                self.directory(path);
                self.binds.push((path.to_owned(), path.to_owned(), true));
            }
        }
        Ok(())
    }

    /// A volume.
    pub(super) fn volume(&mut self, volume: &Volume) -> Result<()> {
        let inside = proper(&volume.mounted)?;
        self.directory(inside);
        self.binds.push((volume.host.clone(), inside.to_owned(), volume.read_only));
        Ok(())
    }

    /// Prepares all paths, so that [`Self::enter`] needs no memory.
    pub(super) fn finish(mut self) -> Self {
        let within = |path: &Path| text(&Path::new(PLACE).join(path.strip_prefix("/").unwrap_or(path)));
        self.made = Prepared {
            directories: self.directories.iter().map(|path| within(path)).collect(),
            files: self.files.iter().map(|path| within(path)).collect(),
            links: self.links.iter().map(|(target, path)| (text(target), within(path))).collect(),
            binds: self
                .binds
                .iter()
                .map(|(from, to, read_only)| Bind { from: text(from), to: within(to), read_only: *read_only })
                .collect(),
            read_only: READ_ONLY.iter().map(|path| within(Path::new(path))).collect(),
            place: text(Path::new(PLACE)),
            proc: within(Path::new("/proc")),
            terminals: within(Path::new(TERMINALS)),
        };
        self
    }

    /// Makes it, in a mount namespace of its own, and enters. Only system calls.
    pub(super) fn enter(&self) -> io::Result<()> {
        let Prepared { directories, files, links, binds, read_only, place, proc, terminals } = &self.made;
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
        for path in read_only {
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

    fn mount_file(&mut self, from: &Path, inside: &Path, read_only: bool) {
        self.parents(inside);
        self.files.insert(inside.to_owned());
        self.binds.push((from.to_owned(), inside.to_owned(), read_only));
    }

    fn directory(&mut self, path: &Path) {
        self.parents(path);
        self.directories.insert(path.to_owned());
    }

    fn parents(&mut self, path: &Path) {
        let above = path.ancestors().skip(1).filter(|path| path.parent().is_some());
        self.directories.extend(above.map(Path::to_owned));
    }
}

/// A path that stays in a container.
fn proper(path: &Path) -> Result<&Path> {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    match path.is_absolute() && plain {
        true => Ok(path),
        false => Err(Error::Invalid(format!("{} is no path in a container", path.display()))),
    }
}

fn text(path: &Path) -> CString {
    // A path with a NUL byte becomes an empty one, which the kernel refuses.
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}
