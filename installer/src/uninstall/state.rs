//! Our files in the state and data directories. What a person put there stays, and so does everything else in a directory
//! that was named by mistake.

use std::fs;
use std::io;
use std::path::Path;

use super::kernel_settings;
use crate::error::Error;
use crate::files::{entries, name};
use crate::record::{self, backup};
use crate::settings::Settings;
use crate::uninstall::Removal;

/// Our files in the state directory, also with a suffix: an older generation, a damaged file, a lock or a temporary file.
const STATE: [&str; 7] =
    ["pools.json", "allocations", "attachments.lock", "verbs.log", "agent.sock", "agent.lock", "telemetry.sock"];

/// The same in the data directory. A NativePodNetwork that an operator put there is not ours.
const DATA: [&str; 9] = [
    backup::DIRECTORY,
    record::FILE,
    "tables.json",
    vcn::ATTACHMENTS_COPY_FILE,
    vcn::NPN_COPY_FILE,
    vcn::VNICS_COPY_FILE,
    vcn::REPORTED_CONDITIONS_FILE,
    kernel_settings::FILE,
    // Of release 0.2.0.
    "drop-ins.json",
];

/// Removes our files, copies before the record, and the directories unless they are mount points or contain something else.
pub(super) fn remove(settings: &Settings, removal: &mut Removal) {
    for (directory, ours) in [(&settings.state_dir, &STATE[..]), (&settings.data_dir, &DATA)] {
        let paths = match entries(directory) {
            Ok(paths) => paths,
            Err(error) => {
                removal.failures.push(Error::reading(directory)(error));
                continue;
            }
        };
        let is_suffix = |rest: &str| rest.is_empty() || rest.starts_with('.');
        let is_ours = |name: &str| ours.iter().any(|ours| name.strip_prefix(ours).is_some_and(is_suffix));
        for path in paths.iter().filter(|path| is_ours(&name(path))) {
            removal.step(format!("remove {}", path.display()), || remove_all(path));
        }
        if removal.applied && fs::remove_dir(directory).is_ok() {
            removal.steps.push(format!("remove {}", directory.display()));
        }
    }
}

fn remove_all(path: &Path) -> Result<(), Error> {
    let removed = if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| Error::Remove { path: path.to_owned(), source }),
    }
}
