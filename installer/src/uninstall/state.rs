//! What we know: the state of this boot as a whole, and our files among the data. What a person put there stays.

use std::fs;
use std::io;
use std::path::Path;

use super::Removal;
use crate::record::BEFORE;
use crate::{Error, Settings, settings_before};

/// Ours in the data directory. The NativePodNetwork that an operator put there is his.
const DATA: [&str; 5] = ["installer.json", "installer.json.damaged", BEFORE, "tables.json", settings_before::FILE];

/// Forgets it all. The directories themselves go too, unless they are mount points or hold something else.
pub(super) fn forget(settings: &Settings, removal: &mut Removal) {
    let state = &settings.state_dir;
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        remove(&entry.path(), removal);
    }
    for name in DATA {
        remove(&settings.data_dir.join(name), removal);
    }
    for directory in [state, &settings.data_dir] {
        if directory.exists() && removal.applied && fs::remove_dir(directory).is_ok() {
            removal.steps.push(format!("remove {}", directory.display()));
        }
    }
}

fn remove(path: &Path, removal: &mut Removal) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    removal.step(format!("remove {}", path.display()), || {
        let removed = if metadata.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|source| Error::Remove { path: path.to_owned(), source }),
        }
    });
}
