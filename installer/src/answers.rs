//! What plugins answer to VERSION, known per binary. They are asked on threads of their own: one that hangs keeps nobody
//! who only wants to know what is known.
//!
//! An answer holds as long as the binary is the same file, and is asked for anew each hour all the same. A binary that gave
//! no sound answer is asked again at growing pauses.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use patience::Backoff;

use crate::identity::Identity;
use crate::versions::{Answer, DEADLINE, ask};

/// Between two questions to a binary that gave no sound answer.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(60) };

/// How old a sound answer gets: what a plugin is linked to may change, too.
const HOLDS: Duration = Duration::from_secs(3600);

/// Whoever must not be kept waits so long for a binary that it knows nothing of. A sound plugin takes some milliseconds.
const GLANCE: Duration = Duration::from_millis(100);

/// A process that has not ended by then does not end when it is killed: it waits for a disk, say.
const STUCK: Duration = DEADLINE.saturating_mul(2);

/// So many are asked at the same time. A chain has a handful; whoever writes a thousand into it shall not have as many threads.
const MOST: usize = 16;

/// What is known of plugins. Copies know the same.
#[derive(Clone)]
pub struct Answers {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    heard: Condvar,
    /// How long whoever asks waits for what is not known.
    wait: Duration,
    chance: fn() -> f64,
    /// How a plugin is asked.
    asks: fn(&Path) -> Answer,
    /// Told of an answer that came after somebody had to go without it, and that one does not come.
    told: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    known: BTreeMap<PathBuf, Known>,
    /// Whether questions that do not end are looked after.
    watched: bool,
}

/// What is known of one path.
#[derive(Debug, Default)]
struct Known {
    /// The binary that was asked last.
    binary: Option<Identity>,
    /// What came of it, or of the binary before.
    answer: Option<Answer>,
    /// The binary that the answer is of.
    of: Option<Identity>,
    /// Since when it is being asked.
    asked: Option<Instant>,
    /// Whether it was told that the question does not end.
    stuck: bool,
    /// Unsound answers in a row.
    failures: u32,
    /// When to ask the same binary again.
    again: Option<Instant>,
    /// Whether somebody went without the answer that is awaited.
    missed: bool,
    /// Whether the binary that is being asked was seen to be gone meanwhile: what it says is no answer of another one's that
    /// is put there.
    gone: bool,
}

impl Answers {
    /// For whoever does nothing else: each plugin is waited for as long as it may take.
    #[must_use]
    pub fn waited_for() -> Self {
        Self::new(STUCK, || 1.0, ask, || ())
    }

    /// For whoever must not be kept: what is not known within a moment is awaited, and `told` says when it has come and is
    /// another than was known. It is called on a thread of ours and must not block.
    #[must_use]
    pub fn beside(chance: fn() -> f64, told: impl Fn() + Send + Sync + 'static) -> Self {
        Self::new(GLANCE, chance, ask, told)
    }

    fn new(
        wait: Duration,
        chance: fn() -> f64,
        asks: fn(&Path) -> Answer,
        told: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (state, heard) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { state, heard, wait, chance, asks, told: Box::new(told) }) }
    }

    /// What the binaries answer, in their order; those that nobody asks for any more are forgotten. All are asked at the same
    /// time.
    pub(crate) fn of(&self, paths: &[PathBuf]) -> Vec<Answer> {
        let end = Instant::now() + self.shared.wait;
        let mut state = self.shared.state();
        state.known.retain(|path, known| known.asked.is_some() || paths.contains(path));
        let (mut new, mut missing) = (Vec::new(), Vec::new());
        for path in paths {
            let binary = match fs::metadata(path) {
                Ok(metadata) => Some(Identity::from(&metadata)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // Its question goes on, and counts among those under way.
                    match state.known.get_mut(path).filter(|known| known.asked.is_some()) {
                        Some(known) => *known = Known { asked: known.asked, gone: true, ..Known::default() },
                        None => _ = state.known.remove(path),
                    }
                    missing.push(path);
                    continue;
                }
                Err(_) => None,
            };
            if self.shared.clone().ask(&mut state, path, binary) {
                new.push(path);
            }
        }
        while !new.is_empty() && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            state = self.shared.heard.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            // What came may be of the binary before; then this one is asked only now.
            new.retain(|path| self.shared.clone().ask(&mut state, path, Identity::of(path)));
        }
        let told = |path| match state.known.get_mut(path) {
            Some(known) if !missing.contains(&path) => known.told(),
            _ => Answer::Missing,
        };
        paths.iter().map(told).collect()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of it is whole, so it is sound whoever panicked meanwhile.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a binary asked where that is due. Says whether the binary is one that nothing is known of.
    fn ask(self: Arc<Self>, State { known, watched }: &mut State, path: &Path, binary: Option<Identity>) -> bool {
        let under_way = known.values().filter(|known| known.asked.is_some()).count();
        let entry = known.entry(path.to_owned()).or_default();
        let new = entry.answer.is_none() || entry.of != binary;
        let due = new || entry.again.is_none_or(|again| Instant::now() >= again);
        if entry.asked.is_some() || !due || under_way >= MOST {
            return new;
        }
        if entry.binary != binary {
            entry.failures = 0;
        }
        (entry.binary, entry.asked, entry.stuck) = (binary, Some(Instant::now()), false);
        let (asked, watcher) = (path.to_owned(), self.clone());
        let started = thread::Builder::new().name("version".to_owned()).spawn(move || {
            let answer = (self.asks)(&asked);
            self.note(&asked, answer);
        });
        if started.is_ok() && !*watched {
            let watch = thread::Builder::new().name("versions".to_owned()).spawn(move || watcher.watch());
            // Then it is told at the next look.
            *watched = watch.is_ok();
        }
        if let Err(error) = started {
            let answer = Answer::Refused(format!("it cannot be asked: {error}"));
            (entry.answer, entry.of, entry.asked) = (Some(answer), binary, None);
        }
        new
    }

    /// Looks after the questions under way until there are none, and tells of each that does not end: nobody else would.
    fn watch(&self) {
        let mut state = self.state();
        while let Some(left) = state.known.values().filter_map(Known::left).min() {
            if !left.is_zero() {
                state = self.heard.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let mut news = false;
            for entry in state.known.values_mut().filter(|entry| entry.left().is_some_and(|left| left.is_zero())) {
                entry.stuck = true;
                news |= entry.missed && entry.answer.is_none();
            }
            if news {
                drop(state);
                (self.told)();
                state = self.state();
            }
        }
        state.watched = false;
    }

    fn note(&self, path: &Path, answer: Answer) {
        let mut state = self.state();
        let entry = state.known.entry(path.to_owned()).or_default();
        let news = match entry.gone {
            true => {
                *entry = Known { missed: entry.missed, ..Known::default() };
                entry.missed
            }
            false => self.book(entry, path, answer),
        };
        // One more can be asked now.
        let news = news || state.known.values().any(|known| known.missed && known.asked.is_none());
        drop(state);
        self.heard.notify_all();
        if news {
            (self.told)();
        }
    }

    /// Takes an answer in; says whether that is news to somebody.
    fn book(&self, entry: &mut Known, path: &Path, answer: Answer) -> bool {
        let sound = matches!(answer, Answer::Speaks(_));
        entry.failures = if sound { 0 } else { entry.failures.saturating_add(1) };
        let pause = if sound { HOLDS } else { AGAIN.pause(entry.failures, (self.chance)()) };
        (entry.asked, entry.again) = (None, Some(Instant::now() + pause));
        let other = Identity::of(path) != entry.binary;
        let news = entry.missed && (other || entry.answer.as_ref() != Some(&answer));
        (entry.answer, entry.of, entry.missed) = (Some(answer), entry.binary, false);
        news
    }
}

impl Known {
    /// How long it may still be until the question is one that does not end; nothing where that is told, or none is asked.
    fn left(&self) -> Option<Duration> {
        self.asked.filter(|_| !self.stuck).map(|since| STUCK.saturating_sub(since.elapsed()))
    }

    /// What can be said now.
    fn told(&mut self) -> Answer {
        self.missed = self.missed || self.asked.is_some();
        match (&self.answer, self.asked) {
            (Some(answer), _) => answer.clone(),
            (None, Some(since)) if since.elapsed() >= STUCK => {
                Answer::Refused(format!("no answer within {DEADLINE:?}, and it does not end"))
            }
            // One that was not asked yet, for too many are, is so soon.
            (None, _) => {
                self.missed = true;
                Answer::Awaited
            }
        }
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("known", &self.shared.state().known).finish_non_exhaustive()
    }
}
