//! Removes our configurations, binaries and state, and restores earlier files. What a person put into our directories stays, and
//! so does everything else in a directory that was named by mistake.

use std::fs;
use std::io;
use std::path::Path;

use super::kernel_settings;
use crate::error::Error;
use crate::files::{entries, is_our_plugin, is_temporary, name, remove};
use crate::host_files;
use crate::observed::{ConfAt, is_copy, is_ours};
use crate::record::backup::{self, Backup};
use crate::record::{self, Record};
use crate::settings::{OURS, Settings};
use crate::uninstall::Removal;

/// Our files in the state directory; a suffix names an older generation, a damaged file or a temporary one.
const STATE: [&str; 4] = ["pools.json", "allocations.json", "verbs.log", "agent.sock"];
/// The same without a suffix.
const STATE_EXACT: [&str; 5] = ["allocations", "allocations.lock", "attachments.lock", "agent.lock", "telemetry.sock"];

/// Our files in the data directory, with a suffix or without. A NativePodNetwork that an operator put there stays.
const DATA: [&str; 12] = [
    record::FILE,
    "tables.json",
    vcn::ATTACHMENTS_COPY_FILE,
    vcn::NPN_COPY_FILE,
    vcn::VNICS_COPY_FILE,
    vcn::REPORTED_CONDITIONS_FILE,
    vcn::CONTROLLER_RULES_FILE,
    vcn::NODE_POLICY_FILE,
    vcn::NODE_POLICY_PROOFS_FILE,
    vcn::LINK_JOURNAL_FILE,
    kernel_settings::FILE,
    // Of release 0.2.0.
    "drop-ins.json",
];

/// The same without a suffix.
const DATA_EXACT: [&str; 3] = [backup::DIRECTORY, vcn::CAPTURES_FOLDER, host_files::FOLDER];

/// Our configurations go, whatever other programs added to them: without our plugin they have no interface to work on.
pub(super) fn configurations(settings: &Settings, record: &Record, removal: &mut Removal) {
    let (copy, path) = (settings.copied_conflist(), settings.conflist());
    let is_recorded = record.configurations.contains_key(vcn::COPIED_CONFLIST_FILE);
    if ConfAt::settled(&copy).file().is_some_and(|found| is_copy(found, is_recorded)) {
        removal.step(format!("remove {}", copy.display()), || remove(&copy));
    }
    let known = record.conflist();
    match ConfAt::settled(&path) {
        ConfAt::Nothing => {}
        ConfAt::File(found) if is_ours(&found, known) => {}
        // Another program replaced our file.
        ConfAt::Unread(reason) if known.is_some_and(|known| known.our_part.is_some()) => {
            return removal.failures.push(Error::InTheWay { path, reason });
        }
        _ => return removal.left.push(format!("{}: it was not written by us", path.display())),
    }
    give_back(&path, Backup::find(&settings.data_dir, vcn::CONFLIST_FILE).as_ref(), removal);
}

pub(super) fn binaries(settings: &Settings, removal: &mut Removal) {
    for plugin in OURS {
        let target = settings.cni_bin_dir.join(plugin);
        let backup = Backup::find(&settings.data_dir, plugin);
        match has_mark(&target) {
            Ok(Some(false)) => removal.left.push(format!("{}: it is not what we installed", target.display())),
            Ok(None) if backup.is_none() => {}
            Ok(_) => give_back(&target, backup.as_ref(), removal),
            Err(error) => removal.failures.push(Error::reading(&target)(error)),
        }
    }
    let paths = settings.written_directories();
    let paths = paths.iter().flat_map(|directory| entries(directory).unwrap_or_default());
    for path in paths.filter(|path| is_temporary(&name(path))) {
        removal.step(format!("remove {}", path.display()), || remove(&path));
    }
}

/// What was there before, or nothing. The copy goes at once, so that the next run does not mistake the file for our file.
fn give_back(target: &Path, backup: Option<&Backup>, removal: &mut Removal) {
    if let Some(backup) = backup {
        let step = format!("restore {} as it was before us", target.display());
        removal.step(step, || backup.restore(target).and_then(|()| backup.remove()));
    } else if fs::symlink_metadata(target).is_ok() {
        removal.step(format!("remove {}", target.display()), || remove(target));
    }
}

/// Whether a binary has our mark; `None` if nothing is there. No link has: none of our binaries is one.
fn has_mark(path: &Path) -> io::Result<Option<bool>> {
    match is_our_plugin(path) {
        _ if path.is_symlink() => Ok(Some(false)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Removes our files, copies before the record, and the directories unless they are mount points or contain something else.
pub(super) fn state(settings: &Settings, removal: &mut Removal) {
    for (directory, ours, exact) in
        [(&settings.state_dir, &STATE[..], &STATE_EXACT[..]), (&settings.data_dir, &DATA, &DATA_EXACT[..])]
    {
        let paths = match entries(directory) {
            Ok(paths) => paths,
            Err(error) => {
                removal.failures.push(Error::reading(directory)(error));
                continue;
            }
        };
        let is_suffix = |rest: &str| rest.is_empty() || rest.starts_with('.');
        let is_ours = |name: &str| {
            exact.contains(&name) || ours.iter().any(|ours| name.strip_prefix(ours).is_some_and(is_suffix))
        };
        for path in paths.iter().filter(|path| is_ours(&name(path))) {
            removal.step(format!("remove {}", path.display()), || remove_all(path));
        }
        if removal.applied && fs::remove_dir(directory).is_ok() {
            removal.steps.push(format!("remove {}", directory.display()));
        }
    }
}

fn remove_all(path: &Path) -> Result<(), Error> {
    if path.is_symlink() || !path.is_dir() {
        return remove(path);
    }
    fs::remove_dir_all(path).map_err(|source| Error::Remove { path: path.to_owned(), source })
}
