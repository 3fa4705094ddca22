//! Removes our files and objects from a node, by their marks. Each part is tried although another failed, and what is gone already is
//! not an error. The state goes last, so that another run can finish what this one could not.
//!
//! ```text
//!   refusals ─▶ configurations ─▶ pods? ─▶ binaries ─▶ routes, rules, links, nft ─▶ settings and files ─▶ state
//!   (pods? agent? another installer?)   no new pods from here on
//! ```

mod daemon_sets;
mod files;
mod host_files;
mod kernel_settings;
mod network;
pub mod on_delete;
mod other_networks;
mod removal;

use std::fs::{File, TryLockError};
use std::io;
use std::path::PathBuf;

pub use kernel_settings::{
    KernelRoots, PolicyMark, PolicySetting, SettingChange, forget_policy_settings, note_policy_settings, note_settings,
    policy_settings, read_link_option, write_link_option,
};
use other_networks::OtherNetworks;
pub use removal::{Removal, RemovalStatus};

use resident::logging::chain;

use crate::decide::pods;
use crate::error::Error;
use crate::files::{lock_out_installers, remove};
use crate::observed::{ConfFile, conf_files};
use crate::record::Record;
use crate::settings::Settings;

/// The options of an uninstall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uninstall {
    /// Kernel settings, as seen from here.
    pub roots: KernelRoots,
    /// Although pods of our network run here.
    pub force: bool,
    /// Why an agent may start on this node again (`on_delete::returning`).
    pub returning: Option<String>,
    /// Only report what would be done.
    pub dry_run: bool,
}

/// The agent's lock in the state directory: it holds it from start to end.
const AGENT: &str = "agent.lock";

const FORCE: &str = "drain the node, or let them lose their network by --force";

/// Another installer would write again what is removed.
const BUSY: &str =
    "another installer is at work on this node, or its directories cannot be locked: try again in a minute";

/// The effect of removing a node's last CNI configuration. containerd checks the network's status all the time, CRI-O only
/// until it was good once, unless it is configured otherwise (cri-o/cri-o#9918).
const NO_NETWORK: &str = "no usable CNI configuration is left on this node, so no pod can start. With containerd the \
                          node becomes NotReady. With CRI-O it stays Ready unless cni_status_grace_period is set: cordon \
                          it until another pod network is installed";

/// Removes our files and objects from this node, unless pods use it or another program would install it again.
pub fn uninstall(settings: &Settings, how: Uninstall) -> Removal {
    let Uninstall { roots, force, returning, dry_run } = how;
    let mut removal = Removal { applied: !dry_run, ..Removal::default() };
    let mut agent = lock_out_agent(settings, removal.applied);
    let lock = lock_out_installers(&settings.written_directories());
    removal.refusals.extend(agent.as_ref().err().cloned());
    removal.refusals.extend(returning);
    removal.refusals.extend(lock.is_none().then(|| BUSY.to_owned()));
    if !force {
        removal.refusals.extend(pods(settings).into_iter().map(|pods| format!("{pods}; {FORCE}")));
    }
    if !removal.refusals.is_empty() {
        return removal;
    }
    let (record, damage) = Record::read(&settings.data_dir);
    let damage = damage.map(|error| format!("{}: our configuration is recognized by its plugins", chain(&error)));
    removal.notes.extend(damage);
    files::configurations(settings, &record, &mut removal);
    let removed = removal.steps.iter().any(|step| step.starts_with("remove "));
    let files = conf_files(&settings.cni_conf_dir).unwrap_or_default();
    if removed && !files.iter().any(ConfFile::gives_another_network) {
        removal.notes.push(NO_NETWORK.to_owned());
    }
    // A runtime that was starting a pod a moment ago has done so by now; that pod keeps its network.
    let came = if force { Vec::new() } else { pods(settings) };
    if !came.is_empty() {
        removal.failures.push(Error::PodsCame { pods: came.join("; ") });
        return removal;
    }
    files::binaries(settings, &mut removal);
    let others = OtherNetworks::find(&files, &mut removal);
    let removed = network::remove_pods(&mut removal);
    removal.failures.extend(removed.err());
    let removed = network::remove_hosts(&roots.sysctl, &others, &mut removal);
    removal.failures.extend(removed.err());
    // A program may have come since.
    let files = conf_files(&settings.cni_conf_dir).unwrap_or_default();
    let others = [others, OtherNetworks::find(&files, &mut removal)];
    kernel_settings::restore(&settings.data_dir, &roots, &others, &mut removal);
    host_files::restore(&settings.data_dir, &roots.host, &mut removal);
    if removal.failures.is_empty() {
        // Its file is not one of the state's. No agent may start before the end.
        let _ = agent.as_mut().map(AgentLock::remove_created);
        files::state(settings, &mut removal);
    }
    removal
}

/// While it is held, no agent starts.
#[derive(Debug, Default)]
struct AgentLock {
    _lock: Option<File>,
    /// The lock's file, if it was created for this. It is empty, and gone with the next boot.
    created: Option<PathBuf>,
}

impl AgentLock {
    fn remove_created(&mut self) {
        let _ = self.created.take().map(|path| remove(&path));
    }
}

impl Drop for AgentLock {
    fn drop(&mut self) {
        self.remove_created();
    }
}

/// Locks out the agent. Before the first agent of a boot there may be nothing to lock.
fn lock_out_agent(settings: &Settings, create: bool) -> Result<AgentLock, String> {
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
