//! Plain words: strings, comments and documents use the terms of CONTRIBUTING's glossary. The list is `tests/lint/words`.
//!
//! What stood there before the list did is counted by folder in `tests/lint/words.counts`. A count never grows; a rewrite
//! lowers it, and `make words` records that.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use crate::finding::Finding;
use crate::source::{blank, line_of};
use crate::tree::Tree;
use crate::workspace::Workspace;

const LIST: &str = "tests/lint/words";
const COUNTS: &str = "tests/lint/words.counts";

/// The list: phrases, each as its words, with what to write instead; and exceptions, a path and a phrase.
#[derive(Debug, Default)]
struct List {
    phrases: Vec<(Vec<String>, String)>,
    exceptions: Vec<(String, Vec<String>)>,
}

/// Every folder that has more of these words than `words.counts` says, or fewer.
///
/// # Errors
/// When the list or the counts cannot be read.
pub fn check(root: &Path, workspace: &Workspace, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let list = List::parse(&read(root, LIST)?)?;
    let recorded = parse_counts(&read(root, COUNTS)?);
    Ok(differences(&counts(&hits(&list, workspace, tree)), &recorded))
}

/// Records the counts as they are now, or prints every hit below a path.
///
/// # Errors
/// When a file cannot be read or written.
pub fn run(root: &Path, below: Option<&str>) -> anyhow::Result<()> {
    let (workspace, tree) = (Workspace::load(root)?, Tree::read(root)?);
    let hits = hits(&List::parse(&read(root, LIST)?)?, &workspace, &tree);
    if let Some(below) = below {
        let listed = hits.values().flatten().filter(|hit| Path::new(&hit.place).starts_with(below));
        listed.for_each(|hit| println!("{hit}"));
        return Ok(());
    }
    let mut text = String::new();
    for (folder, count) in counts(&hits) {
        writeln!(text, "{count:5} {folder}")?;
    }
    std::fs::write(root.join(COUNTS), text).with_context(|| format!("write {COUNTS}"))
}

fn read(root: &Path, file: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root.join(file)).with_context(|| format!("read {file}"))
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
        let prose = if file.ends_with(".rs") { prose_of_rust(text) } else { prose_of_markdown(text) };
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

/// The hits by folder: a package's, `docs`, or `.` for the documents at the root.
fn hits(list: &List, workspace: &Workspace, tree: &Tree) -> BTreeMap<String, Vec<Finding>> {
    let mut folders: Vec<&Path> = workspace.packages.iter().map(|package| workspace.folder(package)).collect();
    // The innermost first: tests/lint before tests.
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.components().count()));
    let mut hits: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    for (file, text) in tree.with_extension("rs").chain(tree.with_extension("md")) {
        let package = folders.iter().find(|folder| file.starts_with(folder)).map(|folder| folder.display().to_string());
        let top = file.parent().and_then(|folder| folder.iter().next()).map_or(".".into(), |top| top.to_string_lossy());
        hits.entry(package.unwrap_or(top.into_owned()))
            .or_default()
            .extend(list.hits(&file.display().to_string(), text));
    }
    hits
}

fn counts(hits: &BTreeMap<String, Vec<Finding>>) -> BTreeMap<String, usize> {
    hits.iter().map(|(folder, found)| (folder.clone(), found.len())).filter(|(_, count)| *count > 0).collect()
}

fn parse_counts(text: &str) -> BTreeMap<String, usize> {
    let lines = text.lines().filter_map(|line| line.trim().split_once(' '));
    lines.filter_map(|(count, folder)| Some((folder.to_owned(), count.parse().ok()?))).collect()
}

fn differences(now: &BTreeMap<String, usize>, recorded: &BTreeMap<String, usize>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let folders: std::collections::BTreeSet<&String> = now.keys().chain(recorded.keys()).collect();
    for folder in folders {
        let [now, then] = [now, recorded].map(|counts| counts.get(folder).copied().unwrap_or_default());
        let message = match now.cmp(&then) {
            std::cmp::Ordering::Equal => continue,
            std::cmp::Ordering::Less => format!("{now} words to avoid, {then} recorded: run `make words`"),
            std::cmp::Ordering::Greater => {
                format!(
                    "{now} words to avoid, {then} allowed: `house-lint words {folder}` lists them with what to write"
                )
            }
        };
        findings.push(Finding::new("words", folder.as_str(), message));
    }
    findings
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

/// Words with their places. An apostrophe is part of its word, an underscore makes a name of it, which is no word.
fn prose_words(text: &str) -> impl Iterator<Item = (usize, &str)> {
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

    const WORDS: &str = "# comment\ntold | reported\nin vain | failed\nexcept b.rs | told | a quotation\n";

    fn places(file: &str, text: &str) -> Vec<String> {
        let hits = List::parse(WORDS).unwrap().hits(file, text);
        hits.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn words_in_comments_strings_and_documents_are_found() {
        let text = "// It is told.\nlet told = \"{told} `told` in\n//! vain\"; fn told_by() {}";
        let found = ["a.rs:1: \"told\": write reported [words]", "a.rs:2: \"in vain\": write failed [words]"];
        assert_eq!(places("a.rs", text), found);
        assert_eq!(places("b.rs", "// told"), [""; 0]);
        assert_eq!(places("a.md", "Told\n```\ntold\n```\nin  vain, `told`").len(), 2);
    }

    #[test]
    fn a_count_never_grows_and_a_smaller_one_is_recorded() {
        let counts = |text| parse_counts(text);
        assert_eq!(differences(&counts("  3 docs\n"), &counts("    3 docs\n")), []);
        assert!(differences(&counts("4 docs"), &counts("3 docs"))[0].message.contains("4 words to avoid, 3 allowed"));
        assert!(differences(&counts(""), &counts("3 docs"))[0].message.contains("make words"));
    }

    #[test]
    fn an_exception_without_a_reason_is_refused() {
        assert!(List::parse("except a.rs | told\n").is_err());
    }
}
