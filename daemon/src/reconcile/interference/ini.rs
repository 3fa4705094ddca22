//! The `[Section]`, `Key=value` files of systemd, NetworkManager and oci-utils, as far as one key is asked for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The value of a key in a section, where the last one counts.
pub(super) fn value<'a>(text: &'a str, section: &str, key: &str) -> Option<&'a str> {
    let mut within = false;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            within = name == section;
        } else if within
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            found = Some(value.trim());
        }
    }
    found
}

/// Whether a value means yes; systemd's and Python's words.
pub(super) fn is_true(value: &str) -> bool {
    ["1", "yes", "true", "on"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// The texts of a main file and its drop-ins in the order they count: a file in a later directory replaces one of the same
/// name in an earlier one, and then they count by their names.
pub(super) fn merged(main: &[PathBuf], directories: &[PathBuf]) -> Vec<String> {
    let mut by_name: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
    for directory in directories {
        for path in files(directory) {
            if let Some(name) = path.file_name() {
                by_name.insert(name.to_owned(), path);
            }
        }
    }
    let first = main.iter().rev().find(|path| path.exists());
    first.into_iter().chain(by_name.values()).filter_map(|path| fs::read_to_string(path).ok()).collect()
}

fn files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|end| end == "conf"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_counts_in_its_section_and_the_last_time() {
        let text = "[Other]\nKey=no\n[Network]\n# Key=comment\nKey = one\nKey=two\n[Other]\nKey=no\n";
        assert_eq!(value(text, "Network", "Key"), Some("two"));
        assert_eq!(value(text, "Network", "Missing"), None);
        assert!(is_true("Yes") && is_true("True") && !is_true("no") && !is_true(""));
    }

    #[test]
    fn drop_ins_count_by_name_and_those_of_later_directories_replace_their_namesakes() {
        let root = tempfile::tempdir().unwrap();
        let path = |below: &str| root.path().join(below);
        for (file, text) in [
            ("lib/main.conf", "lib"),
            ("lib/d/50-a.conf", "a of lib"),
            ("lib/d/10-b.conf", "b of lib"),
            ("etc/d/50-a.conf", "a of etc"),
            ("etc/d/99-c.txt", "no drop-in"),
        ] {
            fs::create_dir_all(path(file).parent().unwrap()).unwrap();
            fs::write(path(file), text).unwrap();
        }
        let texts = merged(&[path("lib/main.conf"), path("etc/main.conf")], &[path("lib/d"), path("etc/d")]);
        assert_eq!(texts, ["lib", "b of lib", "a of etc"]);
    }
}
