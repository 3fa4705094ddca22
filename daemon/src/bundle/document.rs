//! What is a document: a text that is taken apart to find secrets, and is therefore taken whole or not at all.

use std::path::Path;

use serde::de::IgnoredAny;
use telemetry::LINE_LIMIT;

/// The most of a document: it is taken apart to find secrets, and then holds ten times as much memory.
pub(super) const LONGEST_DOCUMENT: usize = 1 << 20;

/// What CNI configurations are called; other files beside them are other programs', often with tokens.
const CONFIGURATIONS: [&str; 3] = ["conf", "conflist", "json"];

/// How far it is looked for a line that is a record. A log's first may be cut: the disk was full.
const LOOKED_AT: usize = 4;

/// Whether a text is one document, by its name or, as one that was set aside, by how it begins. A log of records is none, whose
/// lines begin the same way: it is not taken apart.
pub(super) fn is_document(name: &str, text: &str) -> bool {
    let is_record = |line: &str| line.starts_with('{') && serde_json::from_str::<IgnoredAny>(line).is_ok();
    let is_log = || text.lines().take(LOOKED_AT).any(|line| line.len() <= LINE_LIMIT && is_record(line));
    is_configuration(name) || text.trim_start().starts_with(['{', '[']) && !is_log()
}

/// Whether a file is a configuration, and so a document, by its name.
pub(super) fn is_configuration(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| CONFIGURATIONS.contains(&extension))
}

/// Why a document is not there.
pub(super) fn too_long(length: usize) -> String {
    format!("it is {length} bytes long, too long for a bundle")
}
