//! Keeps documents and files of commented keys equal to the code, for tests of several packages. `UPDATE_DOCS=1` writes them.

mod alerts;
mod commented;
pub mod health_tables;

use std::path::Path;

pub use alerts::{Alert, action, alerts};
pub use commented::check_commented;

/// Compares the part of a document between its markers `<!-- begin: part -->` and `<!-- end: part -->` with what the code
/// says; writes it when `UPDATE_DOCS` is set.
///
/// # Errors
/// What is wrong, for a test to show.
pub fn compare(path: &Path, part: &str, table: &str) -> Result<(), String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let (begin, end) = (format!("<!-- begin: {part} -->\n"), format!("<!-- end: {part} -->"));
    let lacks = || format!("{shown} has no part {part}");
    let (before, rest) = text.split_once(&begin).ok_or_else(lacks)?;
    let (found, after) = rest.split_once(&end).ok_or_else(lacks)?;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(path, format!("{before}{begin}{table}{end}{after}"))
            .map_err(|error| format!("{shown}: {error}"));
    }
    if found == table { Ok(()) } else { Err(format!("{shown} is not what the code says: UPDATE_DOCS=1 writes it")) }
}

/// Compares a whole file with what the code says; writes it when `UPDATE_DOCS` is set.
///
/// # Errors
/// What is wrong, for a test to show.
pub fn compare_file(path: &Path, expected: &str) -> Result<(), String> {
    let shown = path.display();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(path, expected).map_err(|error| format!("{shown}: {error}"));
    }
    let found = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    if found == expected { Ok(()) } else { Err(format!("{shown} is not what the code says: UPDATE_DOCS=1 writes it")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_that_differs_or_lacks_the_part_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.md");
        std::fs::write(&path, "x\n<!-- begin: keys -->\nold\n<!-- end: keys -->\n").unwrap();
        assert_eq!(compare(&path, "keys", "old\n"), Ok(()));
        assert!(compare(&path, "others", "old\n").unwrap_err().contains("has no part others"));
        if std::env::var_os("UPDATE_DOCS").is_none() {
            assert!(compare(&path, "keys", "new\n").unwrap_err().contains("is not what the code says"));
        }
    }
}
