//! A subscription to events that may break. While it is lost it is reopened with backoff; its reader is woken at each
//! attempt to look without events, and a condition reports the loss until it ends.

use std::io;

use resident::logging::chain;
use tokio::time::{Instant, sleep_until};

use crate::facts::condition::{Condition, Reason};
use crate::sources::backoff::RETRY;

/// A source of events, open or lost.
#[derive(Debug)]
pub(crate) struct Subscription<T> {
    /// What its events are about.
    what: &'static str,
    /// The jitter of the backoff.
    chance: fn() -> f64,
    state: State<T>,
    /// Since the last event: a source that breaks as often as it is opened is no better than none.
    failures: u32,
}

#[derive(Debug)]
enum State<T> {
    Open(T),
    Lost { error: String, retry: Instant },
}

impl<T> Subscription<T> {
    /// Opens the source, or begins to try.
    pub(crate) fn open(what: &'static str, chance: fn() -> f64, open: impl FnOnce() -> io::Result<T>) -> Self {
        let state = State::Lost { error: String::new(), retry: Instant::now() };
        let mut subscription = Self { what, chance, state, failures: 0 };
        subscription.reopen(open);
        subscription
    }

    pub(crate) const fn source(&mut self) -> Option<&mut T> {
        match &mut self.state {
            State::Open(source) => Some(source),
            State::Lost { .. } => None,
        }
    }

    /// Waits for events; `None` when the source was lost or reopened, so that events may have been missed. Cancel-safe.
    pub(crate) async fn news<N>(
        &mut self,
        open: impl FnOnce() -> io::Result<T>,
        wait: impl AsyncFnOnce(&mut T) -> io::Result<N>,
    ) -> Option<N> {
        match &mut self.state {
            State::Open(source) => match wait(source).await {
                Ok(news) => {
                    self.failures = 0;
                    return Some(news);
                }
                Err(error) => self.lose(&error),
            },
            State::Lost { retry, .. } => {
                sleep_until(*retry).await;
                self.reopen(open);
            }
        }
        None
    }

    /// The condition of a lost source.
    pub(crate) fn condition(&self) -> Option<Condition> {
        let State::Lost { error, .. } = &self.state else { return None };
        let message = format!(
            "the agent receives no events: {error}; it finds changes by looking, after {} s at most",
            RETRY.cap.as_secs()
        );
        Some(Condition::degraded(Reason::ChangesUnheard, message).about(self.what))
    }

    fn reopen(&mut self, open: impl FnOnce() -> io::Result<T>) {
        match open() {
            Ok(source) => self.state = State::Open(source),
            Err(error) => self.lose(&error),
        }
    }

    fn lose(&mut self, error: &io::Error) {
        self.failures = self.failures.saturating_add(1);
        let retry = Instant::now() + RETRY.delay(self.failures, (self.chance)());
        self.state = State::Lost { error: chain(error), retry };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken<T>() -> io::Result<T> {
        Err(io::Error::other("no descriptors"))
    }

    /// What a source says, as often as it is polled, if it opens.
    #[expect(clippy::fn_params_excessive_bools, reason = "a table calls it")]
    async fn news(subscription: &mut Subscription<u8>, opens: bool, works: bool) -> Option<u8> {
        let open = || if opens { Ok(2) } else { broken() };
        subscription.news(open, async |source: &mut u8| if works { Ok(*source) } else { broken() }).await
    }

    #[tokio::test(start_paused = true)]
    async fn lost_source_is_reopened_with_backoff_and_reported_until_then() {
        let mut subscription = Subscription::open("files", || 1.0, || Ok(1));
        assert_eq!((subscription.condition(), subscription.source()), (None, Some(&mut 1)));
        assert_eq!(news(&mut subscription, false, true).await, Some(1));
        let begun = Instant::now();
        let mut wakes = Vec::new();
        for attempt in 0..9 {
            assert_eq!(news(&mut subscription, attempt == 8, false).await, None);
            wakes.push((begun.elapsed().as_secs(), subscription.condition().is_some()));
            assert_eq!(subscription.source().is_none(), subscription.condition().is_some());
        }
        // Lost at once; then after 1, 2, 4, 8, 16 and thrice 30 s.
        let lost = [0, 1, 3, 7, 15, 31, 61, 91].map(|at| (at, true));
        assert_eq!(wakes, [&lost[..], &[(121, false)]].concat());
        assert_eq!(news(&mut subscription, false, true).await, Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn source_that_does_not_open_at_the_start_is_retried() {
        let mut subscription = Subscription::open("files", || 1.0, broken);
        let condition = subscription.condition().unwrap();
        assert_eq!((condition.reason, condition.subject.as_deref()), (Reason::ChangesUnheard, Some("files")));
        assert!(!condition.blocks() && condition.message.contains("no descriptors"), "{condition}");
        assert_eq!((news(&mut subscription, true, true).await, subscription.condition()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn source_that_breaks_before_any_event_is_reopened_with_backoff() {
        let mut subscription = Subscription::open("kernel", || 1.0, || Ok(1));
        let begun = Instant::now();
        let mut lost = Vec::new();
        while lost.len() < 5 {
            assert_eq!(news(&mut subscription, true, false).await, None);
            lost.extend(subscription.condition().map(|_| begun.elapsed().as_secs()));
        }
        assert_eq!(lost, [0, 1, 3, 7, 15]);
    }
}
