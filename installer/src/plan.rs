//! What has to be done: a pure function of settings, decision, what was observed and what is on record.

mod conflist;
mod copy;
mod note;
mod step;
#[cfg(test)]
mod tests;

use std::time::SystemTime;

use serde_json::Value;

pub use note::{Note, NoteKind};
pub(crate) use step::{ConfChange, Step};

use crate::cli::VnicAttach;
use crate::decide::{Decision, Signal};
use crate::error::Error;
use crate::observed::{ConfFile, Fault, Leftover, Observed, ProvidedNetwork};
use crate::record::Record;
use crate::report::ConflistState;
use crate::settings::Settings;

/// It skips configurations that it cannot use.
const CRI_O: &str = "CRI-O";

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
        let is_used = !before.any(|file| file.fault.is_none());
        let kind = NoteKind::LeftBehind { another: decision.another, is_used };
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
                    leftover: Some((reason, kind)),
                });
            }
            Leftover::File(_) => {
                "there is no configuration of another pod network that a runtime could use (POD_NETWORK=none says that \
                 none is meant)"
            }
        };
        self.notes.push(Note::left_behind(kind, reason));
    }
}

/// About the configurations that sort before our configuration, up to the first that has all its plugins. containerd refuses all if
/// one is not valid, and stops at the first valid one; CRI-O skips those that it cannot use.
fn before_ours(observed: &Observed) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut runtime = "the runtime";
    for file in observed.conf_files.iter().take_while(|file| file.name.as_str() < vcn::CONFLIST_FILE) {
        let is_skipped = file.fault.is_some() || !file.missing.is_empty();
        if is_skipped && runtime == CRI_O {
            continue;
        }
        let (kind, effect) = match &file.fault {
            Some(Fault::Refused(reason)) => {
                (NoteKind::UnusableBefore, format!(" and is not a valid one, so containerd refuses all: {reason}"))
            }
            Some(Fault::Unread(reason)) => {
                let effect = "if the runtime cannot read it either, containerd refuses all";
                (NoteKind::UnusableBefore, format!(" and cannot be read from here: {reason}; {effect}"))
            }
            None if is_skipped => {
                let missing = file.missing.join(", ");
                let effect =
                    format!(": {runtime} uses that one, although it names plugins without a binary: {missing}");
                runtime = CRI_O;
                (NoteKind::LacksPlugins, effect)
            }
            None => {
                let gives = file.gives();
                let is_nothing = gives == ProvidedNetwork::Nothing;
                let nothing = if is_nothing { ", which gives pods a loopback link and no network" } else { "" };
                (NoteKind::SortsBefore { gives }, format!(": {runtime} uses that one{nothing}"))
            }
        };
        notes.push(Note::new(kind, &file.name, format!("{} sorts before our configuration{effect}", file.name)));
        if !is_skipped {
            break;
        }
    }
    notes
}
