//! Plain words: strings, comments and documents use the terms of CONTRIBUTING's glossary. The list is `tests/lint/words`.

use std::path::Path;

use anyhow::Context;

use crate::finding::Finding;
use crate::source::{blank, line_of};
use crate::tree::Tree;

const LIST: &str = "tests/lint/words";

/// The list: phrases, each as its words, with what to write instead; and exceptions, a path and a phrase.
#[derive(Debug, Default)]
struct List {
    phrases: Vec<(Vec<String>, String)>,
    exceptions: Vec<(String, Vec<String>)>,
}

/// Every place of these words.
///
/// # Errors
/// When the list cannot be read.
pub fn check(root: &Path, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let list = std::fs::read_to_string(root.join(LIST)).with_context(|| format!("read {LIST}"))?;
    let list = List::parse(&list)?;
    let files = tree.with_extension("rs").chain(tree.with_extension("md"));
    Ok(files.flat_map(|(file, text)| list.hits(&file.display().to_string(), text)).collect())
}

impl List {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut list = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
            match parts.as_slice() {
                [path, phrase, _reason] if path.starts_with("except ") => {
                    list.exceptions.push((path.trim_start_matches("except ").to_owned(), words_of(phrase)));
                }
                [phrase, instead] if !phrase.starts_with("except ") => {
                    list.phrases.push((words_of(phrase), (*instead).to_owned()))
                }
                _ => anyhow::bail!("{LIST}: {line}: neither a phrase nor an exception with its reason"),
            }
        }
        Ok(list)
    }

    /// The places of the phrases in a file.
    fn hits(&self, file: &str, text: &str) -> Vec<Finding> {
        let is_excepted = |phrase: &[String]| self.exceptions.iter().any(|(path, it)| path == file && it == phrase);
        let prose = prose_of(file, text);
        let words: Vec<(usize, String)> = prose_words(&prose).map(|(at, word)| (at, word.to_lowercase())).collect();
        let mut found = Vec::new();
        for (phrase, instead) in self.phrases.iter().filter(|(phrase, _)| !is_excepted(phrase)) {
            let here = words.windows(phrase.len()).filter(|here| here.iter().map(|(_, word)| word).eq(phrase));
            found.extend(here.filter_map(<[_]>::first).map(|(at, _)| {
                let place = format!("{file}:{}", line_of(text, *at));
                Finding::new("words", place, format!("\"{}\": write {instead}", phrase.join(" ")))
            }));
        }
        found
    }
}

/// The prose of a file, in which code is blank.
pub(crate) fn prose_of(file: &str, text: &str) -> String {
    if file.ends_with(".rs") { prose_of_rust(text) } else { prose_of_markdown(text) }
}

/// Comments and literals; code and what stands in backticks is blank.
fn prose_of_rust(text: &str) -> String {
    let code = blank(text);
    let prose = text.char_indices().map(|(at, c)| {
        let is_code = code.as_bytes().get(at).is_some_and(|byte| !byte.is_ascii_whitespace());
        if is_code && c.is_ascii() { ' ' } else { c }
    });
    without_spans(&prose.collect::<String>())
}

/// The text without blocks and spans of code.
fn prose_of_markdown(text: &str) -> String {
    let mut in_block = false;
    let lines = text.split_inclusive('\n').map(|line| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        if in_block || fence { line.replace(|c| c != '\n', " ") } else { line.to_owned() }
    });
    without_spans(&lines.collect::<String>())
}

/// Blanks `spans` in backticks and {names} in braces, each within a line.
fn without_spans(text: &str) -> String {
    let mut until = None;
    let mut prose = String::with_capacity(text.len());
    for c in text.chars() {
        let was_inside = until.is_some();
        until = match (until, c) {
            (_, '\n') => None,
            (Some(end), _) if c == end => None,
            (None, '`') => Some('`'),
            (None, '{') => Some('}'),
            (same, _) => same,
        };
        let width = if was_inside || until.is_some() { c.len_utf8() } else { 0 };
        if width > 0 && c != '\n' { prose.extend(std::iter::repeat_n(' ', width)) } else { prose.push(c) }
    }
    prose
}

fn words_of(phrase: &str) -> Vec<String> {
    prose_words(phrase).map(|(_, word)| word.to_lowercase()).collect()
}

/// Words with their places. An apostrophe is part of its word, an underscore makes it a name, which is not a word.
pub(crate) fn prose_words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '\'' || c == '_';
    let mut at = 0;
    text.split_inclusive(move |c| !is_part(c)).filter_map(move |piece| {
        let start = at;
        at += piece.len();
        let word = piece.trim_end_matches(|c| !is_part(c));
        (!word.is_empty()).then_some((start, word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "# comment\nzounds | reported\nby jove | failed\nexcept b.rs | zounds | a quotation\n";

    fn places(file: &str, text: &str) -> Vec<String> {
        let hits = List::parse(WORDS).unwrap().hits(file, text);
        hits.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn words_in_comments_strings_and_documents_are_found() {
        let text = "// It is zounds.\nlet zounds = \"{zounds} `zounds` by\n//! jove\"; fn zounds_by() {}";
        let found = ["a.rs:1: \"zounds\": write reported [words]", "a.rs:2: \"by jove\": write failed [words]"];
        assert_eq!(places("a.rs", text), found);
        assert_eq!(places("b.rs", "// zounds"), [""; 0]);
        assert_eq!(places("a.md", "Zounds\n```\nzounds\n```\nby  jove, `zounds`").len(), 2);
    }

    #[test]
    fn an_exception_without_a_reason_is_refused() {
        assert!(List::parse("except a.rs | zounds\n").is_err());
    }
}
