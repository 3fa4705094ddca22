//! How `unsafe` may be allowed: at one function, by `#[expect(unsafe_code, reason = "…")]`. The compiler reports an `expect`
//! that nothing needs any more; an `allow` stays and covers what is added later.

use crate::finding::Finding;
use crate::source::{blank, bracketed, line_of};
use crate::tree::Tree;

/// Every attribute that allows unsafe code in another way.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.with_extension("rs") {
        let code = blank(text);
        for (at, _) in code.match_indices("unsafe_code") {
            let start = code.get(..at).and_then(|before| before.rfind('#')).unwrap_or(at);
            let open = code.get(start..at).and_then(|attribute| attribute.find('[')).unwrap_or(0);
            let attribute = code.get(start..bracketed(&code, start + open).end).unwrap_or_default();
            let forbids = ["deny(", "forbid("].iter().any(|level| attribute.contains(level));
            if !(forbids || attribute.starts_with("#[expect(") && attribute.contains("reason")) {
                let message =
                    "allow unsafe code only by #[expect(unsafe_code, reason = \"…\")] at the function that needs it";
                findings.push(Finding::new(
                    "exceptions",
                    format!("{}:{}", file.display(), line_of(&code, at)),
                    message,
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_expect_with_a_reason_at_an_item_passes() {
        for (text, count) in [
            ("#[expect(unsafe_code, reason = \"x\")]\nfn f() {}", 0),
            ("#[expect(\n    unsafe_code,\n    reason = \"x\"\n)]\nfn f() {}", 0),
            ("#![deny(unsafe_code)]\n#[allow(dead_code)]\n// #[allow(unsafe_code)]", 0),
            ("#[allow(dead_code, unsafe_code)]\nfn f() {}", 1),
            ("#[cfg_attr(test, allow(unsafe_code))]", 1),
            ("#[expect(unsafe_code)]", 1),
            ("#![expect(unsafe_code, reason = \"x\")]", 1),
        ] {
            assert_eq!(check(&Tree::of(&[("a.rs", text)])).len(), count, "{text}");
        }
    }
}
