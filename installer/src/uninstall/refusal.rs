//! Why a node is not to be uninstalled now: pods that live by our network, and an agent or installer that would put
//! everything back.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use ipam::{BootId, Store};
use vcn::{HOST_LINK_PREFIX, LINK_ALIAS_PREFIX};

use crate::Settings;

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

/// What shows that pods live by our network, for people; nothing where none does.
#[must_use]
pub fn pods(settings: &Settings) -> Vec<String> {
    let allocations = BootId::current().and_then(|boot| Store::new(&settings.state_dir, boot).read());
    let recorded = match allocations {
        Ok(all) if all.allocations.is_empty() => None,
        Ok(all) => {
            let some: Vec<String> = all.allocations.iter().take(3).map(|held| held.key.to_string()).collect();
            Some(format!(
                "{} attachment(s) of this boot hold addresses ({}{})",
                all.allocations.len(),
                some.join(", "),
                if all.allocations.len() > some.len() { ", …" } else { "" },
            ))
        }
        Err(error) => Some(format!("whether pods hold addresses cannot be told: {error}")),
    };
    recorded.into_iter().chain(links()).collect()
}

/// Pods' links whose record is lost still carry pods.
fn links() -> Option<String> {
    let links = match netlink::Socket::open().and_then(|mut socket| socket.links()) {
        Ok(links) => links,
        Err(error) => return Some(format!("whether pods' links are there cannot be told: {error}")),
    };
    let of_pod = |link: &&netlink::Link| {
        link.name.as_str().starts_with(HOST_LINK_PREFIX)
            && link.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX))
    };
    let names: Vec<&str> = links.iter().filter(of_pod).map(|link| link.name.as_str()).take(3).collect();
    (!names.is_empty()).then(|| format!("links of pods are there ({})", names.join(", ")))
}
