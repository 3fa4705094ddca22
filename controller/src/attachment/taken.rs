//! Changes of VNICs and releases of addresses that the cloud took. What it takes and does not carry out is asked for again after
//! pauses that grow, until it is seen to be done or something else is asked for. Pure.

use std::collections::{BTreeMap, HashMap};

use patience::Backoff;
use tokio::time::Instant;
use vcn::Ocid;

use crate::work::Pause;

/// Of one object: by VNIC or address what was taken of it, and is not seen to be done yet. Of almost all nothing: a tree without
/// entries is half as large as a table.
#[derive(Debug, Default)]
pub(super) struct Taken(BTreeMap<Ocid, Last>);

#[derive(Debug)]
struct Last {
    /// How often in turn.
    number: u32,
    at: Instant,
    /// Of the object: something else may be asked for since.
    generation: Option<i64>,
}

impl Taken {
    /// The cloud took a request.
    pub(super) fn took(&mut self, of: &Ocid, generation: Option<i64>, now: Instant) {
        let last = self.0.entry(of.clone()).or_insert(Last { number: 0, at: now, generation });
        let before = if last.generation == generation { last.number } else { 0 };
        *last = Last { number: before.saturating_add(1), at: now, generation };
    }

    /// Only of these it is not seen to be done.
    pub(super) fn keep(&mut self, is_open: impl Fn(&Ocid) -> bool) {
        self.0.retain(|of, _| is_open(of));
    }

    /// The pauses that are not over yet.
    pub(super) fn rests(&self, generation: Option<i64>, now: Instant, pauses: &Backoff) -> HashMap<Ocid, Pause> {
        let rest = |last: &Last| {
            // Whole: the queue spreads what comes after pauses.
            let left = pauses.pause(last.number, 1.0).saturating_sub(now.saturating_duration_since(last.at));
            Pause { left, number: last.number }
        };
        let same = self.0.iter().filter(|(_, last)| last.generation == generation);
        same.map(|(of, last)| (of.clone(), rest(last))).filter(|(_, rest)| !rest.left.is_zero()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn pauses_double_until_it_is_done_or_something_else_is_asked_for() {
        let pauses = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(5) };
        let (now, vnic): (_, Ocid) = (Instant::now(), "ocid1.vnic.oc1.iad.v".parse().unwrap());
        let mut taken = Taken::default();
        let rest = |seconds, number| Pause { left: Duration::from_secs(seconds), number };
        for (seconds, number) in [(1, 1), (2, 2), (4, 3), (5, 4)] {
            taken.took(&vnic, Some(1), now);
            let rests = HashMap::from([(vnic.clone(), rest(seconds, number))]);
            assert_eq!(taken.rests(Some(1), now, &pauses), rests);
        }
        assert_eq!(taken.rests(Some(1), now + Duration::from_secs(5), &pauses), HashMap::new());
        assert_eq!(taken.rests(Some(2), now, &pauses), HashMap::new(), "it asks for something else");
        taken.took(&vnic, Some(2), now);
        assert_eq!(taken.rests(Some(2), now, &pauses), HashMap::from([(vnic, rest(1, 1))]));
        taken.keep(|_| false);
        assert_eq!(taken.rests(Some(2), now, &pauses), HashMap::new());
    }
}
