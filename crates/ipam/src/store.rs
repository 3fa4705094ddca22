//! allocations.json on disk: read, change and replace under one lock, and nothing else under it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cni::AttachmentKey;

use crate::wire::before_and_after_commit;
use crate::{Allocations, BootId, Error, write_atomically};

const FILE: &str = "allocations.json";
const LOCK: &str = "allocations.lock";

/// What one allocation adds to the file at most, as a rule, in bytes.
const USUAL_GROWTH: usize = 1024;

/// The allocations of a node.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
    lock: PathBuf,
    boot: BootId,
    /// The file as last read or written here: a verb looks at it two or three times, and seldom has anybody else
    /// changed it meanwhile. Then it is compared, which costs nothing, instead of understood.
    known: Arc<Mutex<Option<Known>>>,
}

#[derive(Debug)]
struct Known {
    bytes: Vec<u8>,
    means: Allocations,
}

impl Store {
    /// The store in `state_dir`, in this boot. Touches nothing yet.
    #[must_use]
    pub fn new(state_dir: &Path, boot: BootId) -> Self {
        Self { path: state_dir.join(FILE), lock: state_dir.join(LOCK), boot, known: Arc::default() }
    }

    /// What is handed out. Needs no lock: the file is replaced whole.
    ///
    /// # Errors
    /// Unreadable, damaged or too new; a missing file is no error.
    pub fn read(&self) -> Result<Allocations, Error> {
        let Some(known) = self.known()? else { return Ok(self.none()) };
        let means = known.means.clone();
        self.remember(known);
        Ok(means)
    }

    /// Moves a damaged record out of the way, to `allocations.json.damaged`, and says where it is. What it held is then
    /// missing, to be rebuilt from the kernel; `None` where it is damaged no more.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn set_aside(&self) -> Result<Option<PathBuf>, Error> {
        let _lock = self.lock()?;
        if !matches!(self.known(), Err(Error::Damaged { .. })) {
            return Ok(None);
        }
        let mut aside = self.path.clone().into_os_string();
        aside.push(".damaged");
        let aside = PathBuf::from(aside);
        fs::rename(&self.path, &aside).map_err(|source| Error::Write { path: aside.clone(), source })?;
        Ok(Some(aside))
    }

    /// Changes the allocations under the lock; the file is written only when `change` succeeds and changed something.
    ///
    /// # Errors
    /// What `change` answers, or the file's own troubles; the file then holds what it held before.
    pub fn update<T, E: From<Error>>(&self, change: impl FnOnce(&mut Allocations) -> Result<T, E>) -> Result<T, E> {
        let _lock = self.lock()?;
        let wrap = |source: io::Error| Error::Write { path: self.path.clone(), source };
        let written = |means: &Allocations, room: usize| {
            let mut bytes = Vec::with_capacity(room);
            serde_json::to_writer(&mut bytes, means).map_err(|error| wrap(error.into()))?;
            Ok::<_, Error>(bytes)
        };
        let Known { bytes: before, mut means } = match self.known()? {
            Some(known) => known,
            None => Known { bytes: written(&self.none(), 0)?, means: self.none() },
        };
        let answer = change(&mut means)?;
        let bytes = written(&means, before.len() + USUAL_GROWTH)?;
        if before != bytes {
            write_atomically(&self.path, &bytes).map_err(wrap)?;
        }
        self.remember(Known { bytes, means });
        Ok(answer)
    }

    /// Marks an allocation that was reserved here as lasting. Its entry is exchanged where it stands, whatever others have
    /// changed elsewhere in the file meanwhile: half of what is written is such a commit, and the file has all pods in it.
    ///
    /// # Errors
    /// [`Error::NoAllocation`] when a DEL overtook the ADD; else the file's own troubles.
    pub fn commit(&self, key: &AttachmentKey) -> Result<(), Error> {
        let known = self.known.lock().ok();
        let texts = known.and_then(|known| before_and_after_commit(&known.as_ref()?.means, key));
        if let Some((tentative, lasting)) = texts {
            let _lock = self.lock()?;
            let bytes = fs::read(&self.path).map_err(|source| Error::Read { path: self.path.clone(), source })?;
            // It is among the youngest, which are last. Found, it can be no other: the key is in it.
            if let Some(at) = bytes.windows(tentative.len()).rposition(|text| text == tentative) {
                let (head, rest) = bytes.split_at(at);
                let tail = rest.get(tentative.len()..).unwrap_or_default();
                return write_atomically(&self.path, &[head, &lasting, tail].concat())
                    .map_err(|source| Error::Write { path: self.path.clone(), source });
            }
        }
        self.update(|held| held.commit(key))
    }

    /// The file and what it means; `None` where there is none of this boot. What was remembered is used up.
    fn known(&self) -> Result<Option<Known>, Error> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Read { path: self.path.clone(), source }),
        };
        let remembered = self.known.lock().ok().and_then(|mut known| known.take());
        if let Some(known) = remembered.filter(|known| known.bytes == bytes) {
            return Ok(Some(known));
        }
        let means: Allocations = serde_json::from_slice(&bytes).map_err(|source| self.not_ours(&bytes, source))?;
        if means.version > Allocations::VERSION {
            return Err(Error::TooNew { path: self.path.clone(), found: means.version, known: Allocations::VERSION });
        }
        // Pods do not survive a reboot, and neither does what they held.
        Ok((means.boot_id == self.boot).then_some(Known { bytes, means }))
    }

    /// A newer format may have another shape altogether; its version is then all that can be read.
    fn not_ours(&self, bytes: &[u8], source: serde_json::Error) -> Error {
        #[derive(serde::Deserialize)]
        struct Version {
            version: u32,
        }
        match serde_json::from_slice(bytes) {
            Ok(Version { version }) if version > Allocations::VERSION => {
                Error::TooNew { path: self.path.clone(), found: version, known: Allocations::VERSION }
            }
            _ => Error::Damaged { path: self.path.clone(), source },
        }
    }

    fn remember(&self, known: Known) {
        // A thread that panicked here left at worst nothing to remember.
        if let Ok(mut last) = self.known.lock() {
            *last = Some(known);
        }
    }

    fn none(&self) -> Allocations {
        Allocations::none(self.boot.clone())
    }

    /// Freed when the file is closed, so also by kill −9.
    fn lock(&self) -> Result<File, Error> {
        let wrap = |source| Error::Lock { path: self.lock.clone(), source };
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.lock);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The agent makes the directory; a DEL must not depend on it.
                self.lock.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| open()).map_err(wrap)?
            }
            other => other.map_err(wrap)?,
        };
        file.lock().map_err(wrap)?;
        Ok(file)
    }
}
