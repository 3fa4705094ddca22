//! Lists of compartments that many instances need: each is requested once while it is fresh, however many callers there are.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oci::{CloudView, Error};
use tokio::sync::Mutex as Waiting;
use tokio::time::Instant;
use vcn::Ocid;

use super::{Compartment, CompartmentScan};
use crate::attachment::refusal::visible;

/// How long a refusal to list a compartment is shared by concurrent callers. A policy may be added meanwhile.
const REFUSED: Duration = Duration::from_secs(10);

/// By compartment. The caller that requests a list holds its lock; the others wait.
#[derive(Debug, Default)]
pub struct Listings(Mutex<HashMap<Ocid, Arc<Waiting<Option<Listing>>>>>);

/// A list, or a refusal, and when it was requested.
#[derive(Debug)]
struct Listing {
    asked: Instant,
    listed: Option<Arc<Compartment>>,
}

impl Listings {
    /// Lists of these compartments, none of them older than `life`; `None` for one that may not be listed.
    ///
    /// # Errors
    /// When one gets no answer: then an absence proves nothing.
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

    /// Old lists without a caller are dropped.
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
    async fn concurrent_callers_share_one_list() {
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
        assert_eq!((asked(&cloud), listings.0.lock().unwrap().len()), (4, 1), "the others are old and unused");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_shared_and_an_outage_is_not() {
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
