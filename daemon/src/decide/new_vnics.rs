//! VNICs that appear while the agent runs. A VnicAttachment may describe one, and the agent must not configure an Exclusive VNIC
//! on the host before it knows. The controller attaches a VNIC first, and then writes its OCID into the object's status. Pure but
//! for what was seen before; the time is a parameter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use api::VnicAttachment;
use netlink::Link;
use vcn::{Ocid, Vnic};

use crate::decide::desired::secondary;
use crate::decide::requests::Requests;
use crate::facts::node_facts::{NodeFacts, npn_vnic};

/// How long a VNIC waits: the controller polls an attachment every 3 s, every 30 s while a hundred wait.
const WAIT: Duration = Duration::from_mins(1);

/// How long a VNIC that is no longer listed stays known. Lists are incomplete for a while, in particular while VNICs are attached, and
/// one that carries traffic must not be unconfigured when it is listed again. A VNIC that is attached again has another OCID.
const KNOWN: Duration = Duration::from_mins(60);

/// The VNICs that were seen.
#[derive(Debug, Default)]
pub(crate) struct NewVnics {
    /// Those that are configured as known, and when each was last listed; `None` before the first list.
    known: Option<BTreeMap<Ocid, Instant>>,
    /// Since when the others are listed.
    waiting: BTreeMap<Ocid, Instant>,
}

impl NewVnics {
    /// The listed VNICs whose purpose is not known yet.
    pub(crate) fn unexplained(
        &mut self,
        facts: &NodeFacts,
        requests: &Requests,
        links: &[Link],
        now: Instant,
    ) -> BTreeSet<Ocid> {
        let listed: BTreeSet<Ocid> = secondary(facts.vnics()).cloned().collect();
        if facts.vnics().is_empty() {
            return BTreeSet::new();
        }
        // When an agent starts, its VNICs may be in use, unless their link is down. A link is down after a boot, and as long as an
        // Exclusive VNIC waits for its pod.
        let in_use = || facts.vnics().iter().skip(1).filter(|vnic| is_raised(vnic, links));
        let known = self.known.get_or_insert_with(|| in_use().map(|vnic| (vnic.id.clone(), now)).collect());
        known.retain(|id, last_listed| listed.contains(id) || now.duration_since(*last_listed) < KNOWN);
        self.waiting.retain(|id, _| listed.contains(id));
        for id in listed {
            if let Some(last_listed) = known.get_mut(&id) {
                *last_listed = now;
                continue;
            }
            let since = *self.waiting.entry(id.clone()).or_insert(now);
            let is_explained = requests.contains_key(&id) || npn_vnic(facts.npn(), &id).is_some();
            if is_explained || now.duration_since(since) >= WAIT || !may_be_described(facts) {
                self.waiting.remove(&id);
                known.insert(id, now);
            }
        }
        self.waiting.keys().cloned().collect()
    }

    /// When the first of them is configured although nothing more is known.
    pub(crate) fn next(&self, now: Instant) -> Option<Duration> {
        self.waiting.values().map(|since| (*since + WAIT).saturating_duration_since(now)).min()
    }
}

fn is_raised(vnic: &Vnic, links: &[Link]) -> bool {
    let is_its = |link: &&Link| [link.mac, link.permanent_mac].contains(&Some(vnic.mac));
    links.iter().filter(is_its).any(|link| link.up)
}

/// Whether a VnicAttachment that is not known, or has no VNIC yet, may describe a VNIC.
fn may_be_described(facts: &NodeFacts) -> bool {
    let has_no_vnic = |object: &VnicAttachment| object.status.as_ref().is_none_or(|status| status.vnic_id.is_none());
    match &facts.attachments.value {
        Some(objects) => objects.iter().any(has_no_vnic),
        // Without an API server there is no error either.
        None => facts.attachments.error.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use resident::watch_activity::WatchActivity;
    use serde_json::json;

    use super::*;
    use crate::decide::requests::requests;
    use crate::decide::requests::tests::{attachment, facts};
    use crate::facts::node_facts::KnownAttachments;
    use crate::fixture::link;

    /// The facts before the VNIC `storage` is listed.
    fn before() -> NodeFacts {
        let mut before = facts(attachment(&json!({ "purpose": "Attach" }), &json!({})));
        let vnics = before.vnics()[..2].to_vec();
        before.vnics.absorb(Ok(vnics), Instant::now());
        before
    }

    /// The VNICs that wait after so many seconds, where these are the VnicAttachments.
    fn waiting(attachments: KnownAttachments, seconds: &[u64]) -> Vec<usize> {
        let (mut new, start) = (NewVnics::default(), Instant::now());
        assert!(new.unexplained(&before(), &Requests::new(), &[], start).is_empty(), "those of the start");
        let mut facts = facts(attachment(&json!({ "purpose": "Attach" }), &json!({})));
        facts.attachments = attachments;
        let requests = requests(&facts);
        seconds
            .iter()
            .map(|second| new.unexplained(&facts, &requests, &[], start + Duration::from_secs(*second)).len())
            .collect()
    }

    fn known(objects: Vec<VnicAttachment>) -> KnownAttachments {
        let mut known = KnownAttachments::default();
        known.watched(objects, WatchActivity::begin());
        known
    }

    #[test]
    fn new_vnic_waits_for_its_vnic_attachment_for_a_minute() {
        let described = attachment(&json!({ "purpose": "Attach", "mode": "Exclusive" }), &json!({}));
        let attaching = attachment(&json!({ "purpose": "Attach" }), &json!({ "vnicId": null }));
        assert_eq!(waiting(known(vec![described.clone()]), &[1]), [0], "it is known");
        assert_eq!(waiting(known(Vec::new()), &[1]), [0], "it was attached by hand");
        assert_eq!(waiting(known(vec![attaching.clone()]), &[1, 59, 62, 63]), [1, 1, 0, 0]);
        let mut silent = KnownAttachments::default();
        assert_eq!(waiting(silent.clone(), &[1]), [0], "no API server");
        silent.fail("the API server has not answered yet".to_owned());
        assert_eq!(waiting(silent, &[1, 59, 62]), [1, 1, 0]);
    }

    fn storage_link(up: bool) -> Link {
        Link { up, ..link("ens6", 0x0c) }
    }

    #[test]
    fn vnic_of_the_start_waits_unless_its_link_is_raised() {
        let mut facts = facts(attachment(&json!({ "purpose": "Attach", "mode": "Exclusive" }), &json!({})));
        facts.attachments = KnownAttachments::default();
        facts.attachments.fail("the API server has not answered yet".to_owned());
        let waiting = |facts: &NodeFacts, link: Link| {
            let requests = requests(facts);
            NewVnics::default().unexplained(facts, &requests, &[link], Instant::now()).len()
        };
        assert_eq!([waiting(&facts, storage_link(false)), waiting(&facts, storage_link(true))], [1, 0]);
        let described = attachment(&json!({ "purpose": "Attach", "mode": "Exclusive" }), &json!({}));
        facts.attachments = known(vec![described]);
        assert_eq!(waiting(&facts, storage_link(false)), 0, "its purpose is known");
    }

    #[test]
    fn vnic_that_an_incomplete_list_lacked_is_known() {
        let (mut new, start) = (NewVnics::default(), Instant::now());
        let mut all = facts(attachment(&json!({ "purpose": "Attach" }), &json!({ "vnicId": null })));
        all.attachments = known(vec![attachment(&json!({ "purpose": "Attach" }), &json!({ "vnicId": null }))]);
        let mut waiting = |facts: &NodeFacts, second| {
            new.unexplained(facts, &Requests::new(), &[storage_link(true)], start + Duration::from_secs(second)).len()
        };
        assert_eq!(waiting(&all, 0), 0);
        assert_eq!([waiting(&before(), 30), waiting(&all, 60)], [0, 0], "it was configured before");
        let late = 60 + KNOWN.as_secs();
        assert_eq!([waiting(&before(), late), waiting(&all, late + 30)], [0, 1], "it was gone for long");
    }
}
