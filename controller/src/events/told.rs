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
type Key = (String, &'static str, String);

#[derive(Debug, Default)]
pub(super) struct Told {
    last: BTreeMap<Key, Instant>,
    /// By time.
    order: VecDeque<(Instant, Key)>,
}

impl Told {
    /// Whether it is to be told now; it counts as told then.
    pub(super) fn is_new(&mut self, news: &News, now: Instant) -> bool {
        while let Some((told, key)) = self.order.front() {
            if now.saturating_duration_since(*told) < QUIET && self.order.len() < MOST {
                break;
            }
            self.last.remove(key);
            self.order.pop_front();
        }
        let key = (news.regarding.uid.clone().unwrap_or_default(), news.reason, news.note.clone());
        if self.last.contains_key(&key) {
            return false;
        }
        self.last.insert(key.clone(), now);
        self.order.push_back((now, key));
        true
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

    #[test]
    fn the_same_is_told_once_in_ten_minutes_and_anything_else_at_once() {
        let (mut told, start) = (Told::default(), Instant::now());
        let mut is_new = |news: &News, minutes: u64| told.is_new(news, start + Duration::from_mins(minutes));
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
            assert!(told.is_new(&news(&number.to_string(), "Attached", ""), start));
        }
        assert!(told.last.len() <= MOST && told.last.len() == told.order.len(), "{}", told.last.len());
    }
}
