//! Removes our configurations and binaries, and restores earlier files.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::Error;
use crate::files::{irregular, is_our_plugin, remove};
use crate::observed::{ConfAt, is_ours, stale_in};
use crate::plan::is_copy;
use crate::record::Record;
use crate::record::backup::Backup;
use crate::settings::{OURS, Settings};
use crate::uninstall::Removal;

/// Our configurations go, whatever other programs added to them: without our plugin they have no interface to work on.
pub(super) fn configurations(settings: &Settings, record: &Record, removal: &mut Removal) {
    let (copy, path) = (settings.copied_conflist(), settings.conflist());
    let is_recorded = record.configurations.contains_key(vcn::COPIED_CONFLIST_FILE);
    if ConfAt::settled(&copy).file().is_some_and(|found| is_recorded || is_copy(found)) {
        removal.step(format!("remove {}", copy.display()), || remove(&copy));
    }
    let known = record.conflist();
    match ConfAt::settled(&path) {
        ConfAt::Nothing => {}
        ConfAt::File(found) if is_ours(&found, known) => {}
        // Another program replaced our file.
        ConfAt::Unread(reason) if known.is_some_and(|known| known.wanted.is_some()) => {
            return removal.failures.push(Error::InTheWay { path, reason });
        }
        _ => return removal.left.push(format!("{}: it was not written by us", path.display())),
    }
    give_back(&path, Backup::find(&settings.data_dir, vcn::CONFLIST_FILE).as_ref(), removal);
}

pub(super) fn binaries(settings: &Settings, removal: &mut Removal) {
    for name in OURS {
        let target = settings.cni_bin_dir.join(name);
        let backup = Backup::find(&settings.data_dir, name);
        match has_mark(&target) {
            Ok(Some(false)) => removal.left.push(format!("{}: it is not what we installed", target.display())),
            Ok(None) if backup.is_none() => {}
            Ok(_) => give_back(&target, backup.as_ref(), removal),
            Err(error) => removal.failures.push(Error::reading(&target)(error)),
        }
    }
    for path in settings.written_directories().iter().flat_map(|directory| stale_in(directory)) {
        removal.step(format!("remove {}", path.display()), || remove(&path));
    }
}

/// What was there before, or nothing.
fn give_back(target: &Path, backup: Option<&Backup>, removal: &mut Removal) {
    if let Some(backup) = backup {
        let step = format!("restore {} as it was before us", target.display());
        removal.step(step, || backup.restore(target));
    } else if fs::symlink_metadata(target).is_ok() {
        removal.step(format!("remove {}", target.display()), || remove(target));
    }
}

/// Whether a binary has our mark; `None` if nothing is there. No link has: none of our binaries is one.
fn has_mark(path: &Path) -> io::Result<Option<bool>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(found) if found.is_symlink() => Ok(Some(false)),
        Ok(found) if found.is_file() => is_our_plugin(path).map(Some),
        Ok(_) => Err(io::Error::other(irregular(path))),
    }
}
