//! Taking everything of ours off a node. Each part is tried whatever became of the others, what is gone already is fine,
//! and what we know is forgotten last, so that another run can finish what this one could not.
//!
//! ```text
//!   refusals ─▶ configurations ─▶ pods? ─▶ binaries ─▶ routes, rules, links, nft ─▶ settings ─▶ drop-ins ─▶ state
//!   (pods? agent? another installer?)   no new pods from here on
//! ```

mod files;
mod network;
mod others;
mod refusal;
mod settings_before;
mod state;

use std::path::PathBuf;

use others::Others;

use crate::exclusive::Exclusive;
use crate::record::{RecordFile, unnamed};
use crate::report::chain;
use crate::{Error, Removal, Settings, drop_ins, pods};

/// How to uninstall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uninstall {
    /// Kernel settings, as seen from here.
    pub sysctl_root: PathBuf,
    /// The host's file system, as seen from here.
    pub host_root: PathBuf,
    /// Although pods live here.
    pub force: bool,
    /// Why an agent may come to this node again ([`crate::departure::returning`]).
    pub returning: Option<String>,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What becomes of a node whose last CNI configuration is removed. containerd asks for the network's status all the time;
/// CRI-O only until it was good once, unless it is set to go on (cri-o/cri-o#9918).
const NO_NETWORK: &str = "no usable CNI configuration is left on this node, so no pod can start. With containerd the \
                          node becomes NotReady. With CRI-O it stays Ready unless cni_status_grace_period is set: cordon \
                          it until another pod network is installed";

/// Takes everything of ours off this node, unless pods live by it or somebody would put it back: the agent, an installer.
pub fn uninstall(settings: &Settings, how: Uninstall) -> Removal {
    let mut removal = Removal { applied: !how.dry_run, ..Removal::default() };
    let Uninstall { sysctl_root, host_root, force, returning, .. } = how;
    let mut agent = refusal::agent(&settings.state_dir, removal.applied);
    let alone = Exclusive::over(&settings.written_directories());
    removal.refusals.extend(agent.as_ref().err().cloned());
    removal.refusals.extend(returning);
    if alone.is_none() {
        removal.refusals.push(refusal::NOT_ALONE.to_owned());
    }
    let record = RecordFile::new(&settings.data_dir).read();
    if !force {
        removal.refusals.extend(pods(settings).into_iter().map(|pods| format!("{pods}; {}", refusal::FORCE)));
        // Without it nothing that was there before could be given back, so that is for a person to decide.
        let unknown = record.as_ref().err().map(|error| format!("{}; go on without it by --force", chain(error)));
        removal.refusals.extend(unknown);
    }
    let unnamed = record.as_ref().map(|record| unnamed::copies(settings, record)).unwrap_or_default();
    if !force && let Some(what) = unnamed::told(settings, &unnamed) {
        removal.refusals.push(what);
    }
    if !removal.refusals.is_empty() {
        return removal;
    }
    let record = record.unwrap_or_default();
    files::configurations(settings, &record, &mut removal);
    let removed = removal.steps.iter().any(|step| step.starts_with("remove "));
    if removed && files::successor(settings).is_none() {
        removal.notes.push(NO_NETWORK.to_owned());
    }
    // A runtime that was starting a pod when we looked has done so by now; its network is not taken away.
    let came = if force { Vec::new() } else { pods(settings) };
    if !came.is_empty() {
        removal.failures.push(Error::PodsCame { pods: came.join("; ") });
        return removal;
    }
    files::binaries(settings, &record, &mut removal);
    let others = Others::look(settings, &mut removal);
    network::take_back(&sysctl_root, &others, &mut removal);
    settings_before::restore(&settings.data_dir, &sysctl_root, &others, &mut removal);
    drop_ins::remove(&settings.data_dir, &host_root, force, &mut removal);
    if removal.failures.is_empty() {
        if let Ok(Some(none)) = &mut agent {
            none.tidy();
        }
        state::forget(settings, &unnamed, &mut removal);
    }
    removal
}
