//! State files: whole or old, never half. No link in the place of one is followed, nothing but a regular file is read, and not
//! more of it than there can be.

use std::ffi::OsStr;
use std::fs::{self, File, rename};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;

/// The largest state file that is read, in bytes. The largest that there can be is pools.json: the API server takes a
/// NativePodNetwork of 1.5 MiB at most (etcd's limit), and its addresses, one a line, need less than four times that.
pub const LONGEST: u64 = 8 << 20;

/// Of state files: root's alone.
const MODE: u32 = 0o600;

const NOT_REGULAR: &str = "it is a pipe, a socket or a device, not a regular file";

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

/// Reads a state file of at most [`LONGEST`] bytes, which is only ever replaced as a whole.
///
/// # Errors
/// Of kind `InvalidData` where a link, a pipe, a device or a larger file is in its place; else any of the system calls.
pub fn read_state(path: &Path) -> io::Result<Vec<u8>> {
    rest(open(path, OFlag::O_RDONLY)?)
}

/// Reads a file that the operator named, as [`read_state`] does, and through links: a ConfigMap's files are links.
///
/// # Errors
/// As [`read_state`].
pub fn read_named(path: &Path) -> io::Result<Vec<u8>> {
    rest(File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?)
}

fn rest(mut file: File) -> io::Result<Vec<u8>> {
    let found = file.metadata()?;
    // A directory says so itself when it is read.
    if !(found.is_file() || found.is_dir()) {
        return Err(unusable(NOT_REGULAR));
    }
    let too_large = |bytes: u64| unusable(format!("it has {bytes} bytes, and at most {LONGEST} are read"));
    if found.len() > LONGEST {
        return Err(too_large(found.len()));
    }
    let length = usize::try_from(found.len()).unwrap_or_default();
    // With room for a byte more than there is: one read that leaves it is all, and need not be repeated to be sure.
    let mut content = vec![0; length + 1];
    let read = file.read(&mut content).or_else(|error| match error.kind() {
        io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    })?;
    content.truncate(read);
    if read != length {
        // It grew meanwhile.
        file.take(LONGEST).read_to_end(&mut content)?;
        if content.len() as u64 > LONGEST {
            return Err(too_large(content.len() as u64));
        }
    }
    Ok(content)
}

/// Creates a file, and no other is changed by it: a link in its place is not followed, and what a killed process left there is
/// removed.
///
/// # Errors
/// Any of the system calls.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let create = || open_with(path, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, mode);
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create()
        }
        created => created,
    }
}

/// Opens a file; a new one is readable by its owner alone. It follows no link and waits for no pipe. By `openat`: with musl,
/// `std` calls `open`, which makes a second system call for O_CLOEXEC.
///
/// # Errors
/// The kernel's.
pub(crate) fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    open_with(path, flags, MODE)
}

fn open_with(path: &Path, flags: OFlag, mode: u32) -> io::Result<File> {
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    loop {
        match openat(AT_FDCWD, path, flags, Mode::from_bits_truncate(mode)) {
            Err(Errno::EINTR) => {}
            Err(Errno::ELOOP) => return Err(unusable("it is a symbolic link, which is not followed")),
            Err(Errno::ENXIO) => return Err(unusable(NOT_REGULAR)),
            opened => return Ok(opened?.into()),
        }
    }
}

fn unusable(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn write(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = create(path, MODE)?;
    file.write_all(content)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn read_refuses_what_is_no_regular_file_or_too_large() {
        let directory = tempfile::tempdir().unwrap();
        let (path, outside) = (directory.path().join("file.json"), directory.path().join("outside"));
        fs::write(&outside, "{}").unwrap();
        let pipe = || mkfifo(&path, Mode::S_IRWXU).unwrap();
        let link = || symlink(&outside, &path).unwrap();
        let socket = || drop(UnixListener::bind(&path).unwrap());
        let huge = || File::create(&path).unwrap().set_len(3 << 30).unwrap();
        let cases: [(&dyn Fn(), &str); 4] = [
            (&pipe, "it is a pipe, a socket or a device, not a regular file"),
            (&link, "it is a symbolic link, which is not followed"),
            (&socket, "it is a pipe, a socket or a device, not a regular file"),
            (&huge, "it has 3221225472 bytes, and at most 8388608 are read"),
        ];
        for (plant, said) in cases {
            plant();
            let error = read_state(&path).unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::InvalidData, said));
            fs::remove_file(&path).unwrap();
        }
        File::create(&path).unwrap().set_len(LONGEST).unwrap();
        assert_eq!(read_state(&path).unwrap().len() as u64, LONGEST);
        link_to(&path, &outside);
        assert_eq!(read_named(&path).unwrap(), b"{}");
        link_to(&path, Path::new("/dev/zero"));
        assert_eq!(read_named(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    fn link_to(path: &Path, to: &Path) {
        let _ = fs::remove_file(path);
        symlink(to, path).unwrap();
    }

    #[test]
    fn write_follows_no_planted_link_and_waits_for_no_pipe() {
        let directory = tempfile::tempdir().unwrap();
        let (path, outside) = (directory.path().join("file.json"), directory.path().join("outside"));
        let new = beside(&path, "new");
        fs::write(&outside, "theirs").unwrap();
        for place in [&new, &path] {
            for to in [outside.as_path(), &directory.path().join("nothing")] {
                link_to(place, to);
                write_atomically(&path, b"ours").unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"ours");
                assert!(path.symlink_metadata().unwrap().is_file() && !new.exists());
                assert!(fs::read(&outside).unwrap() == b"theirs" && !directory.path().join("nothing").exists());
            }
            fs::remove_file(&path).unwrap();
            mkfifo(place, Mode::S_IRWXU).unwrap();
            write_atomically(&path, b"ours").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"ours");
        }
        // A lock's file, say.
        let locked = |path: &Path| open(path, OFlag::O_WRONLY | OFlag::O_CREAT).unwrap_err().to_string();
        link_to(&path, &directory.path().join("nothing"));
        assert_eq!(locked(&path), "it is a symbolic link, which is not followed");
        assert!(!directory.path().join("nothing").exists());
        fs::remove_file(&path).unwrap();
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        assert_eq!(locked(&path), "it is a pipe, a socket or a device, not a regular file");
    }

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
