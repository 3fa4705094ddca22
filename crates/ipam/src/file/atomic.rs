//! Replaces a file as a whole: temporary file in the same directory, fsync, rename, fsync of the directory.

use std::fs::{self, File, Permissions, rename};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{STATE_MODE, beside, create};

/// New content for a file. Readers see it only after [`AtomicFile::commit`], and then all of it. Until then it is a temporary
/// file that its owner alone can read; dropping the value removes it.
#[derive(Debug)]
pub struct AtomicFile {
    /// `None` once it is closed.
    file: Option<File>,
    /// Empty once it is renamed.
    temporary: PathBuf,
    target: PathBuf,
    mode: u32,
}

impl AtomicFile {
    /// Creates the temporary file `<target>.new`. The caller holds the lock that makes it the only writer: a file of that
    /// name, left by a killed process, is replaced. The target gets `mode`, whatever the umask.
    ///
    /// # Errors
    /// Any of the system calls.
    pub fn create(target: &Path, mode: u32) -> io::Result<Self> {
        Self::create_as(target, beside(target, "new"), mode)
    }

    /// The same with a temporary name of the caller's choice, in the directory of the target.
    ///
    /// # Errors
    /// Any of the system calls.
    pub fn create_as(target: &Path, temporary: PathBuf, mode: u32) -> io::Result<Self> {
        let file = Some(create(&temporary, STATE_MODE)?);
        Ok(Self { file, temporary, target: target.to_path_buf(), mode })
    }

    /// Flushes the content to disk and closes the file: a program that is open for writing cannot be executed (ETXTBSY).
    /// A caller that reads the content back before the commit finds it at the path that this returns.
    ///
    /// # Errors
    /// Any of the system calls.
    pub fn close(&mut self) -> io::Result<&Path> {
        if let Some(file) = self.file.take() {
            file.set_permissions(Permissions::from_mode(self.mode))?;
            file.sync_all()?;
        }
        Ok(&self.temporary)
    }

    /// Closes the file, replaces the target by it and flushes the directory to disk.
    ///
    /// # Errors
    /// Any of the system calls. The target is then unchanged, unless only the last of them, the flush of the directory, failed.
    pub fn commit(mut self) -> io::Result<()> {
        self.close()?;
        rename(&self.temporary, &self.target)?;
        self.temporary.clear();
        let directory = self.target.parent().filter(|directory| !directory.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.temporary.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Replaces the state file `path` by `content`. The caller holds the lock that makes it the only writer.
///
/// # Errors
/// As [`AtomicFile::create`] and [`AtomicFile::commit`].
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = AtomicFile::create(path, STATE_MODE)?;
    file.write_all(content)?;
    file.commit()
}
