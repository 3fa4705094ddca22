//! Parameters are not tuples: their parts have no names where the function is called.

use crate::finding::Finding;
use crate::source::{blank, line_of};
use crate::tree::Tree;

/// Parameters of named functions that are tuples, or patterns of tuples. `From::from` may take one: its type is its meaning.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.with_extension("rs") {
        let code = blank(text);
        for (at, _) in code.match_indices("fn ") {
            let rest = code.get(at + 3..).unwrap_or_default();
            if !rest.starts_with("from(") && parameters(rest).iter().any(|it| is_tuple(it)) {
                let message = "a parameter is a tuple: pass its parts, or a struct";
                findings.push(Finding::new("tuples", format!("{}:{}", file.display(), line_of(text, at)), message));
            }
        }
    }
    findings
}

/// The parameters of a function from its name on. Parentheses in its generic parameters follow a `Fn`.
fn parameters(function: &str) -> Vec<&str> {
    let opens =
        |at: &usize| !function.get(..*at).is_some_and(|before| before.ends_with("Fn") || before.ends_with("FnMut"));
    let Some(start) = function.match_indices('(').map(|(at, _)| at).find(opens) else { return Vec::new() };
    let (mut depth, mut from, mut found) = (0, start + 1, Vec::new());
    for (at, byte) in function.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b'>' if function.get(..at).is_some_and(|before| before.ends_with('-')) => {}
            b')' | b']' | b'}' | b'>' => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && byte == b',' {
            found.extend(function.get(from..at));
            from = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

fn is_tuple(parameter: &str) -> bool {
    // `pattern in strategy` is a parameter of a property test.
    let (pattern, kind) = parameter.split_once(": ").unwrap_or((parameter, ""));
    let starts = |text: &str| text.trim_start().trim_start_matches('&').trim_start_matches("mut ").starts_with('(');
    starts(pattern) && !parameter.contains(" in ") || starts(kind) && kind.contains(',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuple_parameters_are_found() {
        let found = |code: &str| check(&Tree::of(&[("a.rs", code)])).len();
        for code in [
            "fn f((a, b): (A, B)) {}",
            "fn f(x: X, y: &(A, B)) {}",
            "fn f<F: Fn(A, B) -> C>(f: F, (a, b): Pair) {}",
            "fn f(\n    &self,\n    a: (A, B),\n) {}",
        ] {
            assert_eq!(found(code), 1, "{code}");
        }
        for code in [
            "fn f(a: A, f: impl Fn((A, B), C), v: Vec<(A, B)>) -> (A, B) {}",
            "fn from((a, b): (A, B)) -> Self {}",
            "fn f(error: &(dyn Error + 'static), at: A) {}",
            "fn f(all: &[(A, B)]) { all.map(|(a, b)| a) }",
        ] {
            assert_eq!(found(code), 0, "{code}");
        }
    }
}
