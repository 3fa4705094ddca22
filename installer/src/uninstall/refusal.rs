//! Why a node cannot be uninstalled now: pods of our network, and an agent or installer that would install everything again.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::files::remove;

/// The agent's lock in the state directory: it holds it from start to end.
const AGENT: &str = "agent.lock";

/// The next step for pods.
pub(super) const FORCE: &str = "drain the node, or let them lose their network by --force";

/// Another installer would write again what is removed.
pub(super) const BUSY: &str =
    "another installer is at work on this node, or its directories cannot be locked: try again in a minute";

/// While it is held, no agent starts.
#[derive(Debug)]
pub(super) struct AgentLock {
    _lock: File,
    /// The lock's file, if it was created for this.
    created: Option<PathBuf>,
}

impl AgentLock {
    /// Removes the file that was created for the lock.
    pub(super) fn remove_created(&mut self) {
        if let Some(path) = self.created.take() {
            // Empty, and gone with the next boot.
            let _ = remove(&path);
        }
    }
}

impl Drop for AgentLock {
    fn drop(&mut self) {
        self.remove_created();
    }
}

/// Locks out the agent. Before the first agent of a boot there may be nothing to lock.
pub(super) fn lock_agent(state_dir: &Path, create: bool) -> Result<Option<AgentLock>, String> {
    let path = state_dir.join(AGENT);
    let unknown = |error: io::Error| format!("the node agent may be running; reading {}: {error}", path.display());
    let open = |new| match File::options().read(true).write(create).create_new(new).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(unknown),
    };
    let found = open(false)?;
    let new = if found.is_none() && create { open(true)? } else { None };
    let created = new.is_some().then(|| path.clone());
    let Some(lock) = found.or(new) else { return Ok(None) };
    match lock.try_lock() {
        Ok(()) => Ok(Some(AgentLock { _lock: lock, created })),
        Err(TryLockError::WouldBlock) => {
            Err("the node agent runs and would install everything again: stop it first (delete its DaemonSet)"
                .to_owned())
        }
        Err(TryLockError::Error(error)) => Err(unknown(error)),
    }
}
