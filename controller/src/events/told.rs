//! What was told already: the same news come again with every look at an object. Pure; every function is told the time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::News;

/// For so long the same is not told again.
const QUIET: Duration = Duration::from_mins(10);
/// So much is remembered; when there is more, the oldest is forgotten, and told once more at worst.
const MOST: usize = 10_000;

/// Object (its uid), reason and note.
pub(super) type Key = (String, &'static str, String);

#[derive(Debug, Default)]
pub(super) struct Told {
    last: BTreeMap<Key, Instant>,
    /// By time.
    order: VecDeque<(Instant, Key)>,
}

impl Told {
    /// What it is noted by when it is told, where it is to be told now.
    pub(super) fn if_new(&mut self, news: &News, now: Instant) -> Option<Key> {
        while let Some((told, key)) = self.order.front() {
            if now.saturating_duration_since(*told) < QUIET && self.order.len() < MOST {
                break;
            }
            self.last.remove(key);
            self.order.pop_front();
        }
        let key = (news.regarding.uid.clone().unwrap_or_default(), news.reason, news.note.clone());
        (!self.last.contains_key(&key)).then_some(key)
    }

    /// It is told.
    pub(super) fn note(&mut self, key: Key, now: Instant) {
        self.last.insert(key.clone(), now);
        self.order.push_back((now, key));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::super::Level;
    use super::*;

    fn news(uid: &str, reason: &'static str, note: &str) -> News {
        let regarding = ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() };
        News { regarding, level: Level::Normal, reason, action: "Test", note: note.to_owned() }
    }

    fn is_new(told: &mut Told, news: &News, now: Instant) -> bool {
        told.if_new(news, now).map(|key| told.note(key, now)).is_some()
    }

    #[test]
    fn what_was_not_told_is_still_new() {
        let (mut told, start) = (Told::default(), Instant::now());
        let news = news("a", "Attached", "one");
        assert!(told.if_new(&news, start).is_some());
        assert!(is_new(&mut told, &news, start));
        assert_eq!(told.if_new(&news, start), None);
    }

    #[test]
    fn the_same_is_told_once_in_ten_minutes_and_anything_else_at_once() {
        let (mut told, start) = (Told::default(), Instant::now());
        let mut is_new = |news: &News, minutes: u64| is_new(&mut told, news, start + Duration::from_mins(minutes));
        let first = news("a", "Attached", "one");
        assert!(is_new(&first, 0));
        assert!(!is_new(&first, 9));
        for other in [news("b", "Attached", "one"), news("a", "Detached", "one"), news("a", "Attached", "two")] {
            assert!(is_new(&other, 9), "{other:?}");
        }
        assert!(is_new(&first, 10));
    }

    #[test]
    fn it_remembers_a_bounded_number() {
        let (mut told, start) = (Told::default(), Instant::now());
        for number in 0..MOST + 100 {
            assert!(is_new(&mut told, &news(&number.to_string(), "Attached", ""), start));
        }
        assert!(told.last.len() <= MOST && told.last.len() == told.order.len(), "{}", told.last.len());
    }
}
