//! Files of the host that NodePolicies changed: each gets back what was there before any policy, by the same plan as if no policy named
//! it any more. A file that another program changed since stays.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use tunables::files::{DesiredFiles, FileGrant, FileRecord, ObservedFile, StepAction, plan};

use crate::error::Error;
use crate::host_files::{Copies, FOLDER, Host, RECORD};
use crate::uninstall::Removal;

/// Restores the files. `root` is the host's file system, as seen from here.
pub(super) fn restore(data_dir: &Path, root: &Path, removal: &mut Removal) {
    let host = Host::new(root, &data_dir.join(FOLDER));
    let record = match host.record() {
        Ok(record) => record,
        Err(error) => {
            return removal.failures.push(Error::Read { path: host.data(RECORD), source: io::Error::other(error) });
        }
    };
    if record.files.is_empty() && record.pending.is_none() {
        return;
    }
    // An agent has other folders there, and no file at all where it has no mount.
    if access(&root.join("etc"), AccessFlags::W_OK).is_err() {
        return removal.failures.push(Error::FilesNotMounted { paths: record.files.keys().cloned().collect() });
    }
    let record = take_back(&host, record, removal);
    let grants = FileGrant::ALL.to_vec();
    let observed: BTreeMap<String, ObservedFile> =
        record.files.keys().map(|path| (path.clone(), host.observe(path))).collect();
    let undo = plan(&DesiredFiles { grants, ..DesiredFiles::default() }, &record, &observed);
    for step in &undo.steps {
        let (path, at) = (&step.path, PathBuf::from(&step.path));
        match &step.action {
            StepAction::PutBack(kept) => restored(removal, path, || host.put_back(path, Copies::Originals, kept)),
            StepAction::Remove => {
                removal.step(format!("remove {path}"), || {
                    host.remove(path).map_err(|source| Error::Remove { path: at, source })
                });
            }
            // The state stays: its copy is all that is left of the earlier content.
            StepAction::Forget if matches!(observed.get(path), Some(ObservedFile::Unusable(_))) => {
                let Some(ObservedFile::Unusable(why)) = observed.get(path) else { continue };
                removal.failures.push(Error::Read { path: at, source: io::Error::other(why.clone()) });
            }
            StepAction::Forget => {
                removal.left.push(format!("{path}: another program changed it, or it has its earlier content"))
            }
            StepAction::Write(_) | StepAction::Note => {}
        }
    }
    // Its bus is not mounted here.
    let units: Vec<&str> = undo.restart.iter().chain(&undo.waiting).map(|unit| unit.as_str()).collect();
    if !units.is_empty() {
        removal.notes.push(format!("earlier files apply after the next boot, or a restart of {}", units.join(", ")));
    }
}

/// Undoes a change that was not confirmed.
fn take_back(host: &Host, record: FileRecord, removal: &mut Removal) -> FileRecord {
    for (path, before) in record.pending.iter().flat_map(|pending| &pending.before) {
        restored(removal, path, || host.take_back(path, before.as_ref(), record.written(path)).map(drop));
    }
    record.roll_back("uninstalled before the confirmation")
}

fn restored(removal: &mut Removal, path: &str, put_back: impl FnOnce() -> io::Result<()>) {
    removal.step(format!("restore {path}"), || {
        put_back().map_err(|source| Error::Place {
            target: PathBuf::from(path),
            action: "writing its earlier content",
            source,
        })
    });
}

#[cfg(test)]
mod tests;
