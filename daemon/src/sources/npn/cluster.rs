//! What the watch of the API server knows, for whoever asks. Pure but for the time: how a lost watch turns into an age, and
//! when it is worth a word.

use std::time::{Duration, Instant};

use api::NativePodNetwork;
use tokio::sync::watch;
use vcn::Ocid;

use super::keeper::Keeper;
use super::{Answer, Error, NativePodNetworks};

/// How old an answer may be before its age is called a trouble. API servers restart and are unreachable for minutes, and
/// nothing is wrong with a node's pods meanwhile.
const OLD: Duration = Duration::from_secs(300);

/// How long the first question waits for the first answer.
pub(crate) const NPN_AWAITED: Duration = Duration::from_millis(1500);

/// The API server's NativePodNetworks, as a [`super::Watcher`] sees them.
#[derive(Debug)]
pub struct ClusterNpn {
    wanted: watch::Sender<Option<Ocid>>,
    seen: watch::Receiver<Seen>,
    keeper: Keeper,
}

/// What was seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    good: Option<Good>,
    trouble: Option<Trouble>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Good {
    npn: Option<NativePodNetwork>,
    /// Until when it is known to have been so; `None` while a watch stands, which would tell of a change.
    until: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Trouble {
    /// The object is there and of no use.
    Object(String),
    /// The API server does not answer, or refuses.
    Server(String),
}

impl Seen {
    /// A copy from the disk, of that age.
    pub(super) fn kept(&mut self, npn: NativePodNetwork, age: Duration, now: Instant) {
        self.good = Some(Good { npn: Some(npn), until: now.checked_sub(age) });
    }

    /// The watch stands, and this is what there is.
    pub(super) fn current(&mut self, npn: Option<NativePodNetwork>) {
        *self = Self { good: Some(Good { npn, until: None }), trouble: None };
    }

    /// The object is of no use; what was known before stays, and grows old.
    pub(super) fn unreadable(&mut self, why: String, now: Instant) {
        self.age_from(now);
        self.trouble = Some(Trouble::Object(why));
    }

    /// There is no watch any more. What is wrong with the object stays wrong.
    pub(super) fn lost(&mut self, why: String, now: Instant) {
        self.age_from(now);
        if !matches!(self.trouble, Some(Trouble::Object(_))) {
            self.trouble = Some(Trouble::Server(why));
        }
    }

    /// There is no watch, and none is needed: what was seen was so just now.
    pub(super) fn put_off(&mut self, now: Instant) {
        self.age_from(now);
    }

    /// Whether that there is no such kind is to be believed: as long as no object was seen. What was seen does not go because
    /// of a 404, which is also what a proxy answers, and an API server whose kind is being made anew; it grows old.
    pub(super) fn knows_no_object(&self) -> bool {
        self.good.as_ref().is_none_or(|good| good.npn.is_none())
    }

    fn age_from(&mut self, now: Instant) {
        if let Some(Good { until: until @ None, .. }) = &mut self.good {
            *until = Some(now);
        }
    }

    const fn says_something(&self) -> bool {
        self.good.is_some() || self.trouble.is_some()
    }

    fn answer(self, now: Instant) -> Result<Answer, Error> {
        let age = |good: &Good| good.until.map_or(Duration::ZERO, |until| now.saturating_duration_since(until));
        match (self.good, self.trouble) {
            (Some(good), trouble) => {
                let age = age(&good);
                let trouble = match trouble {
                    Some(Trouble::Object(why)) => Some(why),
                    Some(Trouble::Server(why)) => (age > OLD).then_some(why),
                    None => None,
                };
                Ok(Answer { npn: good.npn, age, trouble })
            }
            (None, Some(Trouble::Object(why) | Trouble::Server(why))) => Err(Error::Unavailable(why)),
            (None, None) => Err(Error::Unavailable("the API server has not answered yet".into())),
        }
    }
}

impl ClusterNpn {
    pub(super) const fn new(wanted: watch::Sender<Option<Ocid>>, seen: watch::Receiver<Seen>, keeper: Keeper) -> Self {
        Self { wanted, seen, keeper }
    }
}

impl NativePodNetworks for ClusterNpn {
    async fn mine(&self, instance: &Ocid) -> Result<Answer, Error> {
        self.wanted.send_if_modified(|wanted| wanted.replace(instance.clone()).as_ref() != Some(instance));
        let mut seen = self.seen.clone();
        let _ = tokio::time::timeout(NPN_AWAITED, seen.wait_for(Seen::says_something)).await;
        let seen = seen.borrow().clone();
        seen.answer(Instant::now())
    }

    async fn keep(&self) -> Result<(), String> {
        let keeper = self.keeper.clone();
        let kept = tokio::task::spawn_blocking(move || keeper.again()).await;
        kept.map_err(|error| error.to_string()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::npn;

    #[test]
    fn what_a_standing_watch_says_is_so_now() {
        let mut seen = Seen::default();
        let begun = Instant::now();
        assert!(seen.clone().answer(begun).is_err());
        seen.current(None);
        assert_eq!(seen.clone().answer(begun + OLD * 2).unwrap(), Answer::now(None));
        seen.current(Some(npn("SUCCESS")));
        assert_eq!(seen.answer(begun + OLD * 2).unwrap(), Answer::now(Some(npn("SUCCESS"))));
    }

    #[test]
    fn what_is_known_stays_when_the_watch_is_lost_grows_old_and_is_a_trouble_only_then() {
        let mut seen = Seen::default();
        let begun = Instant::now();
        seen.current(Some(npn("SUCCESS")));
        seen.lost("refused".into(), begun);
        seen.lost("still refused".into(), begun + OLD);
        let answer = |age: Duration, trouble: Option<&str>| Answer {
            npn: Some(npn("SUCCESS")),
            age,
            trouble: trouble.map(str::to_owned),
        };
        assert_eq!(seen.clone().answer(begun + OLD).unwrap(), answer(OLD, None));
        let older = OLD + Duration::from_secs(1);
        assert_eq!(seen.clone().answer(begun + older).unwrap(), answer(older, Some("still refused")));
        seen.current(Some(npn("SUCCESS")));
        assert_eq!(seen.answer(begun + older).unwrap(), answer(Duration::ZERO, None));
    }

    #[test]
    fn a_copy_from_the_disk_is_as_old_as_it_is() {
        let mut seen = Seen::default();
        let (begun, hour) = (Instant::now(), Duration::from_secs(3600));
        seen.kept(npn("SUCCESS"), hour, begun);
        seen.lost("refused".into(), begun);
        let answer = Answer { npn: Some(npn("SUCCESS")), age: hour, trouble: Some("refused".into()) };
        assert_eq!(seen.answer(begun).unwrap(), answer);
    }

    #[test]
    fn an_object_of_no_use_is_a_trouble_at_once_and_not_forgotten_when_the_watch_is_lost() {
        let mut seen = Seen::default();
        let begun = Instant::now();
        seen.current(None);
        seen.unreadable("spec.id is missing".into(), begun);
        seen.lost("refused".into(), begun);
        let trouble = Some("spec.id is missing".to_owned());
        assert_eq!(seen.answer(begun).unwrap(), Answer { npn: None, age: Duration::ZERO, trouble });
    }

    #[test]
    fn an_answer_that_there_is_no_such_kind_takes_no_object_away() {
        let mut seen = Seen::default();
        assert!(seen.knows_no_object());
        seen.current(None);
        assert!(seen.knows_no_object());
        seen.kept(npn("SUCCESS"), OLD, Instant::now());
        assert!(!seen.knows_no_object());
        seen.lost("404".into(), Instant::now());
        assert!(!seen.knows_no_object());
    }

    #[test]
    fn without_any_answer_the_reason_is_told() {
        let mut seen = Seen::default();
        seen.lost("forbidden".into(), Instant::now());
        let error = seen.answer(Instant::now()).unwrap_err().to_string();
        assert_eq!(error, "no NativePodNetwork can be had: forbidden");
    }
}
