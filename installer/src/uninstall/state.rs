//! Our files in the state and data directories. What a person put there stays, and so does everything else in a directory
//! that was named by mistake.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::kernel_settings;
use crate::error::Error;
use crate::record::{self, backup};
use crate::settings::Settings;
use crate::uninstall::Removal;

/// Our files in the state directory; a suffix names an older generation, a damaged file or a temporary one.
const STATE: [&str; 4] = ["pools.json", "allocations.json", "verbs.log", "agent.sock"];
/// The same without a suffix.
const STATE_EXACT: [&str; 5] = ["allocations", "allocations.lock", "attachments.lock", "agent.lock", "telemetry.sock"];

/// Ours in the data directory, with a suffix or without. A NativePodNetwork that an operator put there is not ours.
const DATA: [&str; 9] = [
    record::FILE,
    "tables.json",
    vcn::ATTACHMENTS_COPY_FILE,
    vcn::NPN_COPY_FILE,
    vcn::VNICS_COPY_FILE,
    vcn::REPORTED_CONDITIONS_FILE,
    vcn::CONTROLLER_RULES_FILE,
    kernel_settings::FILE,
    // Of release 0.2.0.
    "drop-ins.json",
];

/// Removes our files, copies before the record, and the directories unless they are mount points or contain something else.
pub(super) fn remove(settings: &Settings, removal: &mut Removal) {
    let (state, data) = (&settings.state_dir, &settings.data_dir);
    remove_files(state, &STATE, &STATE_EXACT, removal);
    remove_file(&data.join(backup::DIRECTORY), removal);
    remove_files(data, &DATA, &[], removal);
    for directory in [state, data] {
        if directory.exists() && removal.applied && fs::remove_dir(directory).is_ok() {
            removal.steps.push(format!("remove {}", directory.display()));
        }
    }
}

fn remove_files(directory: &Path, ours: &[&str], exact: &[&str], removal: &mut Removal) {
    let is_ours = |path: &PathBuf| {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
        let generation = |rest: &str| rest.is_empty() || rest.starts_with('.');
        exact.contains(&name) || ours.iter().any(|ours| name.strip_prefix(ours).is_some_and(generation))
    };
    let listed = fs::read_dir(directory).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = match listed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(source) => return removal.failures.push(Error::Read { path: directory.to_owned(), source }),
        Ok(paths) => paths,
    };
    paths.sort();
    paths.iter().filter(|path| is_ours(path)).for_each(|path| remove_file(path, removal));
}

fn remove_file(path: &Path, removal: &mut Removal) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    removal.step(format!("remove {}", path.display()), || {
        let removed = if metadata.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|source| Error::Remove { path: path.to_owned(), source }),
        }
    });
}
