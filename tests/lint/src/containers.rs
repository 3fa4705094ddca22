//! Tests of the node agent and of the installer start their programs and call their code in the containers of the shipped
//! manifests, and nowhere else: only a few files of theirs can, and these are read with care.

use crate::finding::Finding;
use crate::source::{blank, bracketed, line_of, words};
use crate::tree::Tree;

/// Where those tests are, and the crate whose they are.
const TESTS: [&str; 2] = ["daemon/tests/", "installer/tests/"];

/// How cargo names the programs to a test.
const PROGRAMS: [&str; 2] = ["CARGO_BIN_EXE_oke-node-agent", "CARGO_BIN_EXE_oke-cni-installer"];

/// The crates with their code.
const CRATES: [&str; 2] = ["oke_node_agent", "installer"];

/// Files that may do it. All but the last put everything into a container.
const DOORS: [&str; 5] = [
    "daemon/tests/agent/called.rs",
    "daemon/tests/agent/node.rs",
    "daemon/tests/cluster/uninstaller.rs",
    "installer/tests/command/node.rs",
    // Somebody who is not root asks the agent, with a copy of its program that he brought along.
    "daemon/tests/agent/socket.rs",
];

/// Of those crates, what any test may name: words and answers, and what writes down what an agent would have.
const WORDS: [&str; 18] = [
    "self",
    "Args",
    "Cause",
    "DEFAULT_CONFIG",
    "MARK",
    "Pass",
    "Reason",
    "Removed",
    "SettingChange",
    "Settings",
    "args",
    "condition",
    "drop_ins",
    "note_drop_in",
    "note_settings",
    "reconcile_report",
    "report",
    "settings",
];

/// Tests that could start the agent or the installer, or call their code, outside their containers.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.with_extension("rs").map(|(file, text)| (file.display().to_string(), text));
    let theirs = files.filter(|(name, _)| TESTS.iter().any(|folder| name.starts_with(folder)));
    theirs
        .filter(|(name, _)| !DOORS.contains(&name.as_str()))
        .flat_map(|(name, text)| check_file(&name, text))
        .collect()
}

fn check_file(name: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |at: usize, what: &str| {
        let message = format!("{what} outside the container of its manifest: go by one of {}", DOORS[..4].join(", "));
        findings.push(Finding::new("containers", format!("{name}:{}", line_of(text, at)), message));
    };
    for program in PROGRAMS {
        text.match_indices(program).for_each(|(at, _)| found(at, &format!("{program} could be started")));
    }
    let code = blank(text);
    for (at, word) in words(&code).filter(|(_, word)| CRATES.contains(word)) {
        let path = path(&code, at + word.len());
        let behind = code.get(at + word.len() + path.len()..).unwrap_or_default().trim_start();
        let all = path.contains('*') || behind.starts_with('*') || behind.starts_with("as ");
        let foreign = words(path).map(|(_, named)| named).find(|named| !WORDS.contains(named));
        match foreign {
            Some(foreign) => found(at, &format!("{word}'s {foreign} could be called")),
            None if all => found(at, &format!("all of {word} could be called")),
            None => {}
        }
    }
    findings
}

/// What of a path follows its first word: names and braces of names, up to what is none.
fn path(code: &str, from: usize) -> &str {
    let mut end = from;
    while code.get(end..).is_some_and(|rest| rest.starts_with("::")) {
        end += 2;
        end = match code.as_bytes().get(end) {
            Some(b'{') => bracketed(code, end).end,
            _ => end + code.get(end..).and_then(|rest| rest.find(|it: char| !is_name(it))).unwrap_or(0),
        };
    }
    code.get(from..end).unwrap_or_default()
}

fn is_name(it: char) -> bool {
    it.is_alphanumeric() || it == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(name: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(name, text)])).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn a_program_that_is_started_plainly_is_found() {
        for program in PROGRAMS {
            let text = format!("//! A.\nCommand::new(env!(\"{program}\"))");
            for name in ["daemon/tests/agent/host.rs", "installer/tests/command/install.rs"] {
                assert_eq!(places(name, &text), [format!("{name}:2")]);
            }
            assert_eq!(places(DOORS[1], &text), [""; 0]);
            assert_eq!(places("sandbox/tests/container.rs", &text), [""; 0]);
        }
    }

    #[test]
    fn code_that_is_called_plainly_is_found_however_it_is_named() {
        for text in [
            "use oke_node_agent::reconcile::Reconciler;",
            "use oke_node_agent::{pass::{Cause, Pass}, gather};",
            "use installer::{Args, reconcile};",
            "use installer as other;",
            "use installer::*;",
            "use oke_node_agent::{pass::*};",
            "let it = installer::uninstall(&settings, how);",
            "installer::drop_ins::remove(&path);",
        ] {
            assert_eq!(places("daemon/tests/cluster/departure.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn words_answers_comments_and_texts_are_not() {
        let text = "use installer::Removed;\nuse oke_node_agent::{condition::Reason, pass::{Cause, Pass}};\n\
                    // installer::uninstall\nlet text = \"installer::uninstall\"; let installer = installer::MARK;";
        assert_eq!(places("daemon/tests/agent/host.rs", text), [""; 0]);
    }
}
