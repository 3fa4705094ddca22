//! The inputs that targets start from: files of the corpus, and what our own code writes.

use std::path::PathBuf;
use std::{fs, io};

use crate::Target;

/// The folder of a target's files.
#[must_use]
pub fn folder(target: &Target) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(target.name)
}

/// A target's inputs, each with its name.
///
/// # Errors
/// When its folder or a file there cannot be read: every target has at least one file.
pub fn inputs(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder(target))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.push((name, fs::read(&path)?));
    }
    found.sort();
    let seeds = (target.seeds)().into_iter().enumerate().map(|(number, seed)| (format!("seed {number}"), seed));
    found.extend(seeds);
    Ok(found)
}
