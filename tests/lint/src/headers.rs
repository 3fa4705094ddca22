//! Every Rust file says on its first line what it is for, is short enough to be read in one go, and does not allow unsafe code
//! everywhere.

use crate::finding::Finding;
use crate::tree::Tree;

/// Lines that a file of the product may have, with its tests. Split by noun before it gets there.
const MAX_LINES: usize = 400;

/// Files that do not open with `//!`, that are too long, or that allow unsafe code for all of their items (clippy checks attributes
/// of single items).
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.with_extension("rs") {
        let name = file.display().to_string();
        if !text.starts_with("//!") {
            let message = "opens without `//!`: say in a sentence or two what the file is for";
            findings.push(Finding::new("headers", format!("{name}:1"), message));
        }
        let lines = text.lines().count();
        if lines > MAX_LINES && !is_test_file(&name) {
            let message = format!("{lines} lines, more than {MAX_LINES}: split it by noun");
            findings.push(Finding::new("headers", &*name, message));
        }
        let allows = |line: &str| line.starts_with("#![") && line.contains("unsafe_code") && !line.contains("deny(");
        if text.lines().any(allows) {
            let message =
                "allows unsafe code in the whole file: use #[expect(unsafe_code, reason = \"…\")] at the function";
            findings.push(Finding::new("headers", name, message));
        }
    }
    findings
}

/// `tests/…` of a package, and `foo/tests.rs` or `foo/tests/…` next to the code; but not the sources of the packages in
/// the folder `tests` at the root.
fn is_test_file(name: &str) -> bool {
    let own = name.strip_prefix("tests/").unwrap_or(name);
    own.split('/').any(|part| part == "tests" || part == "tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    fn lines(count: usize) -> String {
        format!("//! Long.\n{}", "fn f() {}\n".repeat(count - 1))
    }

    #[test]
    fn a_file_without_a_header_is_found() {
        assert_eq!(
            messages(&[("a.rs", "// Not a header.\n"), ("b.rs", "//! For b.\n")]),
            ["a.rs:1: opens without `//!`: say in a sentence or two what the file is for [headers]"]
        );
    }

    #[test]
    fn a_file_that_is_too_long_is_found() {
        let (most, more) = (lines(MAX_LINES), lines(MAX_LINES + 1));
        assert_eq!(
            messages(&[("most.rs", &most), ("more.rs", &more)]),
            ["more.rs: 401 lines, more than 400: split it by noun [headers]"]
        );
    }

    #[test]
    fn unsafe_code_for_a_whole_file_is_found() {
        let whole = "//! For a.\n#![expect(unsafe_code, reason = \"x\")]\n";
        assert_eq!(messages(&[("a.rs", whole)]).len(), 1);
        assert_eq!(messages(&[("a.rs", "//! For a.\n#![deny(unsafe_code)]\n#[expect(unsafe_code)]")]), [""; 0]);
    }

    #[test]
    fn files_of_tests_may_be_longer() {
        let long = lines(1000);
        assert_eq!(messages(&[("crates/a/tests/t.rs", &long), ("a/tests.rs", &long)]), [""; 0]);
        assert_eq!(messages(&[("tests/lint/src/a.rs", &long), ("tests/tests/t.rs", &long)]).len(), 1);
    }
}
