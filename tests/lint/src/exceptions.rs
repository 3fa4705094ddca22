//! How `unsafe` may be allowed: at one function, by `#[expect(unsafe_code, reason = "…")]`. `expect` is reported by the
//! compiler once nothing needs it any more; `allow` stays for ever and covers what is added later.

use crate::finding::Finding;
use crate::source::{blank, bracketed, line_of};
use crate::tree::Tree;

const LINT: &str = "unsafe_code";

/// Every attribute that allows unsafe code in another way.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.with_extension("rs");
    files.flat_map(|(file, text)| check_file(&file.display().to_string(), text)).collect()
}

fn check_file(name: &str, text: &str) -> Vec<Finding> {
    let code = blank(text);
    let mut findings = Vec::new();
    for (hash, _) in code.match_indices('#') {
        let rest = code.get(hash + 1..).unwrap_or_default();
        let whole_file = rest.starts_with('!');
        let open = hash + 1 + usize::from(whole_file);
        if code.as_bytes().get(open) != Some(&b'[') {
            continue;
        }
        let attribute = code.get(bracketed(&code, open)).unwrap_or_default();
        let words: Vec<&str> = crate::source::words(attribute).map(|(_, word)| word).collect();
        if !words.contains(&LINT) {
            continue;
        }
        let mut found = |message: &str| {
            findings.push(Finding::new("exceptions", format!("{name}:{}", line_of(&code, hash)), message));
        };
        if words.contains(&"allow") || words.contains(&"warn") {
            found("unsafe code is allowed: use #[expect(unsafe_code, reason = \"…\")] at the function that needs it");
        } else if words.contains(&"expect") && whole_file {
            found("unsafe code is expected in a whole module: say so at the function that needs it");
        } else if words.contains(&"expect") && !words.contains(&"reason") {
            found("unsafe code is expected without a reason: add reason = \"…\"");
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        check_file("a.rs", text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn expect_with_a_reason_passes() {
        assert_eq!(messages("#[expect(unsafe_code, reason = \"setns has no wrapper\")]\nfn f() {}"), [""; 0]);
        assert_eq!(messages("#[expect(\n    unsafe_code,\n    reason = \"x\"\n)]\nfn f() {}"), [""; 0]);
        assert_eq!(messages("#![deny(unsafe_code)]\n#[allow(dead_code)]\n// #[allow(unsafe_code)]"), [""; 0]);
    }

    #[test]
    fn allow_is_found() {
        assert_eq!(
            messages("\n#[allow(dead_code, unsafe_code)]\nfn f() {}"),
            [
                "a.rs:2: unsafe code is allowed: use #[expect(unsafe_code, reason = \"…\")] at the function that needs it \
              [exceptions]"
            ]
        );
        assert_eq!(messages("#![allow(unsafe_code)]").len(), 1);
        assert_eq!(messages("#[cfg_attr(test, allow(unsafe_code))]").len(), 1);
    }

    #[test]
    fn expect_without_a_reason_is_found() {
        assert_eq!(messages("#[expect(unsafe_code)]").len(), 1);
    }

    #[test]
    fn expect_for_a_whole_module_is_found() {
        assert_eq!(messages("#![expect(unsafe_code, reason = \"x\")]").len(), 1);
    }
}
