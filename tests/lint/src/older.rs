//! Files that are older than a rule, and exempt from it: `tests/lint/older-files`, one `RULE PATH` a line. The list only shrinks: a
//! file that the rule finds nothing in, or that is gone, is a finding. A new or moved file is in no list, so every rule holds there.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;

use crate::finding::Finding;

const LIST: &str = "tests/lint/older-files";

/// Folders and modules whose names are clean, and stay so: none of their files is exempt from that rule.
const CLEAN: &[&str] = &["controller/src/fleet", "crates/api", "crates/health", "daemon/src/facts"];

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
        let listed = self.entries.iter().filter(|(of, _)| of == rule).map(|(_, path)| path.as_str());
        let is_clean = |path: &str| {
            let below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(['/', '.']));
            rule == "names" && CLEAN.iter().any(|folder| below(folder))
        };
        let (clean, exempt): (Vec<&str>, BTreeSet<&str>) = {
            let (clean, exempt): (Vec<&str>, Vec<&str>) = listed.partition(|path| is_clean(path));
            (clean, exempt.into_iter().collect())
        };
        let file_of = |finding: &Finding| finding.place.split(':').next().unwrap_or_default().to_owned();
        let used: BTreeSet<String> = findings.iter().map(file_of).collect();
        let refused =
            clean.into_iter().map(|path| (path, "is in a folder without exempt files: rename its identifiers"));
        let unused = exempt.iter().filter(|path| !used.contains(**path));
        let unused = unused.map(|path| (*path, "has none of these faults, or is gone: remove its line"));
        let about_list = |(path, what): (&str, &str)| Finding::new("older", LIST, format!("{rule} {path}: it {what}"));
        let about_list: Vec<Finding> = refused.chain(unused).map(about_list).collect();
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

    #[test]
    fn file_of_a_clean_folder_cannot_be_listed() {
        let list = "names crates/api/src/a.rs\nnames daemon/src/facts.rs\nnames crates/apis/a.rs";
        let found = places(list, &["crates/api/src/a.rs:1", "daemon/src/facts.rs:1", "crates/apis/a.rs:1"]);
        assert_eq!(found.iter().filter(|it| it.ends_with(" x")).count(), 2);
        assert_eq!(found.iter().filter(|it| it.contains("without exempt files")).count(), 2);
    }
}
