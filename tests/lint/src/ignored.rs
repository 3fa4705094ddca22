//! Ignored tests: the reason says who runs the test. `.ci/test` selects a guest's tests by these words; others name a target of
//! the Makefile. A test with another reason would run nowhere, and nothing would fail.

use crate::finding::Finding;
use crate::tree::Tree;

/// What a reason contains, one of them.
const WHO: [&str; 5] =
    ["run by tests/uml/run", "without IPv6", "a kernel with IPVS", "run by tests/qemu/run", "make scale"];

/// Every test that is ignored without such a reason, examples in documentation included.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let lines =
        tree.with_extension("rs").flat_map(|(file, text)| (1..).zip(text.lines()).map(move |line| (file, line)));
    let unknown = lines.filter(|(_, (_, line))| ignores(line) && !WHO.iter().any(|who| line.contains(who)));
    let message = format!("ignored for a reason that says nothing of who runs it: {}", WHO.join(", "));
    unknown
        .map(|(file, (number, _))| Finding::new("ignored", format!("{}:{number}", file.display()), &*message))
        .collect()
}

fn ignores(line: &str) -> bool {
    let line = line.trim_start();
    let example = line.starts_with("//") && line.contains("```") && line.contains("ignore");
    example
        || line.starts_with("#[")
            && line.contains("ignore")
            && (line.starts_with("#[ignore") || line.contains("cfg_attr"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reasons_that_name_who_runs_the_test_pass() {
        for (line, count) in [
            ("#[ignore = \"needs 802.1Q: run by tests/uml/run\"]", 0),
            ("#[ignore = \"a measurement: make scale\"]", 0),
            ("    #[ignore = \"needs 802.1Q\"]", 1),
            ("#[ignore]", 1),
            ("#[cfg_attr(not(root), ignore)]", 1),
            ("/// ```rust,ignore", 1),
        ] {
            assert_eq!(check(&Tree::of(&[("a/tests/b.rs", line)])).len(), count, "{line}");
        }
    }
}
