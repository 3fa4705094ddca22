//! Names of identifiers in places that have been cleaned: nouns and verbs of the field. A constant is no adverb, because a reader
//! must look up what it bounds.

use crate::finding::Finding;
use crate::source::{blank, line_of};
use crate::tree::Tree;

/// Where it applies. A folder is added when its names are.
const PLACES: &[&str] = &["controller/src/fleet", "crates/health", "daemon/src/facts"];

/// Parts of a name, between underscores, and what to write instead.
const PARTS: &[(&str, &str)] =
    &[("asked", "requested or polled"), ("wanted", "desired, requested or enabled"), ("told", "reported")];

/// Whole names, and what to write instead.
const NAMES: &[(&str, &str)] = &[
    ("so_far", "what it counts"),
    ("AGAIN", "a noun with its unit"),
    ("ENOUGH", "a noun with its unit"),
    ("FEW", "a noun with its unit"),
    ("LONGEST", "a noun with its unit"),
    ("MOST", "a noun with its unit"),
    ("SOON", "a noun with its unit"),
];

/// Every such name that the places declare or use, apart from methods and fields of others.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let is_place = |file: &str| PLACES.iter().any(|place| file.starts_with(place));
    let files = tree.with_extension("rs").map(|(file, text)| (file.display().to_string(), text));
    files.filter(|(file, _)| is_place(file)).flat_map(|(file, text)| hits(&file, text)).collect()
}

fn hits(file: &str, text: &str) -> Vec<Finding> {
    let code = blank(text);
    let mut at = 0;
    let mut found = Vec::new();
    for piece in code.split_inclusive(|c: char| !is_part(c)) {
        let (start, name) = (at, piece.trim_end_matches(|c| !is_part(c)));
        at += piece.len();
        let is_member = code.get(..start).is_some_and(|before| before.ends_with('.') && !before.ends_with(".."));
        let part = PARTS.iter().find(|(part, _)| name.split('_').any(|it| it.eq_ignore_ascii_case(part)));
        let whole = NAMES.iter().find(|(whole, _)| name == *whole);
        if let Some((_, instead)) = part.or(whole).filter(|_| !is_member) {
            let place = format!("{file}:{}", line_of(text, start));
            found.push(Finding::new("names", place, format!("`{name}`: name it by {instead}")));
        }
    }
    found
}

const fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adverbs_and_participles_are_found_in_the_places_only() {
        let text =
            "// asked\nconst MOST: usize = 4;\nfn is_asked(so_far: u8) { log(\"wanted\"); it.wanted(); MOST_RUNS }\n";
        let tree = Tree::of(&[("crates/health/src/a.rs", text), ("crates/oci/src/a.rs", text)]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/health/src/a.rs:2: `MOST`: name it by a noun with its unit [names]",
                "crates/health/src/a.rs:3: `is_asked`: name it by requested or polled [names]",
                "crates/health/src/a.rs:3: `so_far`: name it by what it counts [names]",
            ]
        );
    }
}
