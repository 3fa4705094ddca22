//! What has to be done: a pure function of settings, decision, what was observed and what is on record.

mod chain;
mod conflist;
mod copy;
mod leftover;
mod note;
mod step;
#[cfg(test)]
mod tests;

use std::time::SystemTime;

use serde_json::Value;

pub(crate) use copy::is_copy;
pub use note::{Note, NoteKind, RuntimeUsage};
pub(crate) use step::{ConfChange, Purpose, Step};

use crate::cli::VnicAttach;
use crate::decide::Decision;
use crate::error::Error;
use crate::observed::{Binary, BinaryFound, ConfFile, Contents, Observed};
use crate::record::Record;
use crate::report::ConflistState;
use crate::settings::Settings;

/// The mode of a plugin binary.
pub(crate) const BINARY_MODE: u32 = 0o755;

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
    /// Our part of our configuration, if it is in place and not on record.
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
        plan.binary(binary);
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
        plan.leftover(leftover, settings, &observed.conf_files, decision);
    }
    plan.copy(facts, settings.vnic_attach == VnicAttach::On && !decision.install);
    plan
}

impl Plan {
    fn binary(&mut self, binary: &Binary) {
        let Binary { source, target, found } = binary;
        let target = target.clone();
        let replaces = match found {
            BinaryFound::Other(reason) => {
                return self.failures.push(Error::InTheWay { path: target, reason: reason.clone() });
            }
            BinaryFound::Nothing => false,
            BinaryFound::File { same: true, mode } => {
                if *mode == BINARY_MODE {
                    return;
                }
                return self.steps.push(Step::SetMode { target, was: *mode });
            }
            BinaryFound::File { .. } => true,
        };
        self.steps.push(Step::InstallBinary { source: source.clone(), target, replaces });
    }
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
