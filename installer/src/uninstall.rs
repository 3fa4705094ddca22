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
mod state;
mod unnamed;

use std::fmt;
use std::path::PathBuf;

pub(crate) use files::is_ours;
pub(crate) use others::Others;
pub use refusal::pods;

use crate::exclusive::Exclusive;
use crate::record::{Record, RecordFile};
use crate::report::chain;
use crate::{Error, Settings, drop_ins, settings_before};

/// How to uninstall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uninstall {
    /// Kernel settings, as seen from here.
    pub sysctl_root: PathBuf,
    /// The host's file system, as seen from here.
    pub host_root: PathBuf,
    /// Although pods live here.
    pub force: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What came of it.
#[derive(Debug, Default)]
#[must_use]
pub struct Removal {
    /// Why nothing was done.
    pub refusals: Vec<String>,
    /// What was done or, if not `applied`, would be.
    pub steps: Vec<String>,
    /// Whether the steps were taken.
    pub applied: bool,
    /// What is left although it has one of our names, because it is not ours.
    pub left: Vec<String>,
    /// What could not be removed.
    pub failures: Vec<Error>,
}

/// All of it in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Nothing of ours is left.
    All,
    /// A dry run.
    Planned,
    /// Something is left, and named.
    Part,
    /// Nothing was done.
    Refused,
}

/// Takes everything of ours off this node, unless pods live by it or somebody would put it back: the agent, an installer.
pub fn uninstall(settings: &Settings, how: Uninstall) -> Removal {
    let mut removal = Removal { applied: !how.dry_run, ..Removal::default() };
    let Uninstall { sysctl_root, host_root, force, .. } = how;
    let mut agent = refusal::agent(&settings.state_dir, removal.applied);
    let alone = Exclusive::over(&settings.written_directories());
    removal.refusals.extend(agent.as_ref().err().cloned());
    if alone.is_none() {
        removal.refusals.push(refusal::NOT_ALONE.to_owned());
    }
    let record = RecordFile::new(&settings.data_dir).read();
    if !force {
        removal.refusals.extend(refusal::pods(settings).into_iter().map(|pods| format!("{pods}; {}", refusal::FORCE)));
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
    // A runtime that was starting a pod when we looked has done so by now; its network is not taken away.
    let came = if force { Vec::new() } else { refusal::pods(settings) };
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

/// Why what was there before us is not known for sure.
pub(crate) fn unnamed(settings: &Settings, record: &Record) -> Option<String> {
    unnamed::told(settings, &unnamed::copies(settings, record))
}

impl Removal {
    /// All of it in one word.
    #[must_use]
    pub fn status(&self) -> Removed {
        match (&self.refusals[..], &self.failures[..], self.applied) {
            ([_, ..], ..) => Removed::Refused,
            (_, [_, ..], _) => Removed::Part,
            (.., false) => Removed::Planned,
            (.., true) => Removed::All,
        }
    }

    /// Takes a step, unless this is a dry run.
    pub(crate) fn step(&mut self, what: String, take: impl FnOnce() -> Result<(), Error>) {
        if self.applied
            && let Err(error) = take()
        {
            self.failures.push(error);
            return;
        }
        self.steps.push(what);
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for refusal in &self.refusals {
            writeln!(f, "refused: {refusal}")?;
        }
        for step in &self.steps {
            writeln!(f, "{}: {step}", if self.applied { "did" } else { "would" })?;
        }
        for left in &self.left {
            writeln!(f, "left: {left}")?;
        }
        for failure in &self.failures {
            writeln!(f, "failed: {} [{}]", chain(failure), failure.word())?;
        }
        write!(f, "status: {}", self.status())
    }
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "removed",
            Self::Planned => "planned",
            Self::Part => "failed",
            Self::Refused => "refused",
        })
    }
}
