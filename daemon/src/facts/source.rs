//! What one source said last, how old that is, and why it is not newer. Pure: answers and the time are parameters.

use std::time::{Duration, Instant};

use resident::watch_activity::WatchActivity;

/// What is known from one source.
#[derive(Clone, Debug)]
pub struct Source<T> {
    /// The last good answer.
    pub value: Option<T>,
    /// Why the last attempt to learn more failed; `None` after a good answer.
    pub error: Option<String>,
    confirmed: Option<Confirmation>,
}

#[derive(Clone, Debug)]
enum Confirmation {
    At(Instant),
    /// A watch is open, which reports every change: it confirms with each byte that nothing else changed.
    Watched(WatchActivity),
}

impl<T> Default for Source<T> {
    fn default() -> Self {
        Self { value: None, error: None, confirmed: None }
    }
}

impl<T> Source<T> {
    /// Takes in an answer; a failure leaves the last good one.
    pub fn absorb(&mut self, answer: Result<T, String>, now: Instant) {
        match answer {
            Ok(value) => *self = Self { value: Some(value), error: None, confirmed: Some(Confirmation::At(now)) },
            Err(error) => self.fail(error),
        }
    }

    /// Takes in an answer of an open watch: it is as old as the last byte of the watch.
    pub fn watched(&mut self, value: T, activity: WatchActivity) {
        *self = Self { value: Some(value), error: None, confirmed: Some(Confirmation::Watched(activity)) };
    }

    /// Takes in a cached copy, and why there is nothing newer.
    pub fn recall(&mut self, value: T, age: Duration, error: Option<String>, now: Instant) {
        *self = Self { value: Some(value), error, confirmed: now.checked_sub(age).map(Confirmation::At) };
    }

    /// The source failed, or its watch is lost: the last good answer stays, and gets older.
    pub fn fail(&mut self, error: String) {
        self.unwatch();
        self.error = Some(error);
    }

    /// Records that the watch is closed, which is not a failure.
    pub fn unwatch(&mut self) {
        if let Some(Confirmation::Watched(activity)) = &self.confirmed {
            self.confirmed = Some(Confirmation::At(activity.last_byte().into_std()));
        }
    }

    /// Whether no attempt has ended yet.
    pub const fn is_pending(&self) -> bool {
        self.value.is_none() && self.error.is_none()
    }

    /// The age of the last good answer.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.confirmed.as_ref().map(|confirmed| match confirmed {
            Confirmation::At(then) => now.saturating_duration_since(*then),
            Confirmation::Watched(activity) => now.saturating_duration_since(activity.last_byte().into_std()),
        })
    }
}

impl<T: PartialEq> Source<T> {
    /// Whether the two differ in nothing but their age.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.value == other.value && self.error == other.error
    }
}
