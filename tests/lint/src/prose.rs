//! Faults of prose that readers stumbled over and that a pattern can find, in strings, comments and documents. They are `is no X`,
//! chains of "of", and long cells of tables, also of tables that tests write.

use std::ops::Range;

use crate::finding::Finding;
use crate::source::line_of;
use crate::tree::Tree;
use crate::words::{prose_of, prose_words};

/// Characters of a table's cell.
const MAX_CELL: usize = 400;

/// Words between two "of" of a chain.
const MAX_BETWEEN: usize = 3;

/// After "is no": words with which the phrase is plain English.
const AFTER_NO: &[&str] =
    &["better", "earlier", "higher", "later", "less", "longer", "lower", "more", "newer", "older", "other", "worse"];

/// Every such fault, in the order of files.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.with_extension("rs").chain(tree.with_extension("md"));
    files.map(|(file, text)| (file.display().to_string(), text)).flat_map(|(file, text)| hits(&file, text)).collect()
}

fn hits(file: &str, text: &str) -> Vec<Finding> {
    // Phrases that tests write from the code are found in the code.
    let written = if file.ends_with(".md") { without_generated(text) } else { text.to_owned() };
    let prose = prose_of(file, &written);
    let words: Vec<Word> =
        prose_words(&prose).map(|(at, word)| Word { range: at..at + word.len(), text: word.to_lowercase() }).collect();
    let finding = |at: usize, message: String| Finding::new("prose", format!("{file}:{}", line_of(text, at)), message);
    let mut found: Vec<Finding> = negated_nouns(&prose, &words)
        .into_iter()
        .map(|at| finding(at, "\"is no X\": write \"is not a X\", or what it is".to_owned()))
        .collect();
    let chains = chains(&prose, &words).into_iter();
    found.extend(chains.map(|at| finding(at, "three times \"of\": name the thing, or use another verb".to_owned())));
    if !file.ends_with(".rs") {
        found.extend(long_cells(text).into_iter().map(|(at, length)| {
            finding(
                at,
                format!(
                    "a cell of {length} characters, more than {MAX_CELL}: split the row, or move text below the table"
                ),
            )
        }));
    }
    found
}

/// A word of prose.
struct Word {
    range: Range<usize>,
    text: String,
}

/// The places of `is no X` and `are no X`, except `there is no X`.
fn negated_nouns(prose: &str, words: &[Word]) -> Vec<usize> {
    let is_be = |word: &Word| matches!(&*word.text, "is" | "are" | "was" | "were");
    let places = words.windows(3).enumerate().filter_map(|(at, three)| {
        let [be, no, noun] = three else { return None };
        let before = at.checked_sub(1).and_then(|at| words.get(at)).map_or("", |word| &*word.text);
        let is_fault = is_be(be) && no.text == "no" && before != "there" && !AFTER_NO.contains(&&*noun.text);
        (is_fault && are_joined(prose, be, no) && are_joined(prose, no, noun)).then_some(be.range.start)
    });
    places.collect()
}

/// The places of three "of" in a row, with a few words between two of them.
fn chains(prose: &str, words: &[Word]) -> Vec<usize> {
    let next_of = |from: usize| {
        let mut at = from;
        while at + 1 < words.len() && at - from <= MAX_BETWEEN {
            let (one, other) = (words.get(at)?, words.get(at + 1)?);
            if !are_joined(prose, one, other) {
                return None;
            }
            at += 1;
            if other.text == "of" {
                return Some(at);
            }
        }
        None
    };
    let starts = words.iter().enumerate().filter(|(_, word)| word.text == "of");
    starts.filter(|(at, _)| next_of(*at).and_then(next_of).is_some()).map(|(_, word)| word.range.start).collect()
}

/// Whether only blanks, line ends and signs of comments are between two words.
fn are_joined(prose: &str, one: &Word, other: &Word) -> bool {
    let between = prose.get(one.range.end..other.range.start).unwrap_or(".");
    between.chars().all(|c| c.is_whitespace() || matches!(c, '/' | '!' | '\\'))
}

/// Blanks the parts between markers.
fn without_generated(text: &str) -> String {
    let mut is_generated = false;
    let lines = text.split_inclusive('\n').map(|line| {
        is_generated = (is_generated || line.starts_with("<!-- begin: ")) && !line.starts_with("<!-- end: ");
        if is_generated { "\n".to_owned() } else { line.to_owned() }
    });
    lines.collect()
}

/// The long cells of tables.
fn long_cells(text: &str) -> Vec<(usize, usize)> {
    let (mut at, mut found) = (0, Vec::new());
    for line in text.split_inclusive('\n') {
        if line.starts_with('|') {
            let lengths = line.trim_end().split('|').map(shown_length);
            found.extend(lengths.filter(|length| *length > MAX_CELL).map(|length| (at, length)));
        }
        at += line.len();
    }
    found
}

/// The characters of a cell that a reader sees: a link is its label.
fn shown_length(cell: &str) -> usize {
    let mut parts = cell.trim().split("](");
    let first = parts.next().unwrap_or_default().chars().count();
    first + parts.map(|part| part.split_once(')').map_or(part, |(_, rest)| rest).chars().count()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(file: &str, text: &str) -> Vec<usize> {
        hits(file, text).iter().map(|it| it.place.rsplit(':').next().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn is_no_with_a_noun_is_found() {
        let text = "// It is no link.\nlet a = \"they are no\\\n    pods\";\n//! which is\n//! no answer\n// There is no link, it is no longer up.\n\
                    // It is. No pod runs. `is no x` is\nlet is = no; // link";
        assert_eq!(lines("a.rs", text), [1, 2, 4]);
    }

    #[test]
    fn chain_of_three_is_found() {
        let text = "The name of the link of a VNIC of the node.\nThe name of the link of a VNIC, of the node.\nOf all of them.";
        assert_eq!(lines("a.md", text), [1]);
    }

    #[test]
    fn long_cell_is_found_in_each_table() {
        let row = format!("| a | {} |\n", "x".repeat(401));
        assert_eq!(lines("a.md", &row), [1]);
        assert_eq!(lines("a.md", &format!("| {} |\n", "x".repeat(400))), [0; 0]);
        assert_eq!(lines("a.md", &format!("| [a]({}) b |\n", "x".repeat(400))), [0; 0]);
        assert_eq!(lines("a.md", &format!("<!-- begin: a -->\n{row}<!-- end: a -->\n{row}")), [2, 4]);
    }
}
