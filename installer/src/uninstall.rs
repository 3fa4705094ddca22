//! Taking everything of ours off a node. Each part is tried whatever became of the others, what is gone already is fine,
//! and what we know is forgotten last, so that another run can finish what this one could not.
//!
//! ```text
//!   refusals ─▶ configurations ─▶ binaries ─▶ routes, rules, links, nft ─▶ settings ─▶ state
//!   (pods? agent?)   no new pods from here on
//! ```

mod files;
mod network;
mod refusal;
mod state;

use std::fmt;
use std::path::PathBuf;

use crate::exclusive::Exclusive;
use crate::record::RecordFile;
use crate::report::chain;
use crate::{Error, Settings, settings_before};

/// How to uninstall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uninstall {
    /// Kernel settings, as seen from here.
    pub sysctl_root: PathBuf,
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

/// Takes everything of ours off this node, unless pods live by it or the agent runs and would put it back.
pub fn uninstall(settings: &Settings, how: Uninstall) -> Removal {
    let mut removal = Removal { applied: !how.dry_run, ..Removal::default() };
    let Uninstall { sysctl_root, force, .. } = how;
    let _alone = Exclusive::over(&settings.written_directories());
    let record = RecordFile::new(&settings.data_dir).read();
    let mut refusals = refusal::refusals(settings);
    // Without it nothing that was there before could be given back, so that is for a person to decide.
    refusals.extend(record.as_ref().err().map(|error| format!("{}; go on without it by --force", chain(error))));
    if !refusals.is_empty() && !force {
        removal.refusals = refusals;
        return removal;
    }
    let record = record.unwrap_or_default();
    files::configurations(settings, &record, &mut removal);
    files::binaries(settings, &record, &mut removal);
    network::take_back(&sysctl_root, &mut removal);
    settings_before::restore(&settings.data_dir, &sysctl_root, &mut removal);
    if removal.failures.is_empty() {
        state::forget(settings, &mut removal);
    }
    removal
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
