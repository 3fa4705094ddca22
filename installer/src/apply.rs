//! Taking the steps of a plan. It has no opinion, save two: without every binary there is no configuration, and what we do
//! is remembered before it is done.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::observed::At;
use crate::place::{NewFile, place, place_unless};
use crate::plan::{BINARY_MODE, Leaving, Purpose, Replaced, Writing};
use crate::record::{Before, Configuration, Record, RecordFile};
use crate::report::chain;
use crate::{Conflist, Digest, Error, Note, Report, Step, directory};

/// Whoever takes the steps.
pub(crate) struct Applier<'a> {
    /// What we did so far.
    pub(crate) record: &'a mut Record,
    /// Where that is kept.
    pub(crate) file: &'a RecordFile,
    /// Whether what is found in our places is an earlier release's, which remembered nothing.
    pub(crate) inherited: bool,
    /// Whether it is still decided that the pod network is ours: asked when our configuration is about to appear.
    pub(crate) still_ours: &'a dyn Fn() -> bool,
    /// The time.
    pub(crate) now: SystemTime,
}

impl Applier<'_> {
    /// Takes the steps in order and goes on after a failure; the report says which were taken and what failed.
    pub(crate) fn apply(mut self, steps: Vec<Step>, mut report: Report) -> Report {
        let mut complete = !report.failures.iter().any(Error::concerns_binaries);
        for step in steps {
            let needs_binaries = matches!(&step, Step::WriteConflist(writing) if writing.purpose != Purpose::Unchain);
            if needs_binaries && !complete {
                continue;
            }
            match self.take(&step, &mut report.failures) {
                Ok(()) => {
                    if matches!(&step, Step::WriteConflist(writing) if writing.purpose == Purpose::Ours) {
                        report.conflist = Conflist::InPlace;
                    }
                    report.steps.push(step);
                }
                Err(error) => {
                    if let Step::TakeOut(leaving) = &step {
                        let (first, reason) = (leaving.first, chain(&error));
                        report.notes.push(Note::LeftBehind { another: true, first, reason });
                    }
                    complete &= matches!(step, Step::RemoveStale(_) | Step::WriteConflist(_));
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
            Step::CreateDirectory(path) => directory::create(path).map_err(failed(path, "creating the directory")),
            Step::RemoveStale(path) => match fs::remove_file(path) {
                // Another installer was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other.map_err(failed(path, "removing the stale file")),
            },
            Step::InstallBinary { source, target, digest, replaces } => {
                let contents =
                    fs::read(source).map_err(|cause| Error::Source { path: source.clone(), source: cause })?;
                if Digest::of(&contents) != *digest {
                    return Err(Error::SourceChanged { path: source.clone() });
                }
                let undone = replaces.is_some() && self.is_remembered(target, *digest);
                self.remember_binary(target, *digest, *replaces, failures)?;
                place(NewFile::ours(target, &contents, BINARY_MODE))?;
                if undone {
                    self.record.binaries.entry(file_name(target)).or_default().fights.fought(self.now);
                    self.keep(failures);
                }
                Ok(())
            }
            Step::SetMode { target, digest, .. } => {
                directory::set_mode(target, BINARY_MODE).map_err(failed(target, "setting its mode"))?;
                let known = self.record.binaries.entry(file_name(target)).or_default();
                known.digest.get_or_insert_with(|| digest.to_string());
                known.fights.fought(self.now);
                self.keep(failures);
                Ok(())
            }
            Step::WriteConflist(writing) => self.write(writing, failures),
            Step::TakeOut(leaving) => self.take_out(leaving, failures),
            Step::Forget { name } => {
                let known = self.record.configurations.remove(name);
                self.let_go(known, failures);
                Ok(())
            }
        }
    }

    /// Whether this is what we put there last.
    fn is_remembered(&self, target: &Path, digest: Digest) -> bool {
        let known = self.record.binaries.get(&file_name(target));
        known.is_some_and(|known| known.digest == Some(digest.to_string()))
    }

    fn remember_binary(
        &mut self,
        target: &Path,
        digest: Digest,
        replaces: Option<Replaced>,
        failures: &mut Vec<Error>,
    ) -> Result<(), Error> {
        let name = file_name(target);
        let first = !self.record.binaries.contains_key(&name);
        let before = if first && replaces.is_some() && !self.inherited {
            Before::keep(target, self.file.directory())?
        } else {
            None
        };
        let irreplaceable = before.is_some();
        let binary = self.record.binaries.entry(name.clone()).or_default();
        binary.before = before.or(binary.before.take());
        let digest = Some(digest.to_string());
        if binary.digest == digest {
            return Ok(());
        }
        // Until the new one is in place, the old one is ours as well. One that never came to its place is not remembered.
        if matches!(replaces, Some(Replaced::File(there)) if binary.digest == Some(there.to_string())) {
            binary.earlier = binary.digest.take();
        }
        binary.digest = digest;
        if !self.keep(failures) && irreplaceable {
            // What cannot be given back is not replaced.
            self.record.binaries.remove(&name);
            return failures.pop().map_or(Ok(()), Err);
        }
        Ok(())
    }

    fn write(&mut self, writing: &Writing, failures: &mut Vec<Error>) -> Result<(), Error> {
        let Writing { name, target, contents, mode, found, link, wanted, purpose, disturbed } = writing;
        // Somebody was faster: what he wrote has to be looked at first. Asked now, and again at the last moment.
        let unless = || {
            let same = match At::look(target) {
                At::Nothing => found.is_none() && link.is_none(),
                At::File(now) => Some(&now.contents) == found.as_ref(),
                At::Link(now) => Some(&now) == link.as_ref(),
                At::Unread(_) => false,
            };
            // Asking plugins and writing binaries takes seconds; a pod of another network that came since has one of the
            // addresses that ours would give away.
            let appears = *purpose == Purpose::Ours && found.is_none() && link.is_none();
            if same && (!appears || (self.still_ours)()) {
                Ok(())
            } else {
                Err(Error::Raced { target: target.clone() })
            }
        };
        unless()?;
        let remembered = self.record.configurations.get(name).cloned();
        let mut remembering = true;
        if *purpose != Purpose::Unchain {
            let there = found.is_some() || link.is_some();
            let foreign = *purpose == Purpose::Ours && there && remembered.is_none() && !self.inherited;
            let before = if foreign { Before::keep(target, self.file.directory())? } else { None };
            let irreplaceable = before.is_some();
            let known = self.record.configurations.entry(name.clone()).or_default();
            known.before = before.or(known.before.take());
            known.begin(found.as_deref(), contents, wanted);
            if !disturbed.is_empty() {
                known.fights.fought(self.now);
            }
            remembering = self.keep(failures);
            if !remembering && irreplaceable {
                // What cannot be given back is not replaced.
                self.record.configurations.remove(name);
                return failures.pop().map_or(Ok(()), Err);
            }
        }
        let placed = place_unless(NewFile::ours(target, contents.as_bytes(), *mode), &unless);
        match (&placed, purpose) {
            (Ok(()), Purpose::Unchain) => {
                self.record.configurations.remove(name);
                self.keep(failures);
            }
            (Err(_), Purpose::Ours | Purpose::Chain) => self.take_back(name, remembered, failures),
            (Ok(()), Purpose::Ours | Purpose::Chain) => {
                let settled = self.record.configurations.get_mut(name).is_some_and(Configuration::settle);
                if settled && remembering {
                    self.keep(failures);
                }
            }
            (Err(_), Purpose::Unchain) => {}
        }
        placed
    }

    /// Binaries stay: a runtime that read the configuration a moment ago may start one for a pod that it was starting.
    fn take_out(&mut self, leaving: &Leaving, failures: &mut Vec<Error>) -> Result<(), Error> {
        let Leaving { path, target, found, .. } = leaving;
        let now = At::look(path);
        let same = match found {
            Some(found) => now.file().is_some_and(|now| now.target == *target && now.contents == *found),
            None => now.leads_nowhere(path),
        };
        if !same {
            return Err(Error::Raced { target: target.clone() });
        }
        let before = self.record.configurations.get(vcn::CONFLIST_FILE).and_then(|known| known.before.as_ref());
        match before {
            Some(before) => before.give_back(target, self.file.directory())?,
            None => {
                // A link that leads nowhere is a configuration that cannot be read: the runtime would refuse all of them. So
                // the file takes the place of the link before it goes; whoever is stopped in between leaves what can go.
                if target != path {
                    fs::rename(target, path).map_err(|source| Error::Remove { path: target.clone(), source })?;
                }
                fs::remove_file(path).map_err(|source| Error::Remove { path: path.clone(), source })?;
            }
        }
        let known = self.record.configurations.remove(vcn::CONFLIST_FILE);
        self.let_go(known, failures);
        Ok(())
    }

    /// What was not written is not remembered as written: it would be taken for somebody's undoing.
    fn take_back(&mut self, name: &str, remembered: Option<Configuration>, failures: &mut Vec<Error>) {
        let known = match remembered {
            Some(known) => self.record.configurations.insert(name.to_owned(), known),
            None => self.record.configurations.remove(name),
        };
        self.let_go(known, failures);
    }

    /// Keeps the record, which no longer says what it said of a configuration. The copy of what was there before us goes
    /// after that, when no record on the disk needs it: of one that no record names a person would be asked.
    fn let_go(&mut self, known: Option<Configuration>, failures: &mut Vec<Error>) {
        let before = known.and_then(|known| known.before);
        if self.keep(failures)
            && let Some(before) = before
            && !self.record.before().any(|other| other.digest == before.digest)
        {
            failures.extend(before.remove_copy(self.file.directory()).err());
        }
    }

    /// A node whose data directory cannot be written still gets its pods' network.
    fn keep(&mut self, failures: &mut Vec<Error>) -> bool {
        let failure = self.file.keep(self.record).err();
        let done = failure.is_none();
        failures.extend(failure);
        done
    }
}

fn file_name(target: &Path) -> String {
    target.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
