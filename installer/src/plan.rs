//! What has to be done: a pure function of settings, decision, what was observed and what is on record.

mod conflist;
mod copy;
mod note;
mod step;
#[cfg(test)]
mod tests;

use std::time::SystemTime;

use serde_json::Value;

pub use note::{Note, NoteKind, RuntimeUsage};
pub(crate) use step::{ConfChange, Step};

use crate::cli::VnicAttach;
use crate::decide::{Decision, Signal};
use crate::error::Error;
use crate::observed::{ConfFile, Fault, Leftover, Observed, ProvidedNetwork};
use crate::record::Record;
use crate::report::ConflistState;
use crate::settings::Settings;

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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) observed: &'a Observed,
    pub(crate) record: &'a Record,
    pub(crate) now: SystemTime,
}

/// Plans. After the steps the binaries are in place if the decision is to install, and so is the configuration if an address
/// is `usable`. If another pod network is meant and no pod uses ours, our configuration is gone. A copy
/// of another network's configuration is there if a setting says so. Nothing else changes.
pub(crate) fn plan(facts: Facts<'_>, decision: &Decision, usable: bool) -> Plan {
    let Facts { settings, observed, .. } = facts;
    let mut plan = Plan::default();
    plan.steps.extend(observed.stale.iter().cloned().map(Step::RemoveStale));
    plan.steps.extend(observed.binaries.iter().cloned().map(Step::InstallBinary));
    if decision.install {
        plan.conflist(facts, usable);
        if plan.conflist != ConflistState::Waiting {
            plan.notes.extend(before_ours(observed));
        }
    } else if decision.oke && !observed.conf_files.iter().any(ConfFile::may_give_a_network) {
        let directory = settings.cni_conf_dir.display().to_string();
        let message = format!(
            "{directory} holds no CNI configuration that gives pods a network, and our configuration is not installed: {}",
            decision.reason
        );
        plan.notes.push(Note::new(NoteKind::NoneThere, directory, message));
    }
    if let Some(leftover) = &observed.leftover {
        plan.leftover(leftover, facts, decision);
    }
    plan.copy(facts, settings.vnic_attach == VnicAttach::On && !decision.install);
    plan
}

impl Plan {
    /// Our configuration on a node of another pod network: a runtime that finds it starts pods with it, and no agent offers
    /// them addresses. It goes when another network is meant for sure, no pod uses our network, and pods have another network
    /// or shall have none.
    fn leftover(&mut self, leftover: &Leftover, facts: Facts<'_>, decision: &Decision) {
        let (path, files) = (facts.settings.conflist(), &facts.observed.conf_files);
        let mut before = files.iter().take_while(|file| file.name != vcn::CONFLIST_FILE);
        let uses = if before.any(|file| file.fault.is_none()) { RuntimeUsage::Never } else { RuntimeUsage::Always };
        let none_is_meant = decision.decided_by == Signal::Setting;
        let reason = match leftover {
            // Until that is certain, a missing configuration is repaired.
            Leftover::Record if !decision.another => return,
            Leftover::Record => return self.steps.push(Step::Forget { path }),
            _ if !decision.another => "no signal says for sure that the pod network is another",
            Leftover::Blocked(reason) => reason,
            Leftover::File(found) if none_is_meant || files.iter().any(ConfFile::gives_another_network) => {
                let reason = format!("the pod network is another ({})", decision.decided_by);
                return self.steps.push(Step::RemoveConf {
                    path,
                    found: found.clone(),
                    leftover: Some((reason, uses)),
                });
            }
            Leftover::File(_) => {
                "there is no configuration of another pod network that a runtime could use (POD_NETWORK=none says that \
                 none is meant)"
            }
        };
        self.notes.push(Note::left_behind(decision.another, uses, reason));
    }
}

fn before_ours(observed: &Observed) -> Vec<Note> {
    let mut notes = Vec::new();
    // A runtime reads no further than to the first that it can use; CRI-O skips one without a binary.
    let mut uses = RuntimeUsage::Always;
    for file in observed.conf_files.iter().take_while(|file| file.name.as_str() < vcn::CONFLIST_FILE) {
        let name = &file.name;
        match &file.fault {
            None => {
                notes.push(sorts_before(file, uses));
                let passed_over = !file.missing.is_empty() && uses != RuntimeUsage::Never;
                uses = if passed_over { RuntimeUsage::IfCriO } else { RuntimeUsage::Never };
            }
            _ if uses != RuntimeUsage::Always => {}
            Some(Fault::Refused(reason)) => {
                let message = format!(
                    "{name} sorts before our configuration and is not a valid one, so containerd refuses all: {reason}"
                );
                notes.push(Note::new(NoteKind::MalformedBefore, name, message));
            }
            Some(Fault::Unread(reason)) => {
                let message = format!(
                    "{name} sorts before our configuration and cannot be read from here: {reason}; if the runtime cannot \
                     read it either, containerd refuses all"
                );
                notes.push(Note::new(NoteKind::UnreadBefore, name, message));
            }
        }
    }
    notes
}

fn sorts_before(file: &ConfFile, uses: RuntimeUsage) -> Note {
    let (gives, lacks_plugins) = (file.gives(), !file.missing.is_empty());
    let mut message = file.name.clone();
    message += match uses {
        RuntimeUsage::Always => " sorts before our configuration: the runtime uses that one",
        RuntimeUsage::IfCriO if !lacks_plugins => {
            " also sorts before our configuration: CRI-O uses that one, because those before it lack plugins"
        }
        RuntimeUsage::IfCriO | RuntimeUsage::Never => " also sorts before our configuration",
    };
    if gives == ProvidedNetwork::Nothing {
        message += ", which gives pods a loopback link and no network";
    }
    if lacks_plugins {
        let lacks = if uses == RuntimeUsage::Always { "although it" } else { "and" };
        message += &format!(", {lacks} names plugins without a binary: {}", file.missing.join(", "));
    }
    Note::new(NoteKind::SortsBefore { gives, uses, lacks_plugins }, &file.name, message)
}
