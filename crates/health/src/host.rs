//! The node as collectors see it: folders instead of fixed paths, so that a recorded node is one more folder. All reads are
//! bounded.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::facts::Facts;
use crate::open::{FinalLink, open};
use crate::signal::Gap;
use crate::system::System;

/// More than any file that collectors read: /proc/net/softnet_stat of 512 CPUs takes 90 KiB.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where the node's files are, and what else is known about it.
#[derive(Clone)]
pub struct Host {
    /// The folder that is the host's /proc.
    pub proc: PathBuf,
    /// The folder that is the host's /sys.
    pub sys: PathBuf,
    /// Its file system: in a container, only what is mounted from the host is below it.
    pub root: PathBuf,
    /// What the agent knows.
    pub facts: Arc<Facts>,
    /// Kernel calls and loopback requests.
    pub system: Arc<dyn System>,
    /// The time of this run.
    pub now: Instant,
}

/// Whether a link receives a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The link has a carrier.
    Present,
    /// It is up and does not.
    Absent,
    /// It is switched off on this host, which leaves the question open.
    AdministrativelyDown,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("proc", &self.proc).field("root", &self.root).finish_non_exhaustive()
    }
}

impl Host {
    /// A file below /proc.
    ///
    /// # Errors
    /// [`Gap::Unknown`] with the path and the cause.
    pub fn proc(&self, path: &str) -> Result<String, Gap> {
        text(&self.proc.join(path))
    }

    /// A file below /proc; none where the kernel has none.
    ///
    /// # Errors
    /// [`Gap::Unknown`] where it is there and cannot be read.
    pub fn proc_if_present(&self, path: &str) -> Result<Option<String>, Gap> {
        let path = self.proc.join(path);
        match read(&path) {
            Ok(text) => Ok(Some(text)),
            // /proc/pressure is there and closed on a kernel that runs without it.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Ok(None)
            }
            Err(error) => Err(gap(&path, &error)),
        }
    }

    /// A file below /sys.
    ///
    /// # Errors
    /// [`Gap::Unknown`] with the path and the cause.
    pub fn sys(&self, path: &str) -> Result<String, Gap> {
        text(&self.sys.join(path))
    }

    /// The first bytes of a file below /sys.
    ///
    /// # Errors
    /// As the kernel answers.
    pub fn sys_start(&self, path: &str, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.sys.join(path))?.take(count).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// MemTotal in MiB, which is the kubelet's capacity.
    ///
    /// # Errors
    /// [`Gap::Unknown`] with the cause.
    pub fn total_memory(&self) -> Result<f64, Gap> {
        let text = self.proc("meminfo")?;
        let number = |line: &str| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok();
        let kib = text.lines().find_map(number);
        kib.map(|kib| kib / 1024.0).ok_or_else(|| Gap::unknown("no MemTotal in /proc/meminfo"))
    }

    /// Whether a link receives a signal.
    ///
    /// # Errors
    /// [`Gap::Unknown`] with the path and the cause: a link that is gone has no such file.
    pub fn carrier(&self, link: &str) -> Result<Carrier, Gap> {
        let path = self.sys.join("class/net").join(link).join("carrier");
        match read(&path) {
            Ok(text) if text.trim() == "0" => Ok(Carrier::Absent),
            Ok(_) => Ok(Carrier::Present),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(Carrier::AdministrativelyDown),
            Err(error) => Err(gap(&path, &error)),
        }
    }

    /// A file of the host.
    ///
    /// # Errors
    /// [`Gap::Unknown`] with the path and the cause.
    pub fn file(&self, path: &str) -> Result<String, Gap> {
        text(&self.root.join(path))
    }

    /// A file below /proc that holds one number.
    ///
    /// # Errors
    /// [`Gap::Unknown`] with the path and the cause.
    pub fn proc_number(&self, path: &str) -> Result<f64, Gap> {
        number(&self.proc(path)?, path)
    }

    /// A file below /sys that holds one number.
    ///
    /// # Errors
    /// [`Gap::Unknown`] with the path and the cause.
    pub fn sys_number(&self, path: &str) -> Result<f64, Gap> {
        number(&self.sys(path)?, path)
    }

    /// Whether something is there. A path that cannot be examined counts as absent.
    pub fn has(&self, path: &str) -> bool {
        self.root.join(path).symlink_metadata().is_ok()
    }

    /// The names in a folder of the host, sorted; none where it cannot be read.
    pub fn names(&self, path: &str) -> Vec<String> {
        names(&self.root.join(path))
    }
}

/// The names in a folder, sorted; none where it cannot be read.
pub(crate) fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

fn text(path: &Path) -> Result<String, Gap> {
    read(path).map_err(|error| gap(path, &error))
}

fn gap(path: &Path, error: &io::Error) -> Gap {
    match error.kind() {
        io::ErrorKind::NotFound => Gap::unknown(format!("{} is missing on the host or not mounted", path.display())),
        _ => Gap::unknown(format!("read {}: {error}", path.display())),
    }
}

fn read(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&read_regular(path)?).into_owned())
}

/// The bytes of a regular file, as those below /proc and /sys are; a pipe would wait for a writer.
pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path, FinalLink::Follow)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn number(text: &str, path: &str) -> Result<f64, Gap> {
    text.trim().parse().map_err(|_| Gap::unknown(format!("{path} holds no number: {:.40}", text.trim())))
}
