//! Takes the steps of a plan. Two rules of its own: without every binary no configuration is written, and what a kill could
//! leave in place is on record before it is written.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use resident::logging::chain;
use serde_json::Value;

use crate::error::Error;
use crate::files::{is_our_plugin, name as file_name, remove, replace};
use crate::observed::{BINARY_MODE, Binary, BinaryFound, ConfAt, kind, plugins};
use crate::plan::{ConfChange, Note, Step};
use crate::record::Record;
use crate::record::backup::Backup;
use crate::report::{ConflistState, Report};
use crate::settings::Settings;

pub(crate) struct Applier<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) record: Record,
    pub(crate) report: Report,
    /// Whether each binary could be compared: it is in place, or a step puts it there.
    pub(crate) binaries_are_known: bool,
    /// Whether our pod network still owns the node: checked right before our configuration appears.
    pub(crate) still_ours: &'a dyn Fn() -> bool,
}

impl Applier<'_> {
    /// Takes the steps in order and goes on after a failure. The report lists steps taken and failures.
    pub(crate) fn apply(mut self, steps: Vec<Step>) -> Report {
        let mut binaries_in_place = self.binaries_are_known;
        for step in steps {
            let change = if let Step::ChangeConf(change) = &step { Some(change) } else { None };
            if change.is_some() && !binaries_in_place {
                continue;
            }
            match self.take(&step) {
                Ok(()) => {
                    if change.is_some_and(|change| change.is_conflist()) {
                        self.report.conflist = ConflistState::InPlace;
                    }
                    self.report.steps.push(step.to_string());
                }
                Err(error) => {
                    binaries_in_place &= change.is_some();
                    if let Step::RemoveConf { leftover: Some((_, left)), .. } = step {
                        self.report.notes.push(Note::left_behind(left, &chain(&error)));
                    }
                    self.report.failures.push(error);
                }
            }
        }
        self.report.applied = true;
        self.report
    }

    fn take(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::InstallBinary(Binary { target, found: BinaryFound::Mode(_), .. }) => {
                let set = fs::set_permissions(target, Permissions::from_mode(BINARY_MODE));
                set.map_err(Error::placing(target, "setting its mode"))
            }
            Step::InstallBinary(Binary { source, target, found }) => {
                let contents = File::open(source);
                let contents = contents.map_err(|cause| Error::Source { path: source.clone(), source: cause })?;
                if *found == BinaryFound::Other && !is_our_plugin(target).map_err(Error::reading(target))? {
                    Backup::make(target, &file_name(target), &self.settings.data_dir)?;
                }
                replace(target, contents, BINARY_MODE, |_| Ok(()))
            }
            Step::ChangeConf(change) => self.change(change),
            // Binaries stay: a runtime that has just read the configuration may start one for a pod.
            Step::RemoveConf { path, found, .. } => {
                unchanged(path, Some(found))?;
                match Backup::find(&self.settings.data_dir, &file_name(path)) {
                    Some(backup) => backup.restore(path)?,
                    None => remove(path)?,
                }
                self.forget(path)
            }
            Step::Forget { path } => self.forget(path),
        }
    }

    fn forget(&mut self, path: &Path) -> Result<(), Error> {
        let name = file_name(path);
        self.record.configurations.remove(&name);
        // What was there before us is back, or another program wrote its own. If nothing is there, uninstalling gives it back.
        let is_unneeded = self.keep() && (path.exists() || path.is_symlink());
        let backup = Backup::find(&self.settings.data_dir, &name).filter(|_| is_unneeded);
        backup.map_or(Ok(()), |backup| backup.remove())
    }

    fn change(&mut self, change: &ConfChange) -> Result<(), Error> {
        let (target, found) = (&change.target, change.found.as_ref().map(|found| &found.contents));
        let name = &file_name(target);
        // Checked now, and again right before the rename: another program's change must not be lost.
        let still_ours = self.still_ours;
        let check = || {
            unchanged(target, found)?;
            // Asking plugins and writing binaries takes seconds; a pod of another network that came since may have one of
            // our addresses.
            let appears = change.is_conflist() && found.is_none();
            if appears && !still_ours() { Err(Error::Raced { target: target.clone() }) } else { Ok(()) }
        };
        check()?;
        if change.backup {
            Backup::make(target, name, &self.settings.data_dir)?;
        }
        let known = self.record.configurations.entry(name.clone()).or_default();
        let kinds = kinds(&change.wanted);
        if !kinds.is_subset(&known.plugins) {
            known.plugins.extend(kinds);
            self.keep();
        }
        replace(target, change.text().as_bytes(), change.mode(), |_| check())?;
        if change.reverted.is_some() {
            self.record.configurations.entry(name.clone()).or_default().count(SystemTime::now());
        }
        self.note_written(name, change.wanted.clone());
        Ok(())
    }

    /// Records our part of a configuration that is in place.
    pub(crate) fn note_written(&mut self, name: &str, wanted: Value) {
        let known = self.record.configurations.entry(name.to_owned()).or_default();
        (known.plugins, known.wanted) = (kinds(&wanted), Some(wanted));
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

/// Refuses to change a configuration that another program changed since it was read.
fn unchanged(path: &Path, found: Option<&Vec<u8>>) -> Result<(), Error> {
    match ConfAt::ours(path) {
        ConfAt::Nothing if found.is_none() => Ok(()),
        ConfAt::File(now) if Some(&now.contents) == found => Ok(()),
        _ => Err(Error::Raced { target: path.to_owned() }),
    }
}

fn kinds(wanted: &Value) -> BTreeSet<String> {
    plugins(wanted).filter_map(kind).map(str::to_owned).collect()
}
