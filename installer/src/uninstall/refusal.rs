//! Why a node cannot be uninstalled now: pods of our network, and an agent or installer that would install everything again.

use std::fs::{File, TryLockError};
use std::io;
use std::path::PathBuf;

use crate::files::remove;
use crate::settings::Settings;

/// The agent's lock in the state directory: it holds it from start to end.
const AGENT: &str = "agent.lock";

pub(super) const FORCE: &str = "drain the node, or let them lose their network by --force";

/// Another installer would write again what is removed.
pub(super) const BUSY: &str =
    "another installer is at work on this node, or its directories cannot be locked: try again in a minute";

/// While it is held, no agent starts.
#[derive(Debug, Default)]
pub(super) struct AgentLock {
    _lock: Option<File>,
    /// The lock's file, if it was created for this. It is empty, and gone with the next boot.
    created: Option<PathBuf>,
}

impl AgentLock {
    /// Removes the file that was created for the lock.
    pub(super) fn remove_created(&mut self) {
        let _ = self.created.take().map(|path| remove(&path));
    }
}

impl Drop for AgentLock {
    fn drop(&mut self) {
        self.remove_created();
    }
}

/// Locks out the agent. Before the first agent of a boot there may be nothing to lock.
pub(super) fn lock_out_agent(settings: &Settings, create: bool) -> Result<AgentLock, String> {
    let path = settings.state_dir.join(AGENT);
    let unknown = |error| format!("the node agent may be running; reading {}: {error}", path.display());
    let exists = path.exists();
    let lock = match File::options().read(true).write(create).create(create).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(AgentLock::default()),
        other => other.map_err(unknown)?,
    };
    match lock.try_lock() {
        Ok(()) => Ok(AgentLock { _lock: Some(lock), created: (!exists).then_some(path) }),
        Err(TryLockError::WouldBlock) => {
            Err("the node agent runs and would install everything again: stop it first (delete its DaemonSet)"
                .to_owned())
        }
        Err(TryLockError::Error(error)) => Err(unknown(error)),
    }
}
