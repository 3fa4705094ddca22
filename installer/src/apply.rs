//! Taking the steps of a plan. It has no opinion, save one: without every binary there is no configuration.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::place::{NewFile, place};
use crate::plan::BINARY_MODE;
use crate::{Conflist, Digest, Error, Report, Step, conflist};

/// Takes the steps in order and goes on after a failure; the report says which were taken and what failed.
pub(crate) fn apply(steps: Vec<Step>, mut report: Report) -> Report {
    let mut complete = report.failures.is_empty();
    for step in steps {
        let writes_conflist = matches!(step, Step::WriteConflist { .. });
        if writes_conflist && !complete {
            continue;
        }
        match take(&step) {
            Ok(()) => {
                if writes_conflist {
                    report.conflist = Conflist::InPlace;
                }
                report.steps.push(step);
            }
            Err(error) => {
                complete &= matches!(step, Step::RemoveStale(_));
                report.failures.push(error);
            }
        }
    }
    report.applied = true;
    report
}

fn take(step: &Step) -> Result<(), Error> {
    let failed = |target: &Path, action| {
        let target = target.to_path_buf();
        move |source| Error::Place { target, action, source }
    };
    match step {
        Step::CreateDirectory(path) => fs::create_dir_all(path).map_err(failed(path, "creating the directory")),
        Step::RemoveStale(path) => match fs::remove_file(path) {
            // Another installer was faster.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(failed(path, "removing the stale file")),
        },
        Step::InstallBinary { source, target, digest, .. } => {
            let contents = fs::read(source).map_err(|cause| Error::Source { path: source.clone(), source: cause })?;
            if Digest::of(&contents) != *digest {
                return Err(Error::SourceChanged { path: source.clone() });
            }
            place(NewFile { target, contents: &contents, mode: BINARY_MODE })
        }
        Step::SetMode { target, .. } => {
            fs::set_permissions(target, Permissions::from_mode(BINARY_MODE)).map_err(failed(target, "setting its mode"))
        }
        Step::WriteConflist { target, contents, .. } => place(NewFile { target, contents, mode: conflist::MODE }),
    }
}
