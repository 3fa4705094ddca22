//! Links of pods that are gone although no DEL was called: the runtime lost the pod, or another program deleted the link of a pod
//! that runs. The agent cannot tell which, and reports both for a while, longer than the record of the pod exists. It ends with a
//! DEL, or when the runtime has made the pod's network again.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use cni::AttachmentKey;
use datapath::pod::LinkEnds;
use ipam::{Allocation, PodRecord};
use netlink::Link;
use vcn::IfName;

use crate::facts::condition::{Condition, Reason};

/// A DEL removes the link and then the record, within this time.
const CONFIRMED: Duration = Duration::from_secs(2);
/// How long a missing link is reported without a DEL: the agent ends the record of its pod earlier.
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
    key: AttachmentKey,
    pod: Option<PodRecord>,
    /// The pod, or its container.
    about: String,
}

impl GoneLinks {
    /// Compares the recorded pods with the host's links. Returns the conditions.
    pub(super) fn update(&mut self, running: &[&Allocation], links: &[Link], moment: Moment) -> Vec<Condition> {
        // A host has a loopback link: without any, the links are unknown.
        if !links.is_empty() {
            self.note(running, links, moment);
        }
        let confirmed = self.0.iter().filter(|(_, gone)| gone.is_confirmed);
        confirmed.map(|(link, gone)| gone.condition(link)).collect()
    }

    fn note(&mut self, running: &[&Allocation], links: &[Link], Moment { now, dead_after }: Moment) {
        // A VNIC's own link that a pod has is not on the host.
        let (linked, gone): (Vec<&Allocation>, Vec<&Allocation>) =
            running.iter().partition(|it| it.exclusive.is_some() || has_link(it, links));
        let is_replaced = |key: &AttachmentKey, pod: Option<&PodRecord>| {
            pod.is_some() && linked.iter().any(|it| follows(it, key, pod))
        };
        let gone = gone.into_iter().filter(|it| !is_replaced(&it.key, it.pod.as_ref()));
        let gone: HashMap<&IfName, &Allocation> = gone.map(|it| (&it.host_link, it)).collect();
        let is_back = |link: &IfName| links.iter().any(|other| other.name == *link);
        self.0.retain(|link, known| match (gone.contains_key(link), known.is_confirmed) {
            (true, _) => true,
            // A DEL ended it.
            (false, false) => false,
            (false, true) => {
                let is_reported = (dead_after..REPORTED).contains(&now.duration_since(known.since));
                is_reported && !is_back(link) && !is_replaced(&known.key, known.pod.as_ref())
            }
        });
        for (link, allocation) in gone {
            let known = self.0.entry(link.clone()).or_insert_with(|| GoneLink::of(allocation, now));
            known.is_confirmed = now.duration_since(known.since) >= CONFIRMED;
        }
    }

    /// Forgets the attachments that a DEL ended. Returns whether one of them was reported.
    pub(super) fn end(&mut self, deleted: &HashSet<AttachmentKey>) -> bool {
        let ended = self.0.extract_if(|_, gone| deleted.contains(&gone.key));
        ended.filter(|(_, gone)| gone.is_confirmed).count() > 0
    }

    /// Whether a link is to be looked at again now.
    pub(super) fn is_waiting(&self, now: Instant) -> bool {
        self.0.values().any(|gone| !gone.is_confirmed && now.duration_since(gone.since) >= CONFIRMED)
    }

    /// When to list that again.
    pub(super) fn again(&self) -> Option<Duration> {
        self.0.values().any(|gone| !gone.is_confirmed).then_some(CONFIRMED)
    }
}

impl GoneLink {
    fn of(allocation: &Allocation, since: Instant) -> Self {
        let Allocation { key, pod, .. } = allocation.clone();
        Self { since, is_confirmed: false, key, pod, about: allocation.holder() }
    }

    fn condition(&self, link: &IfName) -> Condition {
        let message = format!(
            "the host link {link} of the pod is gone, and no DEL was called: another program deleted it, or the runtime lost the \
             pod; if the pod runs, it has no network"
        );
        Condition::degraded(Reason::PodLinkGone, message).about(&self.about)
    }
}

/// Whether an attachment is the same interface of the same pod, in another container.
fn follows(allocation: &Allocation, key: &AttachmentKey, pod: Option<&PodRecord>) -> bool {
    let other = &allocation.key;
    other != key && other.network == key.network && other.ifname == key.ifname && allocation.pod.as_ref() == pod
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

    const LINK: &str = "vcn000000000000";

    fn allocation(container: &str, link: &str) -> Allocation {
        serde_json::from_value(json!({
            "key": {"network": "vcn-native", "containerId": container, "ifname": "eth0"}, "addresses": [], "since": 1,
            "hostLink": link, "pod": {"namespace": "shop", "name": "web-0"},
        }))
        .unwrap()
    }

    fn pod() -> Allocation {
        allocation("a", LINK)
    }

    fn at(start: Instant, second: u64) -> Moment {
        Moment { now: start + Duration::from_secs(second), dead_after: Duration::from_secs(30) }
    }

    /// Whether the link is reported at these seconds, while the record exists until `recorded` and the link is there until 0.
    fn reported(recorded: u64, seconds: &[u64]) -> Vec<bool> {
        let (mut gone, start, pod) = (GoneLinks::default(), Instant::now(), pod());
        gone.note(&[&pod], &[link(LINK, 7)], at(start, 0));
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
        let own = serde_json::from_value(json!({"link": "ens6", "mac": "02:00:17:00:00:0c"})).unwrap();
        let pod = Allocation { exclusive: Some(own), ..pod() };
        let (mut gone, start) = (GoneLinks::default(), Instant::now());
        for second in [0, 60] {
            gone.note(&[&pod], &[], at(start, second));
        }
        assert!(gone.0.is_empty());
    }

    /// A link that is reported 60 s after the pod's record ended.
    fn reported_link(start: Instant) -> GoneLinks {
        let (mut gone, host) = (GoneLinks::default(), [link("ens3", 2)]);
        for second in [0, 5, 31] {
            gone.update(&[&pod()], &host, at(start, second));
        }
        let conditions = gone.update(&[], &host, at(start, 60));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].subject.as_deref(), Some("shop/web-0"));
        gone
    }

    #[test]
    fn link_that_is_back_is_no_longer_reported() {
        let start = Instant::now();
        assert_eq!(reported_link(start).update(&[], &[link(LINK, 8)], at(start, 61)), []);
    }

    #[test]
    fn del_ends_the_report_although_the_record_is_gone() {
        let mut gone = reported_link(Instant::now());
        assert!(!gone.end(&HashSet::from(["vcn-native/b/eth0".parse().unwrap()])), "of another container");
        assert!(gone.end(&HashSet::from(["vcn-native/a/eth0".parse().unwrap()])));
        assert!(gone.0.is_empty());
    }

    #[test]
    fn new_container_of_the_pod_ends_the_report() {
        let (start, next) = (Instant::now(), allocation("b", "vcn111111111111"));
        let host = [link("ens3", 2), link("vcn111111111111", 9)];
        assert_eq!(reported_link(start).update(&[&next], &host, at(start, 61)), []);
        let other = Allocation { pod: None, ..next.clone() };
        assert_eq!(reported_link(start).update(&[&other], &host, at(start, 61)).len(), 1, "another pod's");
        // The record of the container that the runtime lost is there for a while.
        let mut gone = GoneLinks::default();
        for second in [0, 5] {
            assert_eq!(gone.update(&[&pod(), &next], &host, at(start, second)), []);
        }
    }

    #[test]
    fn unknown_links_are_not_gone() {
        let (mut gone, start) = (GoneLinks::default(), Instant::now());
        for second in [0, 5] {
            assert_eq!(gone.update(&[&pod()], &[], at(start, second)), []);
        }
    }
}
