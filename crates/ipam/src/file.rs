//! State files: whole or old, never half.

use std::ffi::OsStr;
use std::fs::{self, File, rename};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;

/// Replaces `path` by `content`: temporary file in the same directory, fsync, rename, fsync of the directory.
/// The caller holds whatever lock makes it the only writer. On tmpfs the fsyncs cost nothing.
///
/// # Errors
/// Any of the system calls; `path` then holds what it held before, and the temporary file is gone.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = beside(path, "new");
    write(&temporary, content)
        .and_then(|file| file.sync_data())
        .and_then(|()| rename(&temporary, path))
        .inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// So many damaged files are kept beside a place; one more takes that of the last.
const ASIDE: usize = 8;

/// Moves a damaged file out of the way, to `….damaged` beside it, or where there is one already, which may tell more, to
/// `….damaged.2` and so on. Says where it is.
///
/// # Errors
/// When it cannot be moved.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let first = beside(path, "damaged");
    let further = (2..=ASIDE).map(|number| beside(&first, number.to_string()));
    let mut last = first.clone();
    for aside in [first.clone()].into_iter().chain(further) {
        // By a link, which replaces nothing.
        match fs::hard_link(path, &aside) {
            Ok(()) => return fs::remove_file(path).map(|()| aside),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = aside,
            // Not every file system has hard links.
            Err(_) if !aside.exists() => return rename(path, &aside).map(|()| aside),
            Err(_) => last = aside,
        }
    }
    rename(path, &last).map(|()| last)
}

/// Writes a temporary file that a rename will put in its place. It is not synced to any disk: what is written so is void
/// after a crash of the machine anyway.
///
/// # Errors
/// Any of the system calls; there is then no such file.
pub(crate) fn stage(temporary: &Path, content: &[u8]) -> io::Result<()> {
    write(temporary, content).map(drop).inspect_err(|_| drop(fs::remove_file(temporary)))
}

/// `path` with a further extension.
pub(crate) fn beside(path: &Path, extension: impl AsRef<OsStr>) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".");
    beside.push(extension);
    beside.into()
}

/// Reads a file that is only ever replaced as a whole.
///
/// # Errors
/// Any of the system calls.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path, OFlag::O_RDONLY)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or_default();
    // With room for a byte more than there is: one read that leaves it is all, and need not be repeated to be sure.
    let mut content = vec![0; length + 1];
    let read = file.read(&mut content).or_else(|error| match error.kind() {
        io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    })?;
    content.truncate(read);
    if read != length {
        file.read_to_end(&mut content)?;
    }
    Ok(content)
}

/// Opens a file; if that makes it, for nobody but us. `std` has musl call `open`, which asks the kernel a second time for what
/// O_CLOEXEC says already; `openat` does not.
///
/// # Errors
/// The kernel's.
pub(crate) fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    loop {
        match openat(AT_FDCWD, path, flags | OFlag::O_CLOEXEC, mode) {
            Err(Errno::EINTR) => {}
            opened => return Ok(opened?.into()),
        }
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = open(path, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC)?;
    file.write_all(content)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_damaged_file_is_kept_and_only_so_many_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.json");
        let aside: Vec<_> = (1..=10)
            .map(|number| {
                fs::write(&path, number.to_string()).unwrap();
                let aside = set_aside(&path).unwrap();
                assert!(!path.exists());
                (aside.file_name().unwrap().to_owned(), fs::read_to_string(aside).unwrap())
            })
            .map(|(name, text)| format!("{} {text}", name.display()))
            .collect();
        let expected = ["", ".2", ".3", ".4", ".5", ".6", ".7", ".8", ".8", ".8"];
        let expected = expected.iter().zip(1..).map(|(end, number)| format!("file.json.damaged{end} {number}"));
        assert_eq!(aside, expected.collect::<Vec<_>>());
        assert_eq!(fs::read_to_string(directory.path().join("file.json.damaged")).unwrap(), "1");
        assert_eq!(set_aside(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
