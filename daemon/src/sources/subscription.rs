//! A source of news that may break: heard as long as it works; when it does not, made anew at growing pauses, for ever.
//! Meanwhile whoever listens looks for himself at every try, and a condition says so, from the loss to the end of it.

use std::io;

use resident::logging::chain;
use tokio::time::{Instant, sleep_until};

use crate::report::condition::{Condition, Reason};
use crate::sources::backoff::RETRY;

/// A source, or that there is none now.
#[derive(Debug)]
pub(crate) struct Listening<T> {
    /// What it tells about, for people.
    what: &'static str,
    /// Where pauses get their jitter from.
    chance: fn() -> f64,
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    Heard {
        source: T,
        /// Before it told anything: one that breaks as often as it is made is no better than none.
        failures: u32,
    },
    Lost {
        why: String,
        /// Since it told something; the pauses grow by them.
        failures: u32,
        next: Instant,
    },
}

impl<T> Listening<T> {
    /// Begins to listen, or to try.
    pub(crate) fn begin(what: &'static str, chance: fn() -> f64, open: impl FnOnce() -> io::Result<T>) -> Listening<T> {
        let state = State::Lost { why: String::new(), failures: 0, next: Instant::now() };
        let mut listening = Self { what, chance, state };
        listening.open(open);
        listening
    }

    /// The source, while it is heard.
    pub(crate) const fn source(&mut self) -> Option<&mut T> {
        match &mut self.state {
            State::Heard { source, .. } => Some(source),
            State::Lost { .. } => None,
        }
    }

    /// Waits for news; nothing is an answer, too: nobody knows what there is, so look. May be dropped while it waits.
    pub(crate) async fn news<N>(
        &mut self,
        open: impl FnOnce() -> io::Result<T>,
        wait: impl AsyncFnOnce(&mut T) -> io::Result<N>,
    ) -> Option<N> {
        match &mut self.state {
            State::Heard { source, failures } => match wait(source).await {
                Ok(news) => {
                    *failures = 0;
                    return Some(news);
                }
                Err(error) => self.lose(&error),
            },
            State::Lost { next, .. } => {
                sleep_until(*next).await;
                self.open(open);
            }
        }
        None
    }

    /// That it is not heard.
    pub(crate) fn condition(&self) -> Option<Condition> {
        let State::Lost { why, .. } = &self.state else { return None };
        let message = format!(
            "the system does not tell of changes: {why}; they are found by looking, after {} s at most",
            RETRY.cap.as_secs()
        );
        Some(Condition::degraded(Reason::ChangesUnheard, message).about(self.what))
    }

    fn open(&mut self, open: impl FnOnce() -> io::Result<T>) {
        match open() {
            Ok(source) => self.state = State::Heard { source, failures: self.failures() },
            Err(error) => self.lose(&error),
        }
    }

    const fn failures(&self) -> u32 {
        match self.state {
            State::Heard { failures, .. } | State::Lost { failures, .. } => failures,
        }
    }

    fn lose(&mut self, error: &io::Error) {
        let failures = self.failures().saturating_add(1);
        let next = Instant::now() + RETRY.pause(failures, (self.chance)());
        self.state = State::Lost { why: chain(error), failures, next };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each look found: after which whole seconds, and whether there is a condition then.
    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_made_anew_is_tried_at_growing_pauses_and_told_until_it_is_heard_again() {
        let broken = || io::Error::other("no descriptors");
        let mut listening = Listening::begin("files", || 1.0, || Ok("first"));
        assert_eq!((listening.condition(), listening.source()), (None, Some(&mut "first")));
        let heard = listening.news(|| Err(broken()), async |source| Ok(*source)).await;
        assert_eq!(heard, Some("first"));

        let begun = Instant::now();
        let mut looks = Vec::new();
        for tries in 0..9 {
            let open = || if tries < 8 { Err(broken()) } else { Ok("second") };
            let heard: Option<&str> = listening.news(open, async |_| Err(broken())).await;
            assert_eq!(heard, None, "whoever listens looks for himself");
            looks.push((begun.elapsed().as_secs(), listening.condition().is_some()));
            assert_eq!(listening.source().is_none(), listening.condition().is_some());
        }
        // Lost at once; then 1, 2, 4, 8, 16 and thrice 30 s.
        let lost = [0, 1, 3, 7, 15, 31, 61, 91].map(|at| (at, true));
        assert_eq!(looks, [&lost[..], &[(121, false)]].concat());
        let heard = listening.news(|| Err(broken()), async |source| Ok(*source)).await;
        assert_eq!(heard, Some("second"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_there_at_the_start_is_tried_like_what_was_lost() {
        let mut listening = Listening::begin("files", || 1.0, || Err(io::Error::other("none left")));
        let told = listening.condition().unwrap();
        assert_eq!((told.reason, told.subject.as_deref()), (Reason::ChangesUnheard, Some("files")));
        assert!(!told.blocks() && told.message.contains("none left"), "{told}");
        let heard: Option<()> = listening.news(|| Ok(()), async |()| Ok(())).await;
        assert_eq!((heard, listening.condition()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_breaks_as_often_as_it_is_made_is_made_at_growing_pauses() {
        let mut listening = Listening::begin("kernel", || 1.0, || Ok(()));
        let begun = Instant::now();
        let mut lost = Vec::new();
        while lost.len() < 5 {
            let heard: Option<()> = listening.news(|| Ok(()), async |()| Err(io::Error::other("broken"))).await;
            assert_eq!(heard, None);
            lost.extend(listening.condition().map(|_| begun.elapsed().as_secs()));
        }
        assert_eq!(lost, [0, 1, 3, 7, 15]);
    }
}
