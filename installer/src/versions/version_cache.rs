//! The answers of binaries, kept until the binary changes. A new binary is asked at once, synchronously and within one
//! deadline for all; one that failed to answer is asked again at growing intervals.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use super::Answer;
use super::ask::{DEADLINE, Question};
use crate::files::Identity;

/// The longest backoff between two requests to a binary that failed to answer; the first is a second, and each is twice as long.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Processes started at the same time. A chain has a handful; the rest of a longer one is asked after these.
const AT_ONCE: usize = 16;

/// The answers of binaries, by path.
#[derive(Debug, Default)]
pub struct VersionCache {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug)]
struct Entry {
    binary: Option<Identity>,
    answer: Answer,
    /// Failed answers in a row.
    failures: u32,
    /// When to ask an unchanged binary again that failed to answer.
    retry_at: Instant,
    /// A process that did not end when it was killed (it waits for a disk, say): no second one is started.
    stuck: Option<Child>,
}

impl VersionCache {
    /// The binaries' answers, in their order. Binaries that are not in the list are forgotten.
    pub(crate) fn answers(&mut self, paths: &[PathBuf]) -> Vec<Answer> {
        self.answers_within(paths, DEADLINE)
    }

    pub(super) fn answers_within(&mut self, paths: &[PathBuf], deadline: Duration) -> Vec<Answer> {
        self.entries.retain(|path, _| paths.contains(path));
        let due: Vec<&PathBuf> = paths.iter().filter(|path| self.is_due(path)).collect();
        for some in due.chunks(AT_ONCE) {
            let end = Instant::now() + deadline;
            let questions: Vec<_> = some.iter().map(|path| (Identity::of(path), Question::put(path, end))).collect();
            for (path, (binary, question)) in some.iter().zip(questions) {
                let (answer, stuck) = question.answer(end, deadline);
                let before = self.entries.get(*path).filter(|entry| entry.binary == binary);
                let failures = before.map_or(0, |entry| entry.failures.saturating_add(1));
                let pause = Duration::from_secs(1).saturating_mul(2_u32.saturating_pow(failures)).min(LONGEST_PAUSE);
                let retry_at = Instant::now() + pause;
                self.entries.insert((*path).clone(), Entry { binary, answer, failures, retry_at, stuck });
            }
        }
        let answer = |path| self.entries.get(path).map_or(Answer::Missing, |entry| entry.answer.clone());
        paths.iter().map(answer).collect()
    }

    fn is_due(&mut self, path: &Path) -> bool {
        let Some(entry) = self.entries.get_mut(path) else { return true };
        if entry.stuck.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return false;
        }
        let failed = matches!(entry.answer, Answer::Failed(_));
        entry.binary != Identity::of(path) || failed && Instant::now() >= entry.retry_at
    }

    #[cfg(test)]
    pub(super) fn expire(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.retry_at = Instant::now());
    }
}
