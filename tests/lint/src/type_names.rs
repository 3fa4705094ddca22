//! Names of our types in prose: a rename by a plain search and replace changes comments and strings, too, and users read the
//! strings. A comment may name a type in backticks.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::finding::Finding;
use crate::source::{TextKind, blank, line_of, texts};
use crate::tree::Tree;

/// Types whose names users write or read.
const USER_WORDS: &[(&str, &str)] = &[
    ("AttachVnic", "an operation of the OCI API"),
    ("CreateAddress", "an operation that the sandbox's faults name"),
    ("DaemonSet", "a kind of Kubernetes"),
    ("DaemonSets", "its plural"),
    ("NativePodNetwork", "a kind of OKE"),
    ("NetworkTests", "the plural of our kind"),
    ("NodePolicies", "the plural of our kind"),
    ("PathMtu", "a cause that network tests report"),
    ("PodNetwork", "a cause that network tests report"),
    ("ServiceAccount", "a kind of Kubernetes"),
    ("UpdateVnic", "an operation of the OCI API"),
    ("VnicAttachment", "our kind, and an object of the OCI API"),
    ("RestartUnit", "a method of systemd"),
];

/// Every such name in a string, or in a comment outside backticks.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let types = declared(tree);
    let files = tree.with_extension("rs");
    files.flat_map(|(file, text)| hits(&types, &file.display().to_string(), text)).collect()
}

/// The types with names of several words, and the file of each.
fn declared(tree: &Tree) -> BTreeMap<String, String> {
    let mut types = BTreeMap::new();
    for (file, text) in tree.with_extension("rs") {
        let code = blank(text);
        let words: Vec<&str> = words(&code).map(|(_, word)| word).collect();
        for pair in words.windows(2) {
            if let [keyword, name] = pair
                && ["struct", "enum", "trait", "type", "union"].contains(keyword)
                && has_several_words(name)
            {
                types.insert((*name).to_owned(), file.display().to_string());
            }
        }
    }
    types.retain(|name, _| !USER_WORDS.iter().any(|(word, _)| word == name));
    types
}

fn hits(types: &BTreeMap<String, String>, file: &str, text: &str) -> Vec<Finding> {
    let code = blank(text);
    let attributes = attributes(&code);
    let (mut is_fenced, mut end) = (false, 0);
    let mut found = Vec::new();
    for (kind, range) in texts(text) {
        // Code ends a comment of several lines.
        is_fenced &= code.get(end..range.start).is_some_and(|between| between.trim().is_empty());
        end = range.end;
        if attributes.iter().any(|attribute| attribute.contains(&range.start)) {
            continue;
        }
        let prose = text.get(range.clone()).unwrap_or_default();
        if kind == TextKind::Comment && prose.trim_start_matches(['/', '!', ' ']).starts_with("```") {
            is_fenced = !is_fenced;
        }
        if kind == TextKind::Comment && is_fenced {
            continue;
        }
        let prose = match kind {
            TextKind::Comment => without(prose, '`', '`'),
            TextKind::Literal => without(prose, '{', '}'),
        };
        for (at, word) in words(&prose).filter(|(at, word)| !is_in_path(&prose, *at, word)) {
            let Some(declared) = types.get(word).filter(|_| !is_debug_name(&code, word)) else { continue };
            let place = format!("{file}:{}", line_of(text, range.start + at));
            let how = match kind {
                TextKind::Comment => "put it in backticks, or write what it is in words",
                TextKind::Literal => "write what it is in words",
            };
            found.push(Finding::new("type_names", place, format!("{word} is a type of {declared}: {how}")));
        }
    }
    found
}

/// The places of attributes: derive macros read the names of types and functions in their strings.
fn attributes(code: &str) -> Vec<Range<usize>> {
    let starts = code.match_indices("#[").chain(code.match_indices("#!["));
    let ranges = starts.map(|(start, _)| {
        let mut depth = 0_usize;
        let end = code.bytes().enumerate().skip(start).find(|(_, byte)| match byte {
            b'[' => {
                depth += 1;
                false
            }
            b']' => {
                depth = depth.saturating_sub(1);
                depth == 0
            }
            _ => false,
        });
        start..end.map_or(code.len(), |(end, _)| end)
    });
    ranges.collect()
}

/// Whether the type's own `Debug` is in this file, which shows its name.
fn is_debug_name(code: &str, name: &str) -> bool {
    code.match_indices("Debug for ").any(|(at, what)| {
        let rest = code.get(at + what.len()..).unwrap_or_default();
        words(rest).next().is_some_and(|(_, word)| word == name)
    })
}

fn is_in_path(prose: &str, at: usize, word: &str) -> bool {
    prose.get(..at).is_some_and(|before| before.ends_with("::"))
        || prose.get(at + word.len()..).is_some_and(|after| after.starts_with("::"))
}

/// Blanks what is between the two marks, within a line, and the marks.
fn without(prose: &str, open: char, close: char) -> String {
    let mut is_inside = false;
    let blanked = prose.chars().flat_map(|c| {
        let was_inside = is_inside;
        is_inside = if was_inside { c != close && c != '\n' } else { c == open };
        let is_blank = (was_inside || is_inside) && c != '\n';
        std::iter::repeat_n(if is_blank { ' ' } else { c }, if is_blank { c.len_utf8() } else { 1 })
    });
    blanked.collect()
}

/// Words with their places.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    text.split_inclusive(move |c| !is_part(c)).filter_map(move |piece| {
        let start = at;
        at += piece.len();
        let word = piece.trim_end_matches(|c| !is_part(c));
        (!word.is_empty()).then_some((start, word))
    })
}

/// Whether it is like `TwoWords`: a capital behind a small letter or a digit.
fn has_several_words(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name
            .as_bytes()
            .windows(2)
            .any(|pair| matches!(pair, [before, after] if !before.is_ascii_uppercase() && after.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<String> {
        let types =
            "pub struct SampleEntry;\nenum Half { A }\ntype DaemonSet = X;\n// struct NoType\ntrait SampleLimits {}";
        let tree = Tree::of(&[("a/types.rs", types), ("b/use.rs", text)]);
        check(&tree).iter().map(|finding| format!("{} {}", finding.place, finding.message)).collect()
    }

    #[test]
    fn type_name_in_a_comment_or_a_string_is_found() {
        let found = places(
            "//! Half of SampleEntry.\n/* a\n SampleLimits */ let a: SampleEntry = \"a\nSampleEntry `SampleLimits`\";",
        );
        let entry = "SampleEntry is a type of a/types.rs: ";
        let limits = "SampleLimits is a type of a/types.rs: ";
        let (comment, string) = ("put it in backticks, or write what it is in words", "write what it is in words");
        let expected = [
            format!("b/use.rs:1 {entry}{comment}"),
            format!("b/use.rs:3 {limits}{comment}"),
            format!("b/use.rs:4 {entry}{string}"),
            format!("b/use.rs:4 {limits}{string}"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn block_of_code_ends_with_its_comment() {
        let found = places("// ```\n// SampleEntry\nlet a = 1;\n// SampleEntry");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("b/use.rs:4 "), "{found:?}");
    }

    #[test]
    fn code_user_words_paths_and_names_for_macros_are_no_prose() {
        for text in [
            "// An `SampleEntry` of a DaemonSet, [`Self`](crate::SampleEntry), SampleEntries, NoType",
            "//! ```text\n//! SampleLimits ──▶ SampleEntry\n//! ```",
            "#[serde(from = \"SampleEntry\", with = [1])]\nstruct A;",
            "impl fmt::Debug for SampleEntry { fn fmt() { \"SampleEntry\" } }",
            "let a = SampleEntry::new(\"DaemonSet {SampleEntry}\");",
        ] {
            assert_eq!(places(text), [""; 0], "{text}");
        }
    }
}
