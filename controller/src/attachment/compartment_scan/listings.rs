//! Lists of compartments that many instances ask for: while one is fresh it is made once, however many ask at the same time.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oci::{CloudView, Error};
use tokio::sync::Mutex as Waiting;
use tokio::time::Instant;
use vcn::Ocid;

use super::{Compartment, CompartmentScan};
use crate::attachment::refusal::visible;

/// For so long it is believed that a compartment may not be listed: for those who ask together. Somebody may be mending it.
const REFUSED: Duration = Duration::from_secs(10);

/// By compartment. Who makes a list holds its lock, and the others wait for it.
#[derive(Debug, Default)]
pub struct Listings(Mutex<HashMap<Ocid, Arc<Waiting<Option<Listing>>>>>);

/// A list, or that there is none to be had, and when it was asked for.
#[derive(Debug)]
struct Listing {
    asked: Instant,
    listed: Option<Arc<Compartment>>,
}

impl Listings {
    /// Lists of these compartments, none of them older than `life`; nothing where one may not be listed.
    ///
    /// # Errors
    /// When there is no answer for one: then nothing is known of what is nowhere.
    pub async fn whole<C: CloudView>(
        &self,
        cloud: &C,
        compartments: &BTreeSet<Ocid>,
        life: Duration,
    ) -> Result<Option<CompartmentScan>, Error> {
        let mut swept = CompartmentScan::default();
        for compartment in compartments {
            let Some(listed) = self.one(cloud, compartment, life).await? else { return Ok(None) };
            swept.0.insert(compartment.clone(), listed);
        }
        Ok(Some(swept))
    }

    async fn one<C: CloudView>(
        &self,
        cloud: &C,
        compartment: &Ocid,
        life: Duration,
    ) -> Result<Option<Arc<Compartment>>, Error> {
        let slot = self.slot(compartment, life);
        let mut slot = slot.lock().await;
        if let Some(listing) = slot.as_ref().filter(|listing| listing.is_fresh(life)) {
            return Ok(listing.listed.clone());
        }
        let asked = Instant::now();
        let listed = visible(cloud.vnic_attachments(compartment, None).await)?;
        let listed = listed.map(|listed| Arc::new(Compartment::of(listed)));
        *slot = Some(Listing { asked, listed: listed.clone() });
        Ok(listed)
    }

    /// What is old and asked for by nobody now is not kept.
    fn slot(&self, compartment: &Ocid, life: Duration) -> Arc<Waiting<Option<Listing>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, slot| {
            slot.try_lock().map_or(true, |slot| slot.as_ref().is_some_and(|listing| listing.is_fresh(life)))
                || Arc::strong_count(slot) > 1
        });
        all.entry(compartment.clone()).or_default().clone()
    }
}

impl Listing {
    fn is_fresh(&self, life: Duration) -> bool {
        self.asked.elapsed() < if self.listed.is_some() { life } else { REFUSED.min(life) }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use sandbox::FakeCloud;

    use super::*;

    const LIFE: Duration = Duration::from_mins(5);

    fn compartment(name: &str) -> Ocid {
        format!("ocid1.compartment.oc1..{name}").parse().unwrap()
    }

    fn asked(cloud: &FakeCloud) -> usize {
        cloud.calls().iter().filter(|(operation, _)| *operation == "ListVnicAttachments").count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_compartment_is_listed_once_for_all_who_ask_whatever_else_they_ask_for() {
        let (cloud, listings) = (FakeCloud::new(), Listings::default());
        let (one, two, three) = (compartment("one"), compartment("two"), compartment("three"));
        let sets = [BTreeSet::from([one.clone(), two.clone()]), BTreeSet::from([one.clone(), three.clone()])];
        let askers = sets.iter().cycle().take(100).map(|set| listings.whole(&cloud, set, LIFE));
        for answer in join_all(askers).await {
            assert_eq!(answer.unwrap().unwrap().0.len(), 2);
        }
        assert_eq!(asked(&cloud), 3);
        tokio::time::sleep(LIFE).await;
        let first = BTreeSet::from([one]);
        listings.whole(&cloud, &first, LIFE).await.unwrap();
        assert_eq!(
            (asked(&cloud), listings.0.lock().unwrap().len()),
            (4, 1),
            "the others are old, and asked for by nobody"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_shared_by_those_who_ask_together_and_an_outage_is_nobodys_answer() {
        let (cloud, listings) = (FakeCloud::new(), Listings::default());
        let set = BTreeSet::from([compartment("one")]);
        cloud.forbid(&compartment("one"));
        let answers = join_all((0..100).map(|_| listings.whole(&cloud, &set, LIFE))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap().is_none()));
        assert_eq!(asked(&cloud), 1);
        cloud.allow(&compartment("one"));
        tokio::time::sleep(REFUSED).await;
        cloud.fail_next("ListVnicAttachments", (503, "ServiceUnavailable"), false);
        listings.whole(&cloud, &set, LIFE).await.unwrap_err();
        assert!(listings.whole(&cloud, &set, LIFE).await.unwrap().is_some());
    }
}
