//! What we had written before we wrote last. What is about to be written is remembered before it is; whoever is killed in
//! between leaves the earlier text in place, and it must not be taken for somebody else's: what is no longer wanted of it would
//! stay for ever.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Configuration;

/// An earlier text of ours. Of the first there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Earlier {
    /// All of the configuration, as it was written.
    pub(crate) written: Option<String>,
    /// What was asked for in it.
    pub(crate) wanted: Option<Value>,
    /// Whether it may be in place still: the next was about to be written.
    pub(crate) pending: bool,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Configuration {
    /// Whether it is not known if what we wrote last ever came to its place.
    pub(crate) fn is_pending(&self) -> bool {
        self.earlier.as_ref().is_some_and(|earlier| earlier.pending)
    }

    /// Whether nothing of ours may ever have been in its place.
    pub(crate) fn is_first_pending(&self) -> bool {
        self.earlier.as_ref().is_some_and(|earlier| earlier.pending && earlier.written.is_none())
    }

    /// Our texts, the last first, with what was asked for in each.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &Value)> {
        let last = self.written.as_deref().zip(self.wanted.as_ref());
        let earlier = self.earlier.as_ref().and_then(|it| it.written.as_deref().zip(it.wanted.as_ref()));
        last.into_iter().chain(earlier)
    }

    /// What was asked for in what is found: where that is ours to the byte, it is known; else it is of the last, or of either.
    pub(crate) fn asked(&self, found: &[u8]) -> Vec<Option<&Value>> {
        if let Some((_, wanted)) = self.texts().find(|(text, _)| text.as_bytes() == found) {
            return vec![Some(wanted)];
        }
        let earlier = self.earlier.as_ref().filter(|earlier| earlier.pending);
        [self.wanted.as_ref()].into_iter().chain(earlier.map(|earlier| earlier.wanted.as_ref())).collect()
    }

    /// Notes what is about to take the place of what is found.
    pub(crate) fn begin(&mut self, found: Option<&[u8]>, written: &str, wanted: &Value) {
        if self.written.as_deref() == Some(written) && self.wanted.as_ref() == Some(wanted) {
            return;
        }
        let never_came = self.is_pending() && self.written.as_deref().map(str::as_bytes) != found;
        let (last_written, last_wanted) =
            (self.written.replace(written.to_owned()), self.wanted.replace(wanted.clone()));
        if !never_came {
            let (written, wanted) = (last_written, last_wanted);
            self.earlier = Some(Earlier { written, wanted, pending: true, ..Earlier::default() });
        }
    }

    /// Notes that it is in place; whether that was not known.
    pub(crate) fn settle(&mut self) -> bool {
        let was_pending = self.is_pending();
        if let Some(earlier) = &mut self.earlier {
            earlier.pending = false;
        }
        self.earlier.take_if(|earlier| *earlier == Earlier::default());
        was_pending
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ours() -> Configuration {
        let mut known = Configuration::default();
        known.begin(None, "one", &json!(1));
        known
    }

    fn texts(known: &Configuration) -> Vec<&str> {
        known.texts().map(|(text, _)| text).collect()
    }

    #[test]
    fn until_the_first_is_in_place_nothing_of_ours_may_be_there() {
        let mut known = ours();
        assert!(known.is_first_pending());
        assert_eq!(known.asked(b"somebody's"), [Some(&json!(1)), None]);
        assert_eq!((known.settle(), known.settle()), (true, false));
        assert_eq!((known.is_first_pending(), known.earlier.clone()), (false, None));
        assert_eq!(known.asked(b"somebody's"), [Some(&json!(1))]);
    }

    #[test]
    fn until_the_next_is_in_place_either_may_be_there() {
        let mut known = ours();
        known.settle();
        known.begin(Some(b"one"), "two", &json!(2));
        assert!(known.is_pending() && !known.is_first_pending());
        assert_eq!(known.asked(b"one"), [Some(&json!(1))]);
        assert_eq!(known.asked(b"two"), [Some(&json!(2))]);
        assert_eq!(known.asked(b"either, with somebody's"), [Some(&json!(2)), Some(&json!(1))]);
        known.settle();
        assert_eq!(known.asked(b"with somebody's"), [Some(&json!(2))]);
        assert_eq!(known.asked(b"one"), [Some(&json!(1))], "somebody may bring it back");
    }

    #[test]
    fn what_never_came_to_its_place_is_forgotten_by_the_next() {
        let mut known = ours();
        known.settle();
        known.begin(Some(b"one"), "two", &json!(2));
        known.begin(Some(b"one"), "three", &json!(3));
        assert_eq!((texts(&known), known.is_pending()), (vec!["three", "one"], true));
        // That came, and we were killed before we could say so.
        known.begin(Some(b"three"), "four", &json!(4));
        assert_eq!((texts(&known), known.is_pending()), (vec!["four", "three"], true));
    }

    #[test]
    fn the_same_again_changes_nothing() {
        let mut known = ours();
        known.settle();
        known.begin(Some(b"one"), "two", &json!(2));
        known.settle();
        let before = known.clone();
        known.begin(Some(b"somebody's"), "two", &json!(2));
        assert_eq!(known, before);
    }
}
