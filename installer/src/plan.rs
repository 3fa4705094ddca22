//! What has to be done: a pure function of settings, decision, what was observed and what is on record.

mod chain;
mod conflist;
mod copy;
mod leftover;
mod note;
mod step;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::SystemTime;

use serde_json::Value;

pub(crate) use copy::is_copy;
pub use note::{Note, NoteKind, RuntimeUsage};
pub(crate) use step::{ConfChange, Purpose, ConflistRemoval, Step};

use crate::observed::{Binary, BinaryFound, ConfFile, Contents, Observed};
use crate::record::{Record, RewriteLimiter, Urgency, WINDOW};
use crate::{ConflistState, Decision, Error, Settings, VnicAttach};

/// The mode of a plugin binary.
pub(crate) const BINARY_MODE: u32 = 0o755;

/// Without any of these bits not even root executes a file.
const EXECUTABLE: u32 = 0o111;

/// Steps in their order, and what is reported.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Binaries come before the configuration that names them.
    pub(crate) steps: Vec<Step>,
    pub(crate) notes: Vec<Note>,
    /// The state of our configuration before the steps.
    pub(crate) conflist: ConflistState,
    /// What makes part of the work impossible.
    pub(crate) failures: Vec<Error>,
    /// Our part of our configuration, if it is in place and not on record: an earlier release wrote it.
    pub(crate) adopted: Option<Value>,
}

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) observed: &'a Observed,
    pub(crate) record: &'a Record,
    /// False if the record could not be read.
    pub(crate) record_is_known: bool,
    pub(crate) now: SystemTime,
}

/// Plans. After the steps the binaries are in place if the decision is to install, and so is the configuration if an address
/// is `usable`. If another pod network is meant and no pod uses ours, our configuration is gone. A copy
/// of another network's configuration is there if a setting says so. Nothing else changes.
pub(crate) fn plan(facts: Facts<'_>, decision: &Decision, usable: bool) -> Plan {
    let Facts { settings, observed, .. } = facts;
    let mut plan = Plan::default();
    plan.steps.extend(observed.missing_directories.iter().cloned().map(Step::CreateDirectory));
    plan.steps.extend(observed.stale.iter().cloned().map(Step::RemoveStale));
    for binary in &observed.binaries {
        plan.binary(binary, facts);
    }
    if decision.install {
        plan.conflist(facts, usable);
        if plan.conflist != ConflistState::Waiting {
            plan.notes.extend(before_ours(observed));
        }
    } else if decision.oke && !observed.conf_files.iter().any(ConfFile::may_give_a_network) {
        let directory = settings.cni_conf_dir.display();
        let message = format!(
            "{directory} holds no CNI configuration that gives pods a network, and our configuration is not installed: {}",
            decision.reason
        );
        plan.notes.push(Note { kind: NoteKind::NoneThere, subject: directory.to_string(), message });
    }
    if let Some(leftover) = &observed.leftover {
        plan.leftover(leftover, settings, (&observed.conf_files, decision));
    }
    plan.copy(facts, settings.vnic_attach == VnicAttach::On && !decision.install);
    plan
}

impl Plan {
    fn binary(&mut self, binary: &Binary, facts: Facts<'_>) {
        let Binary { source, target, digest, found } = binary;
        let (target, digest) = (target.clone(), *digest);
        let replaces = match found {
            BinaryFound::Other => return self.failures.push(Error::in_the_way(&target)),
            BinaryFound::Nothing => false,
            BinaryFound::File { digest: present, mode } if *present == digest => {
                if *mode == BINARY_MODE {
                    return;
                }
                let urgency = if mode & EXECUTABLE == 0 { Urgency::PodsWait } else { Urgency::PodsStart };
                let change = format!("its mode was changed to {mode:04o}");
                match pause(binary, change, urgency, facts) {
                    Some(error) => self.failures.push(error),
                    None => self.steps.push(Step::SetMode { target, digest, was: *mode }),
                }
                return;
            }
            BinaryFound::File { .. } | BinaryFound::Link => true,
        };
        // A missing binary is always installed: without it no pod starts.
        let change = "it was replaced by another file".to_owned();
        match replaces.then(|| pause(binary, change, Urgency::PodsStart, facts)).flatten() {
            Some(error) => self.failures.push(error),
            None => self.steps.push(Step::InstallBinary { source: source.clone(), target, replaces }),
        }
    }
}

/// The error that reports the limit, if another program changed this binary too often since we installed it.
fn pause(binary: &Binary, difference: String, urgency: Urgency, facts: Facts<'_>) -> Option<Error> {
    let known = facts.record.binaries.get(binary.target.file_name()?.to_str()?)?;
    known
        .is_installed(binary.digest)
        .then(|| contention(&known.rewrites, (&binary.target, difference), urgency, facts))?
}

/// The error that reports the limit of repairs of a file, if it is reached.
fn contention(
    rewrites: &RewriteLimiter,
    (path, difference): (&Path, String),
    urgency: Urgency,
    facts: Facts<'_>,
) -> Option<Error> {
    let pause = rewrites.pause(facts.now, urgency)?;
    let times = rewrites.recent(facts.now).len();
    Some(Error::Contention { path: path.to_owned(), times, within: WINDOW, difference, pause })
}

fn before_ours(observed: &Observed) -> Vec<Note> {
    let mut notes = Vec::new();
    // A runtime reads no further than to the first that it can use; CRI-O skips one without a binary.
    let mut uses = RuntimeUsage::Always;
    for file in observed.conf_files.iter().take_while(|file| file.name.as_str() < vcn::CONFLIST_FILE) {
        match &file.contents {
            Contents::Plugins(_) => {
                let missing = observed.missing_before.get(&file.name).map_or(&[][..], Vec::as_slice);
                notes.push(Note::sorts_before(file, uses, missing));
                let passed_over = !missing.is_empty() && uses != RuntimeUsage::Never;
                uses = if passed_over { RuntimeUsage::IfCriO } else { RuntimeUsage::Never };
            }
            _ if uses != RuntimeUsage::Always => {}
            Contents::Malformed(reason) | Contents::Refused(_, reason) => {
                notes.push(Note::malformed_before(&file.name, reason));
            }
            Contents::Unread(reason) => notes.push(Note::unread_before(&file.name, reason)),
        }
    }
    notes
}
