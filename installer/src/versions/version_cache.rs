//! The answers of binaries, kept until the binary changes. A failed answer is kept for one reconcile only.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::Answer;
use super::ask::{DEADLINE, ask};
use crate::files::Identity;

/// The answers of binaries, by path.
#[derive(Debug, Default)]
pub struct VersionCache {
    entries: BTreeMap<PathBuf, (Option<Identity>, Answer)>,
}

impl VersionCache {
    /// Deletes failed answers: these binaries are asked once more.
    pub(crate) fn retry_failed(&mut self) {
        self.entries.retain(|_, (_, answer)| !matches!(answer, Answer::Failed(_)));
    }

    /// The binaries' answers, in their order. Binaries that are not in the list are forgotten.
    pub(crate) fn answers(&mut self, paths: &[PathBuf]) -> Vec<Answer> {
        self.answers_within(paths, DEADLINE)
    }

    pub(super) fn answers_within(&mut self, paths: &[PathBuf], deadline: Duration) -> Vec<Answer> {
        self.entries.retain(|path, _| paths.contains(path));
        let answer = |path: &PathBuf| {
            let binary = Identity::of(path);
            match self.entries.get(path) {
                Some((known, answer)) if *known == binary => answer.clone(),
                _ => {
                    let answer = ask(path, deadline);
                    self.entries.insert(path.clone(), (binary, answer.clone()));
                    answer
                }
            }
        };
        paths.iter().map(answer).collect()
    }
}
