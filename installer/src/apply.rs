//! Takes the steps of a plan. Two rules of its own: without every binary no configuration is written, and what a kill could
//! leave in place is on record before it is written.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::SystemTime;

use resident::logging::chain;
use serde_json::Value;

use crate::error::Error;
use crate::files::{is_our_plugin, remove, write, write_if};
use crate::observed::{ConfAt, kind};
use crate::plan::{BINARY_MODE, ConfChange, Note, Purpose, RuntimeUsage, Step};
use crate::record::backup::Backup;
use crate::record::{Record, RecordFile};
use crate::report::{ConflistState, Report};
use crate::settings::Settings;

/// Of a directory of the runtime.
const DIRECTORY_MODE: u32 = 0o755;

/// Takes steps.
pub(crate) struct Applier<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) record: &'a mut Record,
    pub(crate) file: &'a RecordFile,
    /// Whether our pod network still owns the node: checked right before our configuration appears.
    pub(crate) still_ours: &'a dyn Fn() -> bool,
    pub(crate) now: SystemTime,
}

impl Applier<'_> {
    /// Takes the steps in order and goes on after a failure. The report lists steps taken and failures.
    pub(crate) fn apply(mut self, steps: Vec<Step>, mut report: Report) -> Report {
        let mut binaries_in_place = !report.failures.iter().any(concerns_binaries);
        for step in steps {
            let purpose = if let Step::ChangeConf(change) = &step { Some(change.purpose) } else { None };
            if purpose.is_some() && !binaries_in_place {
                continue;
            }
            match self.take(&step, &mut report.failures) {
                Ok(()) => {
                    if purpose == Some(Purpose::Ours) {
                        report.conflist = ConflistState::InPlace;
                    }
                    report.steps.push(step.to_string());
                }
                Err(error) => {
                    if let Step::RemoveConflist { first, .. } = step {
                        let uses = RuntimeUsage::of_first(first);
                        report.notes.push(Note::left_behind(true, uses, &chain(&error)));
                    }
                    binaries_in_place &= matches!(step, Step::RemoveStale(_) | Step::ChangeConf(_));
                    report.failures.push(error);
                }
            }
        }
        report.applied = true;
        report
    }

    fn take(&mut self, step: &Step, failures: &mut Vec<Error>) -> Result<(), Error> {
        let failed = |target: &Path, action| {
            let target = target.to_path_buf();
            move |source| Error::Place { target, action, source }
        };
        match step {
            Step::CreateDirectory(path) => {
                let created = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
                created.map_err(failed(path, "creating the directory"))
            }
            Step::RemoveStale(path) => remove(path),
            Step::InstallBinary { source, target, replaces } => {
                let contents = fs::read(source);
                let contents = contents.map_err(|cause| Error::Source { path: source.clone(), source: cause })?;
                self.install(target, &contents, *replaces)
            }
            Step::SetMode { target, .. } => {
                let set = fs::set_permissions(target, Permissions::from_mode(BINARY_MODE));
                set.map_err(failed(target, "setting its mode"))
            }
            Step::ChangeConf(change) => self.change(change, failures),
            Step::RemoveConflist { path, found, .. } => self.remove_conflist(path, found, failures),
            Step::RemoveCopy { path, found } => {
                same(path, Some(found))?;
                remove(path)?;
                self.record.configurations.remove(vcn::COPIED_CONFLIST_FILE);
                self.keep(failures);
                Ok(())
            }
            Step::Forget { path } => {
                let name = file_name(path);
                self.record.configurations.remove(&name);
                // What was there before us is back, or another program wrote its own. If nothing is there, uninstalling
                // gives it back.
                if self.keep(failures) && (name != vcn::CONFLIST_FILE || path.exists()) {
                    self.drop_backup(&name)?;
                }
                Ok(())
            }
        }
    }

    fn install(&self, target: &Path, contents: &[u8], replaces: bool) -> Result<(), Error> {
        let read = |source| Error::Read { path: target.to_owned(), source };
        if replaces && !is_our_plugin(target).map_err(read)? {
            self.back_up(target, &file_name(target))?;
        }
        write(target, contents, BINARY_MODE)
    }

    fn change(&mut self, change: &ConfChange, failures: &mut Vec<Error>) -> Result<(), Error> {
        let ConfChange { target, contents, mode, found, wanted, purpose, .. } = change;
        let name = &file_name(target);
        // Checked now, and again right before the rename: another program's change must not be lost.
        let check = || {
            same(target, found.as_ref())?;
            // Asking plugins and writing binaries takes seconds; a pod of another network that came since may have one of
            // our addresses.
            let appears = *purpose == Purpose::Ours && found.is_none();
            if appears && !(self.still_ours)() { Err(Error::Raced { target: target.clone() }) } else { Ok(()) }
        };
        check()?;
        if change.backup {
            self.back_up(target, name)?;
        }
        let known = self.record.configurations.entry(name.clone()).or_default();
        let plugins = plugins(wanted);
        if !plugins.is_subset(&known.plugins) {
            known.plugins.extend(plugins.iter().cloned());
            self.keep(failures);
        }
        write_if(target, contents, *mode, &check)?;
        let known = self.record.configurations.entry(name.clone()).or_default();
        (known.wanted, known.plugins) = (Some(wanted.clone()), plugins);
        if change.reverted.is_some() {
            known.rewrites.count(self.now);
        }
        self.keep(failures);
        Ok(())
    }

    /// Binaries stay: a runtime that has just read the configuration may start one for a pod.
    fn remove_conflist(&mut self, path: &Path, found: &Vec<u8>, failures: &mut Vec<Error>) -> Result<(), Error> {
        same(path, Some(found))?;
        match Backup::find(&self.settings.data_dir, vcn::CONFLIST_FILE) {
            Some(backup) => backup.restore(path)?,
            None => remove(path)?,
        }
        self.record.configurations.remove(vcn::CONFLIST_FILE);
        if self.keep(failures) {
            self.drop_backup(vcn::CONFLIST_FILE)?;
        }
        Ok(())
    }

    /// What cannot be copied is not replaced. Of our own names the first copy is the one from before us.
    fn back_up(&self, path: &Path, name: &str) -> Result<(), Error> {
        let data_dir = &self.settings.data_dir;
        match Backup::find(data_dir, name) {
            Some(_) => Ok(()),
            None => Backup::make(path, name, data_dir),
        }
    }

    fn drop_backup(&self, name: &str) -> Result<(), Error> {
        Backup::find(&self.settings.data_dir, name).map_or(Ok(()), |backup| backup.remove())
    }

    /// A node whose data directory cannot be written gets its pod network nevertheless.
    fn keep(&self, failures: &mut Vec<Error>) -> bool {
        let failure = self.file.write(self.record).err();
        let written = failure.is_none();
        let reported = failures.iter().any(|failure| matches!(failure, Error::NotRecorded { .. }));
        failures.extend(failure.filter(|_| !reported));
        written
    }
}

/// Refuses to change a configuration that another program changed since it was read.
fn same(path: &Path, found: Option<&Vec<u8>>) -> Result<(), Error> {
    let same = match ConfAt::ours(path) {
        ConfAt::Nothing => found.is_none(),
        ConfAt::File(now) => Some(&now.contents) == found,
        ConfAt::Unread(_) => false,
    };
    if same { Ok(()) } else { Err(Error::Raced { target: path.to_owned() }) }
}

/// The plugins that a document, or an entry in another program's, puts in.
pub(crate) fn plugins(wanted: &Value) -> BTreeSet<String> {
    let listed = wanted.get("plugins").and_then(Value::as_array).into_iter().flatten();
    listed.chain([wanted]).filter_map(kind).map(str::to_owned).collect()
}

/// Whether a binary may be missing because of a failure.
const fn concerns_binaries(error: &Error) -> bool {
    !matches!(error, Error::Contention { .. } | Error::Record { .. } | Error::NotRecorded { .. } | Error::Raced { .. })
}

fn file_name(target: &Path) -> String {
    target.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
