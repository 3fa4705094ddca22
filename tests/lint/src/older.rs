//! Files that are older than a rule, and exempt from it: `tests/lint/older-files`, one `RULE PATH` a line. The list only shrinks: a
//! file that the rule finds nothing in, or that is gone, is a finding. A new or moved file is in no list, so every rule holds there.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;

use crate::finding::Finding;

const LIST: &str = "tests/lint/older-files";

/// The exempt files: rule and path.
#[derive(Debug, Default)]
pub struct OlderFiles {
    entries: BTreeSet<(String, String)>,
}

impl OlderFiles {
    /// Reads the list.
    ///
    /// # Errors
    /// When it cannot be read, or a line is not a rule and a path.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        Self::parse(&std::fs::read_to_string(root.join(LIST)).with_context(|| format!("read {LIST}"))?)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let entry = |line: &str| {
            let (rule, path) = line.split_once(' ').with_context(|| format!("{LIST}: {line}: not RULE PATH"))?;
            Ok((rule.to_owned(), path.to_owned()))
        };
        Ok(Self { entries: lines.map(entry).collect::<anyhow::Result<_>>()? })
    }

    /// The findings of a rule without those in its exempt files, and one for each file that needs no exemption any more.
    #[must_use]
    pub fn without_exempt(&self, rule: &str, findings: Vec<Finding>) -> Vec<Finding> {
        let exempt: BTreeSet<&str> =
            self.entries.iter().filter(|(of, _)| of == rule).map(|(_, path)| path.as_str()).collect();
        let file_of = |finding: &Finding| finding.place.split(':').next().unwrap_or_default().to_owned();
        let used: BTreeSet<String> = findings.iter().map(file_of).collect();
        let unused = exempt.iter().filter(|path| !used.contains(**path)).map(|path| {
            let message = format!("{rule} {path}: it has none of these faults, or is gone: remove its line");
            Finding::new("older", LIST, message)
        });
        let about_list: Vec<Finding> = unused.collect();
        findings.into_iter().filter(|finding| !exempt.contains(file_of(finding).as_str())).chain(about_list).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(list: &str, found: &[&str]) -> Vec<String> {
        let findings = found.iter().map(|place| Finding::new("names", *place, "x")).collect();
        let left = OlderFiles::parse(list).unwrap().without_exempt("names", findings);
        left.into_iter().map(|finding| format!("{} {}", finding.place, finding.message)).collect()
    }

    #[test]
    fn only_listed_files_of_the_rule_are_exempt() {
        assert_eq!(places("# comment\nnames a.rs\nother b.rs\n", &["a.rs:1", "b.rs:2"]), ["b.rs:2 x"]);
    }

    #[test]
    fn listed_file_that_is_clean_or_gone_is_found() {
        let found = "tests/lint/older-files names b.rs: it has none of these faults, or is gone: remove its line";
        assert_eq!(places("names a.rs\nnames b.rs", &["a.rs:1"]), [found]);
    }
}
