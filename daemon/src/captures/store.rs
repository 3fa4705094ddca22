//! The folder of captures: one folder for each, which only root may look into. It is emptied when the agent starts.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use api::capture::UNIT_LOG_BYTES_MAX;
use nix::libc;

/// Makes the folder if it is missing, and removes all in it.
pub(crate) fn clear(base: &Path) -> io::Result<()> {
    match fs::symlink_metadata(base) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => fs::remove_file(base)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if !base.exists() {
        DirBuilder::new().mode(0o700).create(base)?;
    }
    fs::set_permissions(base, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(base)? {
        let path = entry?.path();
        let is_folder = fs::symlink_metadata(&path)?.is_dir();
        if is_folder { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    Ok(())
}

/// The files of one capture.
#[derive(Clone, Debug)]
pub(super) struct CaptureFolder(PathBuf);

impl CaptureFolder {
    /// Creates it, with a folder for logs.
    pub(super) fn create(base: &Path, uid: &str, has_logs: bool) -> io::Result<Self> {
        let folder = Self(base.join(uid));
        DirBuilder::new().mode(0o700).create(&folder.0)?;
        if has_logs {
            DirBuilder::new().mode(0o700).create(folder.logs())?;
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn state(&self) -> PathBuf {
        self.0.join("state.tar")
    }

    pub(super) fn packets(&self) -> PathBuf {
        self.0.join("packets.pcap")
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    /// Opens a log, and returns its size.
    pub(super) fn unit_log(&self, unit: &str) -> io::Result<(File, u64)> {
        open(&self.logs().join(format!("{unit}.log")), UNIT_LOG_BYTES_MAX)
    }

    /// Removes it. Files that are being sent go when they are sent.
    pub(super) fn remove(&self) {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(event = "capture.not_removed", path = %self.0.display(), %error, "removed at the next start");
            }
            _ => {}
        }
    }
}

/// Creates a private file.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a regular file of bounded size.
pub(super) fn open(path: &Path, bytes_max: u64) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file of a valid size"));
    }
    Ok((file, found.len()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn clear_removes_all_and_follows_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let (base, other) = (directory.path().join("captures"), directory.path().join("other"));
        fs::create_dir_all(base.join("uid/logs")).unwrap();
        fs::write(base.join("uid/packets.pcap"), "x").unwrap();
        fs::write(&other, "stays").unwrap();
        symlink(directory.path(), base.join("link")).unwrap();
        symlink(&other, base.join("file")).unwrap();
        clear(&base).unwrap();
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
        assert_eq!(fs::metadata(&base).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_to_string(&other).unwrap(), "stays");
        fs::remove_dir(&base).unwrap();
        symlink(directory.path(), &base).unwrap();
        clear(&base).unwrap();
        assert!(!base.is_symlink() && other.exists());
    }
}
