//! How long ago the times of statuses were. The wall clock counts when this leader sees such a time first, and its own clock since:
//! a wall clock that jumps ends no step.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// A time that was not needed for this long is forgotten. Each step of the engine needs the times of all tasks.
const KEPT: Duration = Duration::from_mins(10);

/// By the uid of the task, and the time in seconds.
#[derive(Debug, Default)]
pub(crate) struct Ages(Mutex<HashMap<(String, i64), Sighting>>);

/// What the leader knows about a time.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    first: Instant,
    last: Instant,
    /// How old it was at first.
    age: Duration,
}

impl Ages {
    /// How long ago it was. One in the future is new.
    pub(crate) fn of(&self, uid: &str, time: &Time, now: Timestamp, instant: Instant) -> Duration {
        let sighting = self.sighting(uid, time, now, instant);
        sighting.age.saturating_add(instant.saturating_duration_since(sighting.first))
    }

    /// For how long this leader has known it.
    pub(crate) fn watched(&self, uid: &str, time: &Time, now: Timestamp, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.sighting(uid, time, now, instant).first)
    }

    fn sighting(&self, uid: &str, time: &Time, now: Timestamp, instant: Instant) -> Sighting {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = Duration::try_from(now.duration_since(time.0)).unwrap_or_default();
        let new = Sighting { first: instant, last: instant, age };
        let sighting = all.entry((uid.to_owned(), time.0.as_second())).or_insert(new);
        sighting.last = instant;
        *sighting
    }

    /// Forgets times that no task has any more.
    pub(crate) fn forget_old(&self, instant: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, sighting| instant.saturating_duration_since(sighting.last) < KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jump_of_the_wall_clock_makes_nothing_older() {
        let (ages, instant, second) = (Ages::default(), Instant::now(), Duration::from_secs(1));
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        let (since, hours) = (Time(at(0)), 3 * 3600);
        assert_eq!(ages.of("u", &since, at(5), instant), 5 * second);
        assert_eq!(ages.of("u", &since, at(7 + hours), instant + 2 * second), 7 * second);
        assert_eq!(ages.of("u", &since, at(9 - hours), instant + 4 * second), 9 * second);
        assert_eq!(ages.watched("u", &since, at(9), instant + 4 * second), 4 * second);
        // Another clock wrote it.
        let future = Time(at(hours));
        assert_eq!(ages.of("u", &future, at(0), instant), Duration::ZERO);
        assert_eq!(ages.of("u", &future, at(0), instant + second), second);
        // One that this leader sees first.
        assert_eq!(ages.of("other", &since, at(hours), instant), u32::try_from(hours).unwrap() * second);
        ages.forget_old(instant + KEPT + 2 * second);
        assert_eq!(ages.0.lock().unwrap().len(), 1);
    }
}
