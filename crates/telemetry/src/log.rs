//! The file that records go to while no agent listens: bounded, one older generation kept, many writers at once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::VerbRecord;
use crate::record::LINE_LIMIT;

/// How large the file may become, in bytes: about 2,000 records, and as many in the older generation.
pub const LOG_LIMIT: u64 = 1 << 20;

/// How much of a file is read, in bytes: writers that find it full and in use exceed the limit by a line each.
const MAX_READ_BYTES: u64 = 2 * LOG_LIMIT;

const FILE: &str = "verbs.log";
const OLDER_FILE: &str = "verbs.log.1";
/// A generation on its way to the agent.
const TAKEN_FILE: &str = "verbs.log.taken";

/// How often a writer retries after the file was moved under it, by another writer or by the agent.
const ATTEMPTS: u32 = 8;

/// Appends a line. Writers do not wait for each other, nor for the agent: they share the file's lock, and the one that moves
/// the file needs it alone. A line is one write in append mode. A writer that finds the file full and in use by others writes
/// to it all the same, so it may exceed the limit by one line per writer.
pub(crate) fn append(dir: &Path, line: &str, limit: u64) -> io::Result<()> {
    let path = dir.join(FILE);
    for attempt in 0..ATTEMPTS {
        // The lock is dropped with the file.
        let file = open(&path)?;
        if file.try_lock_shared().is_err() {
            continue;
        }
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "verbs.log is not a regular file"));
        }
        // The agent has read it to the end and removed it since it was opened.
        if found.nlink() == 0 {
            continue;
        }
        let full = found.len() > 0 && found.len() + line.len() as u64 > limit;
        if full && attempt < ATTEMPTS / 2 {
            // Another writer may have moved it between our open and our lock.
            if file.try_lock().is_ok() && same_file(&path, &found) {
                match fs::rename(&path, dir.join(OLDER_FILE)) {
                    // The agent took it just now.
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            continue;
        }
        return write(file, line);
    }
    // The writer that has it locked was stopped while it moved the file: then the line is moved, too.
    write(open(&path)?, line)
}

/// All records in the file and its older generation, oldest first; lines that are none (a full disk cut them) are left out.
///
/// # Errors
/// When a file is there and cannot be read.
pub fn read_log(dir: &Path) -> io::Result<Vec<VerbRecord>> {
    let mut records = Vec::new();
    for name in [OLDER_FILE, FILE] {
        let file = match OpenOptions::new().read(true).custom_flags(safe_flags()).open(dir.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let lines = BufReader::with_capacity(LINE_LIMIT, file.take(MAX_READ_BYTES)).split(b'\n');
        for line in lines {
            records.extend(VerbRecord::from_line(&line?).ok());
        }
    }
    Ok(records)
}

/// Hands every record in the files to `each`, oldest first, and removes the files, so no record is handed out twice. Returns how
/// many lines were not records.
///
/// Only one process may take at a time. One that is killed while it takes leaves a generation that the next one takes
/// again from its start.
///
/// # Errors
/// When a file is there and cannot be moved, read or removed; `WouldBlock` when a plugin is just writing to it.
pub fn take_log(dir: &Path, mut each: impl FnMut(VerbRecord)) -> io::Result<usize> {
    let taken = dir.join(TAKEN_FILE);
    let mut damaged = take(&taken, &mut each)?;
    for name in [OLDER_FILE, FILE] {
        match fs::rename(dir.join(name), &taken) {
            Ok(()) => damaged += take(&taken, &mut each)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(damaged)
}

fn take(path: &Path, each: &mut impl FnMut(VerbRecord)) -> io::Result<usize> {
    let mut damaged = 0;
    let file = match OpenOptions::new().read(true).custom_flags(safe_flags()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    // Plugins that had opened it before it was moved write to it yet. They take microseconds; one that was stopped in the
    // midst of it leaves the file to the next attempt.
    file.try_lock().map_err(io::Error::from)?;
    for line in BufReader::with_capacity(LINE_LIMIT, (&file).take(MAX_READ_BYTES)).split(b'\n') {
        match VerbRecord::from_line(&line?) {
            Ok(record) => each(record),
            Err(_) => damaged += 1,
        }
    }
    // While it is locked: the next holder of the lock sees that it is gone.
    fs::remove_file(path)?;
    Ok(damaged)
}

/// Where the records go while no agent listens.
pub fn log_path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(safe_flags()).open(path)
}

/// No planted link is followed, and no planted pipe is waited for.
fn safe_flags() -> i32 {
    libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC
}

fn write(mut file: File, line: &str) -> io::Result<()> {
    // One call: lines of parallel writers do not mix.
    match file.write(line.as_bytes())? {
        written if written == line.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

fn same_file(path: &Path, opened: &fs::Metadata) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (opened.dev(), opened.ino()))
}
