//! Names in plain words: a value is named by a noun of the field, and a constant by a noun with its unit. Names of other crates
//! that a file uses belong to these, so only names that stand alone are read.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::functions::imports;
use crate::source::{blank, line_of};
use crate::tree::Tree;

/// Parts of names, and what to write instead.
const PARTS: &[(&[&str], &str)] = &[
    (&["ask"], "what happens: request, query, poll, probe, call, read"),
    (&["asks"], "what happens: requests, queries, needs"),
    (&["asker"], "caller, client or requester"),
    (&["asking"], "caller, or what happens: requesting, polling"),
    (&["asked"], "requested, or the noun: request"),
    (&["unasked"], "not read, or not requested"),
    (&["wanted"], "desired or requested, or the noun"),
    (&["told"], "reported, logged or recorded, or the noun"),
    (&["so", "far"], "the noun: the part, the sum"),
    (&["born"], "new or created"),
    (&["doomed"], "deleted, or the noun"),
    (&["heed"], "honor or ignore"),
    (&["heeds"], "honors or ignores"),
    (&["attention"], "what is due: needs_reconcile, is_check_due"),
    (&["in", "haste"], "what is left out: without_waiting"),
    (&["passes", "on"], "what follows: allows_next"),
    (&["leads", "on"], "what follows: may_continue"),
    (&["anothers"], "what is compared: is_address_taken"),
    (&["board", "of"], "the noun: the sender, the list"),
    (&["look", "at"], "read, check, or what is queued"),
];

/// Words that make a constant an adverb.
const ADVERBS: &[&str] = &[
    "AGAIN",
    "ALWAYS",
    "ENOUGH",
    "EVER",
    "FAREWELL",
    "FEW",
    "HURRIED",
    "LATER",
    "LONGEST",
    "MANY",
    "MOST",
    "MOVES",
    "MUCH",
    "NEVER",
    "OFTEN",
    "RARELY",
    "SELDOM",
    "SEVERAL",
    "SHORTLY",
    "SOMETIMES",
    "SOON",
    "SOONEST",
];

/// Names that others chose.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("FEATURES_WANTED", "an attribute of ethtool"),
    ("TOO_MANY_REQUESTS", "a status of HTTP"),
    ("TRY_AGAIN_LATER", "an error code of the CNI specification"),
];

/// Every such name, once per file.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.with_extension("rs").map(|(file, text)| (file.display().to_string(), text));
    files.flat_map(|(file, text)| hits(&file, text)).collect()
}

fn hits(file: &str, text: &str) -> Vec<Finding> {
    let imported: BTreeSet<String> = imports(text).into_iter().map(|(_, name)| name).collect();
    let code = without_imports(&blank(text));
    let mut seen = BTreeSet::new();
    let own = names(&code).filter(|(at, name)| {
        let before = code.get(..*at).unwrap_or_default().trim_end();
        let is_foreign = before.ends_with("::") || before.ends_with('.') && !before.ends_with("..");
        !is_foreign && !imported.contains(*name)
    });
    let mut found = Vec::new();
    for (at, name) in own {
        let Some(message) = fault(name).filter(|_| seen.insert(name)) else { continue };
        found.push(Finding::new("names", format!("{file}:{}", line_of(text, at)), message));
    }
    found
}

/// What is wrong with a name.
fn fault(name: &str) -> Option<String> {
    if EXCEPTIONS.iter().any(|(known, _)| *known == name) {
        return None;
    }
    let parts = parts(name);
    let has = |phrase: &[&str]| parts.windows(phrase.len()).any(|here| here.iter().eq(phrase));
    if let Some((phrase, instead)) = PARTS.iter().find(|(phrase, _)| has(phrase)) {
        return Some(format!("{name}: for \"{}\" write {instead}", phrase.join(" ")));
    }
    let is_constant = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    let adverb = name.split('_').find(|part| is_constant && ADVERBS.contains(part))?;
    Some(format!("{name}: a constant is a noun with its unit, such as MAX_RUNNING, not {adverb}"))
}

/// The words of a name in snake case, camel case or capitals, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_lower = false;
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && is_lower {
            parts.push(String::new());
        }
        is_lower = c.is_lowercase() || c.is_ascii_digit();
        if let Some(last) = parts.last_mut().filter(|_| c != '_') {
            last.extend(c.to_lowercase());
        }
    }
    parts
}

/// Blanks the statements that import names.
fn without_imports(code: &str) -> String {
    let mut text = code.to_owned();
    for (at, what) in code.match_indices("use ") {
        let is_start = !code.get(..at).unwrap_or_default().ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let end = code.get(at..).and_then(|rest| rest.find(';')).map_or(at + what.len(), |length| at + length);
        if is_start {
            let blanked: String =
                code.get(at..end).unwrap_or_default().chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
            text.replace_range(at..end, &blanked);
        }
    }
    text
}

/// Names with their places.
fn names(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    code.split_inclusive(move |c| !is_part(c)).filter_map(move |piece| {
        let start = at;
        at += piece.len();
        let name = piece.trim_end_matches(|c| !is_part(c));
        name.starts_with(|c: char| c.is_alphabetic() || c == '_').then_some((start, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        hits("a.rs", text).into_iter().map(|it| it.message.split(':').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn own_names_with_a_replaced_word_are_found() {
        let text = "struct NotWanted { is_told: bool }\nfn f(asked: u8, parts: &[Asked]) { let (so_far, b) = (asked, 1); }\n\
                    // wanted\nconst A: &str = \"told\"; fn old_toldness(unmasked: u8, soFar: u8) {}";
        assert_eq!(found(text), ["NotWanted", "is_told", "asked", "Asked", "so_far", "soFar"]);
        let text =
            "fn ask_pod(asker: u8, task: u8) {} fn f() { asks_time(|asking| mask(asking)) } enum AskError { Unasked }";
        assert_eq!(found(text), ["ask_pod", "asker", "asks_time", "asking", "AskError", "Unasked"]);
        let text = "fn heeds_no_router(doomed: u8, born: u8) {} fn has_anothers(passes_on: bool, leads_on: bool) {}\n\
                    fn in_haste(board_of_notices: u8, attention: u8) {} fn look_at() {} fn airborne(passes_online: u8) {}";
        assert_eq!(found(text).len(), 10, "{:?}", found(text));
    }

    #[test]
    fn constants_that_are_adverbs_are_found() {
        let text = "const MOST: u8 = 1; const LONGEST_NAME: u8 = 2; static SOON: u8 = 3;\nconst MAX_RUNNING: u8 = 4; \
                    const ALMOST_FULL: u8 = 5; fn most() {} enum E { Most, Again } const TRY_AGAIN_LATER: u8 = 6;";
        assert_eq!(found(text), ["MOST", "LONGEST_NAME", "SOON"]);
    }

    #[test]
    fn names_of_other_files_are_not_found() {
        let text =
            "use a::{MOST, b::wanted};\nfn f(x: X) { wanted(MOST); x.asked(c::told); x.is_wanted } fn g() { ..asked }";
        assert_eq!(found(text), ["asked"]);
    }
}
