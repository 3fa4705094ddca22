//! What we know: our files of this boot, and ours among the data. What a person put there stays, and whatever is in a
//! directory that was named by mistake.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::record::{BEFORE, RecordFile};
use crate::{Error, Removal, Settings, drop_ins, settings_before};

/// Ours in the state directory; whatever follows tells an older generation, a damaged file or one being written.
const STATE: [&str; 4] = ["pools.json", "allocations.json", "verbs.log", "agent.sock"];
/// The same with exactly these names.
const STATE_WHOLE: [&str; 5] = ["allocations", "allocations.lock", "attachments.lock", "agent.lock", "telemetry.sock"];

/// Ours in the data directory, in the same manner. The NativePodNetwork that an operator put there is his.
const DATA: [&str; 7] = [
    "installer.json",
    "tables.json",
    vcn::NPN_COPY_FILE,
    vcn::VNICS_COPY_FILE,
    vcn::TOLD_FILE,
    settings_before::FILE,
    drop_ins::FILE,
];

/// Forgets it all. The directories themselves go too, unless they are mount points or hold something else. Copies of
/// what was there before us go before the record that names them: where they are without one, a person is asked, and what was
/// given back needs them no more. Copies that no record names stay, and what may tell whose they are.
pub(super) fn forget(settings: &Settings, unnamed: &[PathBuf], removal: &mut Removal) {
    let (state, data) = (&settings.state_dir, &settings.data_dir);
    let ours = |name: &str| STATE.iter().any(|ours| is_generation(name, ours)) || STATE_WHOLE.contains(&name);
    for path in listed(state, removal).into_iter().filter(|path| is(path, ours)) {
        remove(&path, removal);
    }
    let mut known = listed(data, removal);
    if unnamed.is_empty() {
        remove(&data.join(BEFORE), removal);
    } else {
        let aside = RecordFile::new(data).aside();
        known.retain(|path| !aside.contains(path));
        let copies = listed(&data.join(BEFORE), removal);
        copies.iter().filter(|path| !unnamed.contains(path)).for_each(|path| remove(path, removal));
        let kept = unnamed.iter().chain(&aside);
        removal.left.extend(kept.map(|path| format!("{}: of what was there before us", path.display())));
    }
    for ours in DATA {
        for path in known.iter().filter(|path| is(path, |name| is_generation(name, ours))) {
            remove(path, removal);
        }
    }
    for directory in [state, data] {
        if directory.exists() && removal.applied && fs::remove_dir(directory).is_ok() {
            removal.steps.push(format!("remove {}", directory.display()));
        }
    }
}

fn is_generation(name: &str, ours: &str) -> bool {
    name.strip_prefix(ours).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn is(path: &Path, ours: impl Fn(&str) -> bool) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(ours)
}

/// A directory's entries, in order. None where it is not there.
fn listed(directory: &Path, removal: &mut Removal) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = match listed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => {
            removal.failures.push(Error::Read { path: directory.to_owned(), source });
            Vec::new()
        }
        Ok(paths) => paths,
    };
    paths.sort();
    paths
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
