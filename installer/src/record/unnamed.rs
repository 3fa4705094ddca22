//! Copies of what was there before us that no record names: one was damaged and set aside, or could not be written. Nobody but
//! a person can tell where they belong.

use std::fs;
use std::path::PathBuf;

use super::{BEFORE, Record, RecordFile};
use crate::{Settings, place};

/// Those copies.
pub(crate) fn copies(settings: &Settings, record: &Record) -> Vec<PathBuf> {
    let named: Vec<&str> = record.before().map(|before| before.digest.as_str()).collect();
    let entries = fs::read_dir(settings.data_dir.join(BEFORE)).into_iter().flatten().flatten();
    let unnamed = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        !place::is_temporary(&name) && !named.contains(&&*name)
    });
    let mut paths: Vec<PathBuf> = unnamed.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Why that is for a person to decide; nothing where there are none, and no record was set aside: links are kept in it alone.
pub(crate) fn told(settings: &Settings, copies: &[PathBuf]) -> Option<String> {
    let aside = RecordFile::new(&settings.data_dir).aside();
    let all: Vec<String> = copies.iter().chain(&aside).map(|path| path.display().to_string()).collect();
    (!all.is_empty()).then(|| {
        format!(
            "what was there before us is not known for sure, for a record of it was damaged or not written: look at {}, give \
             back by hand what belongs somewhere, and go on by --force",
            all.join(", ")
        )
    })
}
