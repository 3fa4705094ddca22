//! What has to be done: a pure function of settings, decision, what was observed and what we remember.

mod chain;
mod hosts;
mod leftover;
mod note;
mod ours;
mod step;
#[cfg(test)]
mod tests;

use std::time::SystemTime;

use serde_json::Value;

pub(crate) use hosts::unchain;
pub use note::{Note, Taken};
pub use step::{Leaving, Purpose, Replaced, Step, Writing};

use crate::observed::{Binary, Found};
use crate::record::{Record, WINDOW};
use crate::{ConfFile, Conflist, Contents, Decision, Error, Observed, Settings};

/// The mode of a plugin binary.
pub(crate) const BINARY_MODE: u32 = 0o755;

/// Without any of these not even root executes a file.
const EXECUTABLE: u32 = 0o111;

/// Steps in the order they are to be taken, and what is worth saying.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Binaries come before the configuration that names them.
    pub(crate) steps: Vec<Step>,
    /// What somebody should know.
    pub(crate) notes: Vec<Note>,
    /// How the configuration stands before the steps.
    pub(crate) conflist: Conflist,
    /// What makes part of the work impossible.
    pub(crate) failures: Vec<Error>,
    /// Our configuration, where it is as we want it and we do not remember having written it so: an earlier release did.
    pub(crate) adopted: Option<(String, Value)>,
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) observed: &'a Observed,
    pub(crate) record: &'a Record,
    /// Whether that is all: a record that cannot be read at this moment may hold more.
    pub(crate) remembers: bool,
    pub(crate) now: SystemTime,
}

/// Plans. After the steps the binaries are in place with their mode where the decision is to install, and so is the
/// configuration if an address is usable; where another pod network is meant and nobody lives by ours, our configuration is
/// not there; others' configurations have our plugin in them where that is set, and nowhere
/// else; nothing else has changed.
pub(crate) fn plan(facts: Facts<'_>, decision: &Decision, usable: bool) -> Plan {
    let Facts { settings, observed, .. } = facts;
    let mut plan = Plan::nothing();
    plan.steps.extend(observed.missing_directories.iter().cloned().map(Step::CreateDirectory));
    plan.steps.extend(observed.stale.iter().cloned().map(Step::RemoveStale));
    for binary in &observed.binaries {
        plan.binary(binary, facts);
    }
    if decision.install {
        plan.ours(facts, usable);
        if plan.conflist != Conflist::Waiting {
            plan.notes.extend(before_ours(observed));
        }
        if let Some(file) = &settings.chain_into {
            plan.notes.push(Note::NotChained { file: file.clone(), reason: "the pod network is ours".to_owned() });
        }
    }
    if !decision.install && decision.oke && !observed.conf_files.iter().any(ConfFile::may_give_a_network) {
        let (directory, reason) = (settings.cni_conf_dir.clone(), decision.reason.clone());
        plan.notes.push(Note::NoneThere { directory, reason });
    }
    if let Some(leftover) = &observed.leftover {
        plan.leftover(leftover, observed, decision);
    }
    plan.hosts(facts, decision.install);
    plan
}

impl Plan {
    /// To do, to say, or to want.
    const fn nothing() -> Self {
        Self {
            steps: Vec::new(),
            notes: Vec::new(),
            conflist: Conflist::NotWanted,
            failures: Vec::new(),
            adopted: None,
        }
    }

    fn binary(&mut self, binary: &Binary, facts: Facts<'_>) {
        let Binary { source, target, digest, found } = binary;
        let (target, digest) = (target.clone(), *digest);
        let replaces = match found {
            Found::Other => return self.failures.push(Error::NoFile { target }),
            Found::Nothing => None,
            Found::Link => Some(Replaced::Link),
            Found::File { digest: present, mode } if *present == digest => {
                if *mode != BINARY_MODE {
                    let undone = (format!("its mode was made {mode:04o}"), mode & EXECUTABLE == 0);
                    match contention(binary, undone, facts) {
                        Some(rests) => self.failures.push(rests),
                        None => self.steps.push(Step::SetMode { target, digest, was: *mode }),
                    }
                }
                return;
            }
            Found::File { digest: present, .. } => Some(Replaced::File(*present)),
        };
        let undone = ("it was replaced by another file".to_owned(), false);
        // One that is not there is put there whoever takes it away: without it no pod starts.
        match replaces.and_then(|_| contention(binary, undone, facts)) {
            Some(rests) => self.failures.push(rests),
            None => self.steps.push(Step::InstallBinary { source: source.clone(), target, digest, replaces }),
        }
    }
}

/// Why a binary is left as somebody made it who undid it too often; sooner tried again where no pod starts without it.
fn contention(binary: &Binary, (difference, without_it_no_network): (String, bool), facts: Facts<'_>) -> Option<Error> {
    let known = facts.record.binaries.get(binary.target.file_name()?.to_str()?)?;
    let known = (known.digest == Some(binary.digest.to_string())).then_some(known)?;
    let rest = known.fights.rests(facts.now, without_it_no_network)?;
    let times = known.fights.recent(facts.now).len();
    Some(Error::Contention { path: binary.target.clone(), times, within: WINDOW, difference, rest })
}

fn before_ours(observed: &Observed) -> impl Iterator<Item = Note> {
    let before = observed.conf_files.iter().take_while(|file| file.name.as_str() < vcn::CONFLIST_FILE);
    // The runtime reads no further than to the first that it can use; CRI-O cannot use one that lacks a binary.
    let mut taken = Taken::First;
    before.filter_map(move |file| match &file.contents {
        Contents::Plugins(_) => {
            let missing = observed.missing_before.get(&file.name).cloned().unwrap_or_default();
            let next = if missing.is_empty() || taken == Taken::Never { Taken::Never } else { Taken::Next };
            let taken = std::mem::replace(&mut taken, next);
            Some(Note::SortsBefore { file: file.name.clone(), gives: file.gives(), taken, missing })
        }
        _ if taken != Taken::First => None,
        Contents::Malformed(reason) | Contents::Refused(_, reason) => {
            Some(Note::MalformedBefore { file: file.name.clone(), reason: reason.clone() })
        }
        Contents::Unread(reason) => Some(Note::UnreadBefore { file: file.name.clone(), reason: reason.clone() }),
    })
}
