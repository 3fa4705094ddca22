//! Removes our configurations and binaries, and restores earlier files.

use std::fs;
use std::io;
use std::path::Path;

use crate::files::{Digest, remove};
use crate::observed::{ConfAt, ConfFile, conf_files, is_ours, stale_in};
use crate::plan::is_copy;
use crate::record::backup::Backup;
use crate::record::{ConfigurationRecord, Record};
use crate::settings::OURS;
use crate::{Error, Removal, Settings};

/// Our configurations go, whatever other programs added to them: without our plugin they have no interface to work on.
pub(super) fn configurations(settings: &Settings, record: &Record, removal: &mut Removal) {
    let copy = settings.copied_conflist();
    let recorded = record.configurations.contains_key(vcn::COPIED_CONFLIST_FILE);
    if ConfAt::settled(&copy, ConfAt::ours).file().is_some_and(|found| recorded || is_copy(found)) {
        removal.step(format!("remove {}", copy.display()), || remove(&copy));
    }
    let known = record.configurations.get(vcn::CONFLIST_FILE);
    let path = settings.conflist();
    match ConfAt::settled(&path, ConfAt::ours) {
        ConfAt::Nothing => {}
        ConfAt::File(found) if is_ours(&found, known) => {}
        // Another program replaced our file.
        ConfAt::Unread(reason) if known.is_some_and(ConfigurationRecord::is_written) => {
            return removal.failures.push(Error::InTheWay { path, reason });
        }
        _ => return removal.left.push(format!("{}: it was not written by us", path.display())),
    }
    give_back(&path, Backup::find(&settings.data_dir, vcn::CONFLIST_FILE).as_ref(), removal);
}

/// The configuration that may be another pod network's: pods get it now, or get it next.
pub(super) fn another_network(settings: &Settings) -> Option<String> {
    let files = conf_files(&settings.cni_conf_dir).unwrap_or_default();
    files.into_iter().find(ConfFile::may_give_another_network).map(|file| file.name)
}

/// Whether pods certainly get a network from a foreign configuration.
pub(super) fn has_network(settings: &Settings) -> bool {
    conf_files(&settings.cni_conf_dir).unwrap_or_default().iter().any(ConfFile::gives_another_network)
}

/// Binaries go if they are what we installed.
pub(super) fn binaries(settings: &Settings, record: &Record, removal: &mut Removal) {
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
        let is_ours =
            |found: &String| known.is_some_and(|known| known.digests.contains(found)) || source.as_ref() == Some(found);
        // Without a record, a configuration that names it shows that we installed it.
        let inherited = record.binaries.is_empty() && removal.has_removed_configuration(settings);
        let backup = Backup::find(&settings.data_dir, name);
        match &found {
            Some(found) if !is_ours(found) && !inherited => {
                removal.left.push(format!("{}: it is not what we installed", target.display()));
            }
            Some(_) => give_back(&target, backup.as_ref(), removal),
            None if backup.is_some() => give_back(&target, backup.as_ref(), removal),
            None => {}
        }
    }
    for directory in &settings.written_directories() {
        for path in stale_in(directory) {
            removal.step(format!("remove {}", path.display()), || remove(&path));
        }
    }
}

impl Removal {
    fn has_removed_configuration(&self, settings: &Settings) -> bool {
        let path = settings.conflist().display().to_string();
        self.steps.iter().any(|step| step.contains(&path))
    }
}

/// What was there before, or nothing. The copy goes at once, so that the next run does not mistake it for our file.
fn give_back(target: &Path, backup: Option<&Backup>, removal: &mut Removal) {
    match backup {
        Some(backup) => {
            let step = format!("restore {} as it was before us", target.display());
            removal.step(step, || backup.restore(target).and_then(|()| backup.remove()));
        }
        None if fs::symlink_metadata(target).is_ok() => {
            removal.step(format!("remove {}", target.display()), || remove(target));
        }
        None => {}
    }
}

/// A file's digest. A link has none that we ever installed.
fn digest(path: &Path) -> Result<Option<String>, Error> {
    let of = |path: &Path| match fs::symlink_metadata(path)? {
        found if found.is_symlink() => Ok("a link".to_owned()),
        found if found.is_file() => Digest::of_file(path).map(|digest| digest.to_string()),
        _ => Err(io::Error::other("it is a directory or special file; move it away")),
    };
    match of(path) {
        Ok(digest) => Ok(Some(digest)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}
