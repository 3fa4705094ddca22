//! Links of pods that are gone although no DEL was called: the runtime lost the pod, or another program deleted the link of a pod
//! that runs. The agent cannot tell which, and reports both for a while, longer than the record of the pod exists.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use datapath::pod::LinkEnds;
use ipam::Allocation;
use netlink::{Error, Link};
use vcn::IfName;

use super::host;
use crate::report::condition::{Condition, Reason};

/// A DEL removes the link and then the record, within this time.
const CONFIRMED: Duration = Duration::from_secs(2);
/// How long a link that is gone is reported: the agent ends the record of its pod earlier.
const REPORTED: Duration = Duration::from_mins(5);

/// By the host ends of the links.
#[derive(Debug, Default)]
pub(super) struct GoneLinks(HashMap<IfName, GoneLink>);

/// The time, and how long a record without a link stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub now: Instant,
    pub dead_after: Duration,
}

#[derive(Debug)]
struct GoneLink {
    since: Instant,
    is_confirmed: bool,
    /// The pod.
    about: String,
}

impl GoneLinks {
    /// Compares the recorded pods with the links. Returns the conditions.
    pub(super) fn update(&mut self, running: &[&Allocation], moment: Moment) -> Result<Vec<Condition>, Error> {
        if !(running.is_empty() && self.0.is_empty()) {
            self.note(running, &host::links()?, moment);
        }
        let confirmed = self.0.iter().filter(|(_, gone)| gone.is_confirmed);
        Ok(confirmed.map(|(link, gone)| gone.condition(link)).collect())
    }

    fn note(&mut self, running: &[&Allocation], links: &[Link], Moment { now, dead_after }: Moment) {
        // A VNIC's own link that a pod has is not on the host.
        let gone = running.iter().filter(|it| it.exclusive.is_none() && !has_link(it, links));
        let gone: HashMap<&IfName, &Allocation> = gone.map(|it| (&it.host_link, *it)).collect();
        let is_back = |link: &IfName| links.iter().any(|other| other.name == *link);
        self.0.retain(|link, known| match (gone.contains_key(link), known.is_confirmed) {
            (true, _) => true,
            // A DEL ended it.
            (false, false) => false,
            (false, true) => (dead_after..REPORTED).contains(&now.duration_since(known.since)) && !is_back(link),
        });
        for (link, allocation) in gone {
            let new = || GoneLink { since: now, is_confirmed: false, about: allocation.holder() };
            let known = self.0.entry(link.clone()).or_insert_with(new);
            known.is_confirmed = now.duration_since(known.since) >= CONFIRMED;
        }
    }

    /// Whether a link is to be looked at again now.
    pub(super) fn is_waiting(&self, now: Instant) -> bool {
        self.0.values().any(|gone| !gone.is_confirmed && now.duration_since(gone.since) >= CONFIRMED)
    }

    /// When to ask for that again.
    pub(super) fn again(&self) -> Option<Duration> {
        self.0.values().any(|gone| !gone.is_confirmed).then_some(CONFIRMED)
    }
}

impl GoneLink {
    fn condition(&self, link: &IfName) -> Condition {
        let message = format!(
            "the host link {link} of the pod is gone, and no DEL was called: another program deleted it, or the runtime lost the \
             pod; if the pod runs, it has no network"
        );
        Condition::degraded(Reason::PodLinkGone, message).about(&self.about)
    }
}

/// Whether any link may be the host end of the pod's: another program may rename it or remove its alias.
fn has_link(allocation: &Allocation, links: &[Link]) -> bool {
    let ends = LinkEnds::of(&allocation.key.to_string(), allocation.key.ifname.clone());
    links.iter().any(|link| {
        link.alias.as_deref() == Some(ends.alias.as_str())
            || link.name == allocation.host_link
            || link.mac == Some(ends.host_mac)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::link;

    fn allocation(exclusive: bool) -> Allocation {
        let own = exclusive.then(|| json!({"link": "ens6", "mac": "02:00:17:00:00:0c"}));
        serde_json::from_value(json!({
            "key": {"network": "vcn-native", "containerId": "a", "ifname": "eth0"}, "addresses": [], "since": 1,
            "hostLink": "vcn000000000000", "pod": {"namespace": "shop", "name": "web-0"}, "exclusive": own,
        }))
        .unwrap()
    }

    fn at(start: Instant, second: u64) -> Moment {
        Moment { now: start + Duration::from_secs(second), dead_after: Duration::from_secs(30) }
    }

    /// Whether the link is reported at these seconds, while the record exists until `recorded` and the link is there until 0.
    fn reported(recorded: u64, seconds: &[u64]) -> Vec<bool> {
        let (mut gone, start, pod) = (GoneLinks::default(), Instant::now(), allocation(false));
        gone.note(&[&pod], &[link("vcn000000000000", 7)], at(start, 0));
        let is_reported = |second: &u64| {
            let running: &[&Allocation] = if *second <= recorded { &[&pod] } else { &[] };
            gone.note(running, &[link("ens3", 2)], at(start, *second));
            gone.0.values().any(|gone| gone.is_confirmed)
        };
        seconds.iter().map(is_reported).collect()
    }

    #[test]
    fn link_that_goes_without_del_is_reported_for_some_minutes() {
        assert_eq!(reported(31, &[1, 2, 4, 31, 60, 300, 302]), [false, false, true, true, true, true, false]);
        assert_eq!(reported(1, &[1, 3, 60]), [false; 3], "a DEL");
        assert_eq!(reported(5, &[1, 4, 6]), [false, true, false], "a DEL of a pod without link");
    }

    #[test]
    fn link_of_an_exclusive_vnic_is_in_its_pod() {
        let (mut gone, start, pod) = (GoneLinks::default(), Instant::now(), allocation(true));
        for second in [0, 60] {
            gone.note(&[&pod], &[], at(start, second));
        }
        assert!(gone.0.is_empty());
    }

    #[test]
    fn link_that_is_back_is_no_longer_reported() {
        let (mut gone, start, pod) = (GoneLinks::default(), Instant::now(), allocation(false));
        for second in [0, 5] {
            gone.note(&[&pod], &[], at(start, second));
        }
        assert!(gone.0.values().all(|gone| gone.is_confirmed) && !gone.0.is_empty());
        let condition = gone.0.iter().map(|(link, gone)| gone.condition(link)).next().unwrap();
        assert_eq!(condition.subject.as_deref(), Some("shop/web-0"));
        gone.note(&[&pod], &[link("vcn000000000000", 8)], at(start, 6));
        assert!(gone.0.is_empty());
    }
}
