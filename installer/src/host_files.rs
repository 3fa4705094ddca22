//! Files of NodePolicies on the host, below the folder where this container has them: read, written as a whole, removed. Never through a
//! link. The program that applies them uses it, and the uninstaller.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ipam::{AtomicFile, read_state};
use nix::libc;
use tunables::Refusal;
use tunables::files::folders::locate;
use tunables::files::guard::staged;
use tunables::files::record::copy_name;
use tunables::files::{FileRecord, FileState, ObservedFile};

/// The largest file that is kept before a policy's replaces it.
const KEPT_MAX: u64 = 1 << 20;
/// The mode of a folder of drop-ins.
const FOLDER_MODE: u32 = 0o755;
/// The folder of records and copies, in the data directory.
pub const FOLDER: &str = "files";
/// The record, in that folder.
pub const RECORD: &str = "record.json";
/// The order for the program that applies files. The agent writes it.
pub const ORDER: &str = "order.json";
/// The order's hash, once the leader confirmed it. The agent writes it, too.
pub const CONFIRMATION: &str = "confirmed";
/// The mode of folders of copies: only root reads what was in a file.
const COPIES_MODE: u32 = 0o700;

/// The host's folders, and the folder of records and copies.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    data: PathBuf,
    owner: Owner,
}

/// Whose files these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    user: u32,
    group: u32,
}

/// Which copies of changed files: each kind has its own folder below the data folder.
#[derive(Clone, Copy, Debug)]
pub enum Copies {
    /// What was there before any policy.
    Originals,
    /// What was there before an unconfirmed change.
    Pending,
}

impl Copies {
    const fn name(self) -> &'static str {
        match self {
            Self::Originals => "originals",
            Self::Pending => "pending",
        }
    }
}

impl Host {
    /// The host below `root`; `data` is the folder of records and copies, which has the same path for the host. Files belong to this
    /// process's user and group, which are root.
    pub fn new(root: &Path, data: &Path) -> Self {
        Self {
            root: root.to_owned(),
            data: data.to_owned(),
            owner: Owner { user: nix::unistd::geteuid().as_raw(), group: nix::unistd::getegid().as_raw() },
        }
    }

    /// A file in the folder of records.
    pub fn data(&self, name: &str) -> PathBuf {
        self.data.join(name)
    }

    /// Creates the folder of records, unless it exists.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn make_data(&self) -> io::Result<()> {
        make_folder(&self.data, COPIES_MODE)
    }

    /// Whether this container has a folder of the host.
    pub fn has_folder(&self, path: &str) -> bool {
        self.at(path).is_dir()
    }

    /// What the node knows; an empty record if there is none.
    ///
    /// # Errors
    /// In words, if it cannot be read. A damaged record is never an empty one: the files of policies would become originals.
    pub fn record(&self) -> Result<FileRecord, String> {
        let text = match read_state(&self.data(RECORD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileRecord::default()),
            read => read.map_err(|error| format!("read {RECORD}: {error}"))?,
        };
        let record: FileRecord = serde_json::from_slice(&text).map_err(|error| format!("read {RECORD}: {error}"))?;
        match record.version {
            tunables::files::record::VERSION => Ok(record),
            version => Err(format!("read {RECORD}: version {version} is of a later release")),
        }
    }

    /// What differs after each write of the record: its inode, and when it was written. `None` if there is no record.
    pub fn record_stamp(&self) -> Option<(u64, i64, i64)> {
        let found = fs::metadata(self.data(RECORD)).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec()))
    }

    /// The folder of copies.
    pub fn copies(&self, copies: Copies) -> PathBuf {
        self.data.join(copies.name())
    }

    fn copy(&self, copies: Copies, path: &str) -> PathBuf {
        self.copies(copies).join(copy_name(path))
    }

    /// Where a path of the host is from here.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// What is at a path.
    pub fn observe(&self, path: &str) -> ObservedFile {
        match self.read(path) {
            Ok(Some((state, _))) => ObservedFile::Present(state),
            Ok(None) => ObservedFile::Absent,
            Err(error) => ObservedFile::Unusable(error.to_string()),
        }
    }

    /// Keeps a copy of a file of the host.
    ///
    /// # Errors
    /// When the file cannot be read, or the copy cannot be written.
    pub fn keep(&self, path: &str, copies: Copies) -> io::Result<()> {
        let (state, content) = self.read(path)?.ok_or(io::ErrorKind::NotFound)?;
        make_folder(&self.copies(copies), COPIES_MODE)?;
        write(&self.copy(copies, path), &content, state.mode)
    }

    /// Removes a file in the folder of records, if there is one.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn clear(&self, name: &str) -> io::Result<()> {
        remove(&self.data(name))
    }

    /// The size of a copy in bytes; 0 if there is none.
    pub fn copy_size(&self, path: &str, copies: Copies) -> u64 {
        fs::metadata(self.copy(copies, path)).map_or(0, |found| found.len())
    }

    /// Whether there is a copy of a file.
    pub fn has_copy(&self, path: &str, copies: Copies) -> bool {
        self.copy(copies, path).exists()
    }

    /// Removes a copy, if there is one.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn forget(&self, path: &str, copies: Copies) -> io::Result<()> {
        remove(&self.copy(copies, path))
    }

    /// Removes all copies of an unconfirmed change.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn forget_pending(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.copies(Copies::Pending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a file of the host. Readers have the earlier one or the new one.
    ///
    /// # Errors
    /// When it cannot be written; the earlier file stays.
    pub fn write(&self, path: &str, content: &[u8], mode: u32) -> io::Result<()> {
        refuse_outside(path)?;
        let target = self.at(path);
        let folder = target.parent().ok_or(io::ErrorKind::InvalidInput)?;
        make_folder(folder, FOLDER_MODE)?;
        let mut file = AtomicFile::create_as(&target, self.at(&staged(path)), mode)?;
        file.write_all(content)?;
        file.commit()
    }

    /// Writes the copy of a file back, with its mode. It must be the copy that the record describes.
    ///
    /// # Errors
    /// When there is no such copy, or the file cannot be written.
    pub fn put_back(&self, path: &str, copies: Copies, kept: &FileState) -> io::Result<()> {
        let (state, content) = read(&self.copy(copies, path), self.owner)?.ok_or(io::ErrorKind::NotFound)?;
        if state != *kept {
            return Err(io::Error::other(format!("its copy is {state}, and the record has {kept}")));
        }
        self.write(path, &content, state.mode)
    }

    /// Removes a file of the host, if there is one.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, path: &str) -> io::Result<()> {
        refuse_outside(path)?;
        remove(&self.at(path))
    }

    /// Takes a change back that was not confirmed: what the file had before it, or nothing. A file that is not as the change wrote it stays
    /// as it is, because another program changed it since. Whether the file has what it had before.
    ///
    /// # Errors
    /// When the file cannot be read, written or removed, or there is no copy.
    pub fn take_back(&self, path: &str, before: Option<&FileState>, written: Option<&FileState>) -> io::Result<bool> {
        refuse_outside(path)?;
        // What a killed program was about to write: CRI-O reads each file of its folder. A folder of that name is another program's.
        if self.has_real_folders(path)? {
            let _ = remove(&self.at(&staged(path)));
        }
        let found = match self.observe(path) {
            ObservedFile::Present(state) => Some(state),
            ObservedFile::Absent => None,
            ObservedFile::Unusable(why) => return Err(io::Error::other(why)),
        };
        match (found.as_ref() == before, found.as_ref() == written, before) {
            (true, ..) => Ok(true),
            (false, true, Some(before)) => self.put_back(path, Copies::Pending, before).map(|()| true),
            (false, true, None) => self.remove(path).map(|()| true),
            (false, false, _) => Ok(false),
        }
    }

    fn read(&self, path: &str) -> io::Result<Option<(FileState, Vec<u8>)>> {
        // The container's own files must not be read or written through a link of the host.
        match self.has_real_folders(path) {
            Ok(true) => read(&self.at(path), self.owner),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether all folders above a path are there. It is an error if one is a link.
    fn has_real_folders(&self, path: &str) -> io::Result<bool> {
        let target = self.at(path);
        for folder in target.ancestors().skip(1).take_while(|folder| *folder != self.root) {
            match fs::symlink_metadata(folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error),
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(io::Error::other("its folder is a link")),
            }
        }
        Ok(true)
    }
}

/// The record is a file of the node, too: what it names is not trusted.
fn refuse_outside(path: &str) -> io::Result<()> {
    let refused = |refusal: Refusal| io::Error::new(io::ErrorKind::PermissionDenied, refusal.reason);
    locate(path).map(drop).map_err(refused)
}

/// Reads a file of this owner and group, and no other name; nothing if there is none. What the record does not describe would be lost when
/// the file is written back.
fn read(path: &Path, owner: Owner) -> io::Result<Option<(FileState, Vec<u8>)>> {
    let opened = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return Err(io::Error::other("it is a link, so another program manages it"));
        }
        opened => opened?,
    };
    let found = file.metadata()?;
    let refused = |why: &str| Err(io::Error::other(why.to_owned()));
    if !found.is_file() {
        return refused("it is not a regular file");
    }
    if (Owner { user: found.uid(), group: found.gid() }) != owner || found.nlink() != 1 {
        return refused("it does not belong to root and its group, or has a second name");
    }
    if found.len() > KEPT_MAX {
        return refused("it has more than 1 MiB");
    }
    let mut content = Vec::new();
    file.take(KEPT_MAX + 1).read_to_end(&mut content)?;
    let mode = found.permissions().mode() & 0o7777;
    Ok(Some((FileState::of(&content, mode), content)))
}

fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = AtomicFile::create(path, mode)?;
    file.write_all(content)?;
    file.commit()
}

/// Removes a file, on the disk too.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            removed?;
            path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        }
    }
}

/// Creates a folder whose parent exists, unless it exists.
fn make_folder(folder: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => {
            created?;
            folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
        }
    }
}

#[cfg(test)]
mod tests;
