//! Kernel settings under `/proc/sys`. A key is a path, as `net/ipv4/conf/eth0.100/rp_filter`: links' names may have dots.
//!
//! Settings below `net` are those of the calling thread's network namespace: use [`crate::Netns::run`] for another's.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;

use crate::error::{Cause, Result};

/// The settings below a folder that is /proc/sys.
#[derive(Clone, Debug)]
pub struct Sysctls {
    root: PathBuf,
}

impl Default for Sysctls {
    fn default() -> Self {
        Self::new(Path::new("/proc/sys"))
    }
}

impl Sysctls {
    /// The tree at a path: in a container `/proc/sys` is read-only, and a writable one is mounted elsewhere.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// A setting's value, without the closing newline.
    ///
    /// # Errors
    /// `is_not_found()` when the kernel has no such setting (IPv6 switched off, a link that is gone).
    pub fn read(&self, key: &str) -> Result<String> {
        self.read_cause(key).map_err(|cause| cause.during("read sysctl", key))
    }

    /// Sets a value, unless it is set already. Says whether it was changed.
    ///
    /// # Errors
    /// As [`Sysctls::read`]; and when the value is not acceptable or the tree is read-only.
    pub fn write(&self, key: &str, value: &str) -> Result<bool> {
        let write = || -> Result<bool, Cause> {
            if self.read_cause(key)? == value {
                return Ok(false);
            }
            // Nothing would be written of an empty value, such as a list without entries.
            std::fs::write(self.path(key)?, if value.is_empty() { "\n" } else { value })?;
            Ok(true)
        };
        write().map_err(|cause| cause.during("write sysctl", key))
    }

    /// Sets a value without looking at it first, for what is surely another one: a third of the system calls.
    ///
    /// # Errors
    /// As [`Sysctls::write`]. If it cannot be written and has the value already, this succeeds.
    pub fn overwrite(&self, key: &str, value: &str) -> Result<()> {
        let overwrite = || -> Result<(), Cause> {
            // Not the standard library's: with musl that sets O_CLOEXEC twice.
            let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
            let file = openat(AT_FDCWD, &self.path(key)?, flags, Mode::empty())?;
            Ok(File::from(file).write_all(value.as_bytes())?)
        };
        overwrite().or_else(|_| self.write(key, value).map(|_changed| ()))
    }

    fn read_cause(&self, key: &str) -> Result<String, Cause> {
        let mut value = std::fs::read_to_string(self.path(key)?)?;
        value.truncate(value.trim_end_matches('\n').len());
        Ok(value)
    }

    fn path(&self, key: &str) -> Result<PathBuf, Cause> {
        match key.split('/').any(|component| matches!(component, "" | "." | "..")) {
            true => Err(Cause::Invalid("a component of the key is not a file name")),
            false => Ok(self.root.join(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_leave_the_tree() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("secret"), "1").unwrap();
        let sysctls = Sysctls::new(&tree.path().join("sys"));
        for key in ["../secret", "/secret", "x//y", "."] {
            assert!(matches!(sysctls.read(key).unwrap_err().cause(), Cause::Invalid(_)), "{key:?}");
        }
    }

    #[test]
    fn a_value_is_written_once() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("x.y"), "0\n").unwrap();
        let sysctls = Sysctls::new(tree.path());
        assert!(sysctls.write("x.y", "1").unwrap());
        assert!(!sysctls.write("x.y", "1").unwrap());
        assert!(sysctls.read("x").unwrap_err().is_not_found());
        sysctls.overwrite("x.y", "2").unwrap();
        assert_eq!(sysctls.read("x.y").unwrap(), "2");
        assert!(sysctls.overwrite("x", "2").unwrap_err().is_not_found(), "none is made");
    }
}
