//! The files: ours go, and what was there before us comes back.

use std::fs;
use std::io;
use std::path::Path;

use super::Removal;
use crate::entry::OURS;
use crate::observed::{ConfText, Contents, stale_in};
use crate::place::{NewFile, place};
use crate::plan::{Writing, unchain};
use crate::record::{Before, Binary, Configuration, Record};
use crate::{Digest, Error, Settings, Step};

/// Configurations: ours goes, whatever others have put into it, for without our plugin they have no interface to work on;
/// out of others' only our entry goes.
pub(super) fn configurations(settings: &Settings, record: &Record, removal: &mut Removal) {
    for (name, known) in &record.configurations {
        if name != vcn::CONFLIST_FILE {
            host(settings, (name, known), removal);
        }
    }
    let none = Configuration::default();
    let known = record.configurations.get(vcn::CONFLIST_FILE);
    let path = settings.conflist();
    let found = match ConfText::read(&path) {
        Ok(found) => found,
        Err(error) => return removal.failures.push(error),
    };
    let is_ours = |found: &ConfText| matches!(Contents::parse(&found.contents), Contents::Plugins(kinds) if kinds.iter().any(|kind| OURS.contains(&kind.as_str())));
    let ours = known.is_some() || found.as_ref().is_some_and(is_ours);
    if let (false, Some(_)) = (ours, &found) {
        return removal.left.push(format!("{}: it was not written by us", path.display()));
    }
    let target = found.as_ref().map(|found| found.target.clone());
    let before = known.unwrap_or(&none).before.as_ref();
    give_back(target.as_deref().unwrap_or(&path), before, settings, removal);
    // A link that leads nowhere is a configuration that cannot be read: the runtime would refuse all of them.
    if before.is_none() && path.is_symlink() {
        removal.step(format!("remove the link {}", path.display()), || remove(&path));
    }
}

fn host(settings: &Settings, (name, known): (&str, &Configuration), removal: &mut Removal) {
    let found = match ConfText::read(&settings.cni_conf_dir.join(name)) {
        Ok(found) => found,
        Err(error) => return removal.failures.push(error),
    };
    if let Some(step @ Step::WriteConflist(_)) = unchain(name, found.as_ref(), known) {
        let what = step.to_string();
        let Step::WriteConflist(writing) = step else { return };
        removal.step(what, || {
            let Writing { target, contents, mode, .. } = writing.as_ref();
            place(NewFile { target, contents: contents.as_bytes(), mode: *mode })
        });
    }
}

/// Binaries, where they are what we put there.
pub(super) fn binaries(settings: &Settings, record: &Record, removal: &mut Removal) {
    let none = Binary::default();
    for name in OURS {
        let target = settings.cni_bin_dir.join(name);
        let known = record.binaries.get(name);
        let found = match digest(&target) {
            Ok(found) => found,
            Err(error) => {
                removal.failures.push(error);
                continue;
            }
        };
        let source = digest(&settings.source_dir.join(name)).ok().flatten();
        let ours = [known.and_then(|known| known.digest.clone()), source];
        // An earlier release, which remembered nothing, left a configuration that names it.
        let unknown = record.binaries.is_empty() && removal.has_removed_configuration(settings);
        if found.is_some() && !ours.contains(&found) && !unknown {
            removal.left.push(format!("{}: it is not what we put there", target.display()));
        } else if found.is_some() || known.is_some() {
            give_back(&target, known.unwrap_or(&none).before.as_ref(), settings, removal);
        }
    }
    for directory in &settings.written_directories() {
        for path in stale_in(directory, std::time::SystemTime::now(), std::time::Duration::ZERO) {
            removal.step(format!("remove {}", path.display()), || remove(&path));
        }
    }
}

impl Removal {
    fn has_removed_configuration(&self, settings: &Settings) -> bool {
        self.steps.contains(&format!("remove {}", settings.conflist().display()))
    }
}

/// What was there before, or nothing.
fn give_back(target: &Path, before: Option<&Before>, settings: &Settings, removal: &mut Removal) {
    match before {
        Some(before) => {
            let what = format!("give back {} as it was before us", target.display());
            removal.step(what, || before.give_back(target, &settings.data_dir));
        }
        None if fs::symlink_metadata(target).is_ok() => {
            removal.step(format!("remove {}", target.display()), || remove(target));
        }
        None => {}
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| Error::Remove { path: path.to_owned(), source }),
    }
}

fn digest(path: &Path) -> Result<Option<String>, Error> {
    match fs::read(path) {
        Ok(contents) => Ok(Some(Digest::of(&contents).to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}
