//! Takes the steps of a reconcile, or in a dry run only reports them. Two rules of its own: without every binary no configuration
//! is written, and what a kill could leave in place is on record before it is written.

mod binaries;
mod conflist;
mod copy;
mod leftover;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use crate::error::Error;
use crate::files::{name as file_name, remove, replace};
use crate::libcni::kind;
use crate::note::{Note, NoteKind};
use crate::observed::{ConfAt, ConfFile, ConfText, Fault, ProvidedNetwork, chain, missing, plugins};
use crate::record::backup::Backup;
use crate::record::{Record, WINDOW};
use crate::report::{ConflistState, Report};
use crate::settings::{OURS, Settings, VNIC_ATTACH};

pub(crate) struct Applier<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) record: Record,
    /// Steps are taken if it is `applied`.
    pub(crate) report: Report,
    pub(crate) now: SystemTime,
    /// Whether our pod network still owns the node: checked right before our configuration appears.
    pub(crate) still_ours: &'a dyn Fn() -> bool,
    pub(crate) binaries_in_place: bool,
}

/// A configuration that is to be written: our own one, or our copy of another network's.
struct ConfChange {
    target: PathBuf,
    document: Value,
    /// The file when it was read; it is written only if that is still the same.
    found: Option<ConfText>,
    /// Our part of it.
    our_part: Value,
    /// What another program changed since we last wrote it.
    reverted: Option<String>,
}

impl Applier<'_> {
    /// Afterwards the binaries are in place if the decision is to install, and so is the configuration if an address is `usable`.
    /// If another pod network is meant and no pod uses our network, our configuration is gone. A copy of another network's
    /// configuration is there if a setting says so. Nothing else changes. The report lists steps taken and failures.
    pub(crate) fn apply(mut self, files: &[ConfFile], usable: bool) -> Report {
        self.binaries();
        if self.report.decision.install {
            self.conflist(usable, chain);
            if self.report.conflist != ConflistState::Waiting {
                self.report.notes.extend(conflist::before_ours(self.settings, files));
            }
        } else {
            self.leftover(files);
        }
        self.copy(files);
        if !self.report.decision.install {
            self.report.notes.extend(none_there(&self, files));
        }
        self.report
    }

    /// Takes a step, unless this is a dry run; whether that succeeded.
    fn step(&mut self, text: String, take: impl FnOnce(&mut Self) -> Result<(), Error>) -> bool {
        let failure = if self.report.applied { take(self).err() } else { None };
        let is_taken = failure.is_none();
        self.report.steps.extend(is_taken.then_some(text));
        self.report.failures.extend(failure);
        is_taken
    }

    /// Writes a configuration, unless a binary is missing or repairs of the file are limited.
    fn write(&mut self, change: ConfChange) {
        let (name, is_conflist) = (file_name(&change.target), change.is_conflist());
        if let Some(difference) = &change.reverted
            && let Some(known) = self.record.configurations.get(&name)
            && let Some(pause) = known.pause(self.now)
        {
            let set_aside = change.found.is_none().then(|| set_aside(&change.target)).flatten();
            let set_aside = set_aside.map(|name| format!(", and {name} is there instead"));
            let difference = difference.clone() + &set_aside.unwrap_or_default();
            let (path, times) = (change.target, known.recent(self.now).len());
            self.report.failures.push(Error::Contention { path, times, within: WINDOW, difference, pause });
            return;
        }
        if is_conflist {
            self.report.conflist = ConflistState::Pending;
        }
        let is_written = self.binaries_in_place && self.step(change.text(), |applier| applier.put(&name, &change));
        if is_written && is_conflist && self.report.applied {
            self.report.conflist = ConflistState::InPlace;
        }
    }

    fn put(&mut self, name: &str, change: &ConfChange) -> Result<(), Error> {
        let (target, found) = (&change.target, change.found.as_ref());
        // Checked now, and again right before the rename: another program's change must not be lost.
        let still_ours = self.still_ours;
        let check = || {
            unchanged(target, found.map(|found| &found.contents[..]))?;
            // Calling plugins and writing binaries takes seconds; a pod of another network that came since may have one of
            // our addresses.
            let appears = change.is_conflist() && found.is_none();
            if appears && !still_ours() { Err(Error::Raced { target: target.clone() }) } else { Ok(()) }
        };
        check()?;
        let was_written = self.record.configurations.get(name).is_some_and(|known| known.our_part.is_some());
        if !was_written && found.is_some_and(|found| !found.lists(&OURS)) {
            // It is another program's, unless it is damaged.
            Backup::make(target, name, &self.settings.data_dir)?;
        }
        let known = self.record.configurations.entry(name.to_owned()).or_default();
        let kinds = kinds(&change.our_part);
        if !kinds.is_subset(&known.plugins) {
            known.plugins.extend(kinds);
            self.keep();
        }
        // Readable by root alone, as the CIS benchmark demands; the runtime is root. A mode that was changed since stays.
        let mode = found.map_or(0o600, |found| found.mode);
        replace(target, format!("{:#}\n", change.document).as_bytes(), mode, |_| check())?;
        if change.reverted.is_some() {
            self.record.configurations.entry(name.to_owned()).or_default().count(self.now);
        }
        self.note_written(name, change.our_part.clone());
        Ok(())
    }

    /// Removes one of our configurations if its contents are still `found`; what was there before it comes back. Binaries stay:
    /// a runtime that has just read the configuration may start one for a pod.
    fn remove(&mut self, path: &Path, found: &[u8]) -> Result<(), Error> {
        unchanged(path, Some(found))?;
        match Backup::find(&self.settings.data_dir, &file_name(path)) {
            Some(backup) => backup.restore(path)?,
            None => remove(path)?,
        }
        self.forget(path)
    }

    /// Deletes a configuration that is gone from the record.
    fn forget(&mut self, path: &Path) -> Result<(), Error> {
        let name = file_name(path);
        self.record.configurations.remove(&name);
        // What was there before us is back, or another program wrote its own. If nothing is there, uninstalling gives it back.
        let is_unneeded = self.keep() && (path.exists() || path.is_symlink());
        let backup = Backup::find(&self.settings.data_dir, &name).filter(|_| is_unneeded);
        backup.map_or(Ok(()), |backup| backup.remove())
    }

    /// Records our part of a configuration that is in place.
    fn note_written(&mut self, name: &str, our_part: Value) {
        let known = self.record.configurations.entry(name.to_owned()).or_default();
        (known.plugins, known.our_part) = (kinds(&our_part), Some(our_part));
        self.keep();
    }

    /// Writes the record; whether that succeeded. A node whose data directory cannot be written gets its pod network
    /// nevertheless.
    fn keep(&mut self) -> bool {
        let failure = self.record.write(&self.settings.data_dir).err();
        let is_written = failure.is_none();
        let is_reported = self.report.failures.iter().any(|failure| matches!(failure, Error::NotRecorded { .. }));
        self.report.failures.extend(failure.filter(|_| !is_reported));
        is_written
    }
}

impl ConfChange {
    fn is_conflist(&self) -> bool {
        self.target.ends_with(vcn::CONFLIST_FILE)
    }

    /// Its line in the report.
    fn text(&self) -> String {
        let target = self.target.display();
        let text = match (self.is_conflist(), &self.found) {
            (true, Some(_)) => format!("replace {target}"),
            (true, None) => format!("install {target}"),
            (false, _) => format!("write {target} with {VNIC_ATTACH}"),
        };
        self.reverted.iter().fold(text, |text, reverted| format!("{text} ({reverted})"))
    }
}

/// The name that another program gave one of our files instead of removing it: Cilium appends `.cilium_bak`.
fn set_aside(target: &Path) -> Option<String> {
    let prefix = format!("{}.", file_name(target));
    let entries = fs::read_dir(target.parent()?).ok()?.flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.starts_with(&prefix)).min()
}

/// Why pods get no network on a node that is left to another one. Where its configuration is copied, they have one.
fn none_there(applier: &Applier<'_>, files: &[ConfFile]) -> Option<Note> {
    let (decision, settings) = (&applier.report.decision, applier.settings);
    let directory = settings.cni_conf_dir.display().to_string();
    let is_used = |file: &&ConfFile| match file.fault {
        Some(Fault::Refused(_)) => false,
        Some(Fault::Unread(_)) => true,
        None => missing(settings, file).is_empty(),
    };
    let used =
        files.iter().find(is_used).filter(|file| file.fault.is_none() && file.gives() == ProvidedNetwork::Nothing);
    let why = match used {
        _ if settings.copied_conflist().exists() => return None,
        Some(file) => {
            let (name, kinds) = (&file.name, file.kinds().collect::<Vec<_>>().join(", "));
            format!(
                "the runtime uses {name} of {directory}, whose plugins ({kinds}) make no interface: pods get no network"
            )
        }
        None if !decision.oke || files.iter().any(ConfFile::may_give_a_network) => return None,
        None => format!("{directory} holds no CNI configuration that gives pods a network"),
    };
    let message = format!("{why}; our configuration is not installed: {}", decision.reason);
    Some(Note::new(NoteKind::NoneThere, directory, message))
}

/// Refuses to change a configuration that another program changed since it was read.
fn unchanged(path: &Path, found: Option<&[u8]>) -> Result<(), Error> {
    match ConfAt::ours(path) {
        ConfAt::Nothing if found.is_none() => Ok(()),
        ConfAt::File(now) if Some(&now.contents[..]) == found => Ok(()),
        _ => Err(Error::Raced { target: path.to_owned() }),
    }
}

fn kinds(document: &Value) -> BTreeSet<String> {
    plugins(document).filter_map(kind).map(str::to_owned).collect()
}
