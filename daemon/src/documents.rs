//! The documents' tables are what the code says.

use std::path::{Path, PathBuf};

use crate::advice;
use crate::config::explain;
use crate::config::keys::Keys;
use crate::metrics::{self, Metrics};

/// Compares the part of a document between its markers; writes it when UPDATE_DOCS is set.
fn holds(document: &str, part: &str, table: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(document);
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- begin: {part} -->\n"), format!("<!-- end: {part} -->"));
    let (before, rest) = text.split_once(&begin).unwrap();
    let (found, after) = rest.split_once(&end).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{begin}{table}{end}{after}")).unwrap();
    } else {
        assert!(found == table, "docs/{document} is not what the code says: UPDATE_DOCS=1 writes it");
    }
}

#[test]
fn the_keys_are_documented() {
    holds("configuration.md", "keys", &explain::markdown(&Keys::default()));
}

#[test]
fn the_metrics_are_documented() {
    holds("metrics.md", "metrics", &metrics::markdown(Metrics::default().described()));
}

#[test]
fn the_conditions_are_documented() {
    holds("operator.md", "conditions", &advice::markdown());
}

#[test]
fn every_key_has_a_meaning_and_a_flag_and_no_two_are_alike() {
    let keys = Keys::default();
    let mut names: Vec<&str> = keys.iter().map(|key| key.name()).collect();
    for key in keys.iter() {
        assert!(key.meaning().len() > 10 && key.flag().len() > 3, "{key:?}");
        assert_eq!(keys.nearest(&key.flag()).as_deref(), Some(key.name()), "by its flag");
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
