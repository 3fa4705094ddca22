//! Why a node is not to be uninstalled now: pods that live by our network (`pods.rs`), and an agent or installer that would
//! put everything back.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The agent's, in the state directory: it has it locked from its first moment to its last.
const AGENT: &str = "agent.lock";

/// What helps against pods.
pub(super) const FORCE: &str = "drain the node, or let them lose their network by --force";

/// Another installer is at work; what it does next would not be taken back.
pub(super) const NOT_ALONE: &str =
    "another installer is at work on this node, or its directories cannot be locked: try again in a minute";

/// While this lives, no agent starts.
#[derive(Debug)]
pub(super) struct NoAgent {
    _lock: File,
    /// What had to be made for it, which was nobody's before.
    made: Option<PathBuf>,
}

impl NoAgent {
    /// Takes away what was made for it.
    pub(super) fn tidy(&mut self) {
        if let Some(path) = self.made.take() {
            // Empty, and gone with the next boot.
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for NoAgent {
    fn drop(&mut self) {
        self.tidy();
    }
}

/// Sees to it that no agent runs; before the first agent of a boot there may be nowhere to lock.
pub(super) fn agent(state_dir: &Path, lock: bool) -> Result<Option<NoAgent>, String> {
    let path = state_dir.join(AGENT);
    let unknown =
        |error: io::Error| format!("whether the node agent runs cannot be told by {}: {error}", path.display());
    let open = |new| match File::options().read(true).write(lock).create_new(new).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(unknown),
    };
    let found = open(false)?;
    let made = if found.is_none() && lock { open(true)? } else { None };
    let mine = made.is_some().then(|| path.clone());
    let Some(file) = found.or(made) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(NoAgent { _lock: file, made: mine })),
        Err(TryLockError::WouldBlock) => {
            Err("the node agent runs and would put everything back: stop it first (delete its DaemonSet)".to_owned())
        }
        Err(TryLockError::Error(error)) => Err(unknown(error)),
    }
}
