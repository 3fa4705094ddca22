//! Every Rust file says on its first line what it is for, and is short enough to be read in one go.

use std::ops::Range;

use crate::finding::Finding;
use crate::source::{blank, bracketed, line_of};
use crate::tree::Tree;

/// Lines of production code that a file may have. Split by noun before it gets there.
const MAX_LINES: usize = 400;

/// Files that do not open with `//!`, and files that are too long.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.with_extension("rs") {
        let name = file.display().to_string();
        if !text.starts_with("//!") {
            let message = "opens without `//!`: say in a sentence or two what the file is for";
            findings.push(Finding::new("headers", format!("{name}:1"), message));
        }
        let lines = production_lines(text);
        if lines > MAX_LINES && !is_test_file(&name) {
            let message = format!("{lines} lines of production code, more than {MAX_LINES}: split it by noun");
            findings.push(Finding::new("headers", name, message));
        }
    }
    findings
}

/// `tests/…` of a package, and `foo/tests.rs` or `foo/tests/…` next to the code; but not the sources of the packages in
/// the folder `tests` at the root.
pub(crate) fn is_test_file(name: &str) -> bool {
    let own = name.strip_prefix("tests/").unwrap_or(name);
    own.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// All lines but those of `#[cfg(test)] mod … { … }`.
fn production_lines(text: &str) -> usize {
    let code = blank(text);
    let tests: usize = tests(&code).map(|range| line_of(&code, range.end) - line_of(&code, range.start) + 1).sum();
    text.lines().count().saturating_sub(tests)
}

/// Blanked code, with its modules of tests blanked too. Line ends stay.
pub(crate) fn production_code(text: &str) -> String {
    let mut code = blank(text);
    for range in tests(&code.clone()) {
        let kept: String = code[range.clone()].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        code.replace_range(range, &kept);
    }
    code
}

/// Where the modules of tests are in blanked code.
fn tests(code: &str) -> impl Iterator<Item = Range<usize>> {
    code.match_indices("#[cfg(test)]").filter_map(|(at, _)| {
        let open = code.get(at..)?.find(['{', ';'])? + at;
        (code.as_bytes().get(open) == Some(&b'{')).then(|| at..bracketed(code, open).end)
    })
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
            ["more.rs: 401 lines of production code, more than 400: split it by noun [headers]"]
        );
    }

    #[test]
    fn tests_do_not_count() {
        let inline = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(MAX_LINES), "// }\n".repeat(50));
        let long = lines(1000);
        assert_eq!(messages(&[("a.rs", &inline), ("crates/a/tests/t.rs", &long), ("a/tests.rs", &long)]), [""; 0]);
        assert_eq!(messages(&[("tests/lint/src/a.rs", &long), ("tests/tests/t.rs", &long)]).len(), 1);
    }

    #[test]
    fn a_declared_test_module_hides_no_code_after_it() {
        let text = format!("//! Long.\n#[cfg(test)]\nmod tests;\n{}", "fn f() {}\n".repeat(MAX_LINES));
        assert_eq!(messages(&[("a.rs", &text)]).len(), 1);
    }
}
