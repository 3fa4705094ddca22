//! Functions of the product are short enough to be read at once, and their parameters say what they are: no tuple, and not two
//! booleans, because a call would not show which is which.

use super::headers::{is_test_file, production_code};
use crate::finding::Finding;
use crate::source::{bracketed, line_of, words};
use crate::tree::Tree;

/// Lines from the signature to the closing bracket.
const MAX_LINES: usize = 60;

/// Functions that are too long, take a tuple, or take more than one boolean.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let product = tree.with_extension("rs").filter(|(file, _)| !is_test_file(&file.display().to_string()));
    product.flat_map(|(file, text)| of_file(&file.display().to_string(), text)).collect()
}

fn of_file(name: &str, text: &str) -> Vec<Finding> {
    let code = production_code(text);
    let mut findings = Vec::new();
    for (at, _) in words(&code).filter(|(_, word)| *word == "fn") {
        // After the name, and what is generic. A type such as `fn(u32)` has no name.
        let Some(open) = parameters_of(&code, at + 2) else { continue };
        let inside = bracketed(&code, open);
        let parameters = code.get(inside.clone()).unwrap_or_default();
        let function = code.get(at + 2..open).unwrap_or_default().split('<').next().unwrap_or_default().trim();
        if function.is_empty() {
            continue;
        }
        let line = line_of(&code, at);
        let mut find = |message: String| findings.push(Finding::new("functions", format!("{name}:{line}"), message));
        // A trait says what `from` takes.
        if function != "from" && top_level(parameters).any(|parameter| type_of(parameter).is_some_and(is_tuple)) {
            find("takes a tuple: use two parameters, or a struct whose fields have names".to_owned());
        }
        if top_level(parameters).filter(|parameter| type_of(parameter) == Some("bool")).count() > 1 {
            find("takes two booleans: use an enum, or a struct whose fields have names".to_owned());
        }
        let body = code.get(inside.end..).and_then(|rest| rest.find(['{', ';'])).map(|found| inside.end + found);
        let end = body.filter(|body| code.as_bytes().get(*body) == Some(&b'{')).map(|body| bracketed(&code, body).end);
        let lines = end.map_or(1, |end| line_of(&code, end) - line + 1);
        if lines > MAX_LINES {
            find(format!("has {lines} lines, more than {MAX_LINES}: give a part of it a name"));
        }
    }
    findings
}

/// The bracket that opens the parameters, after the name and what is generic.
fn parameters_of(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0i32;
    let mut before = ' ';
    let found = code.get(from..)?.find(|c| {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        before = c;
        c == '(' && depth == 0
    });
    found.map(|found| from + found)
}

/// The parameters, without splitting what is in brackets.
fn top_level(parameters: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    let mut before = ' ';
    parameters.split(move |c: char| {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            // Not that of an arrow.
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        before = c;
        c == ',' && depth == 0
    })
}

/// The type of a parameter, without references; `None` for `self`.
fn type_of(parameter: &str) -> Option<&str> {
    let mut depth = 0i32;
    let colon = parameter.find(|c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        c == ':' && depth == 0
    });
    let kind = parameter.get(colon? + 1..)?;
    Some(kind.trim().trim_start_matches(['&', ' ']).trim_start_matches("mut "))
}

/// `()` is no tuple, and `(dyn A + B)` has no comma.
fn is_tuple(kind: &str) -> bool {
    kind.starts_with('(') && kind.get(bracketed(kind, 0)).is_some_and(|parts| parts.contains(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        check(&Tree::of(&[("a/src/lib.rs", text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tuples_booleans_and_long_functions_are_found() {
        let found = lines(
            "//! A.\nfn one((a, b): (u8, u8)) {}\nfn two<T: Fn((u8, u8)) -> u8>(x: T, pair: &(u8, T)) {}\nfn three(x: u8) -> (u8, u8) {}\n\
             fn four(f: impl Fn((u8, u8)) -> u8, e: &(dyn A + B), u: ()) {}\ntype F = fn((u8, u8));\n\
             fn five(x: Vec<(u8, u8)>, y: [u8; 2]) {}\n#[cfg(test)]\nmod tests { fn six(a: (u8, u8)) {} }\n",
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("lib.rs:2") && found[1].contains("lib.rs:3"), "{found:?}");
        let long =
            format!("//! A.\nfn f(a: bool, b: &bool) {{\n{}}}\nfn g(a: bool, b: u8) {{}}\n", "    x();\n".repeat(59));
        let found = lines(&long);
        assert!(found.len() == 2 && found[0].contains("two booleans") && found[1].contains("61 lines"), "{found:?}");
        let test = Tree::of(&[("a/tests/b.rs", "//! B.\nfn a(x: (u8, u8)) {}\n")]);
        assert!(check(&test).is_empty());
    }
}
