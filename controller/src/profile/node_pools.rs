//! Reads from OCI the node pool of each instance whose Node names a pool that a VnicProfile selects. An instance is read once, before a
//! VNIC is requested for it. It is read again only while its metadata does not confirm the Node's annotation.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use backoff::Backoff;
use futures::{StreamExt, stream};
use oci::CloudView;
use resident::logging::chain;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use vcn::Ocid;

use crate::attachment::refusal;
use crate::cluster::store::{PoolAnswer, Store};

/// Concurrent requests. The client's request budget bounds them as well.
const AT_ONCE: usize = 4;
/// The most instances of one round, so that a round in which OCI does not answer is short.
const ROUND: usize = 32;
/// The time between attempts at an instance that cannot be read, and between rounds in which none can.
const RETRY: Backoff = Backoff { first: Duration::from_secs(2), cap: Duration::from_mins(2) };
/// The time between two reads of metadata that does not confirm the annotation: a person may correct it.
const CORRECTED_WITHIN: Duration = Duration::from_mins(15);
/// The longest wait while no instance is due.
const MAX_SLEEP: Duration = Duration::from_hours(1);

/// The node pool that each instance's Node names in its annotation.
pub(crate) type Nominated = BTreeMap<Ocid, Ocid>;

pub(crate) struct NodePoolReader {
    /// The OCI API, to read.
    pub cloud: CloudView,
    pub store: Arc<Store>,
    /// What the profiles' reconcile needs to know.
    pub nominated: watch::Receiver<Nominated>,
    /// A random number in 0.0–1.0, for the jitter of retries.
    pub chance: fn() -> f64,
}

/// The last attempt at an instance.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    failures: u32,
    /// When the next attempt is due, if the metadata does not confirm the annotation.
    next: Instant,
}

/// Reads the node pool of one instance.
pub(crate) async fn read_node_pool(cloud: &CloudView, instance: &Ocid) -> PoolAnswer {
    match cloud.instance(instance).await {
        Ok(instance) => PoolAnswer::Named(instance.node_pool),
        Err(error) => {
            tracing::debug!(event = "node_pool.unreadable", %instance, error = chain(&error));
            PoolAnswer::Unreadable(refusal::status_reason(&error, None).message)
        }
    }
}

impl NodePoolReader {
    pub(crate) async fn run(mut self) {
        let (mut attempts, mut failed_rounds) = (HashMap::new(), 0_u32);
        loop {
            let nominated = self.nominated.borrow_and_update().clone();
            self.forget(&mut attempts);
            let due: Vec<Ocid> = self.due(&nominated, &attempts, Instant::now()).into_iter().take(ROUND).collect();
            if due.is_empty() {
                let next = self.next(&nominated, &attempts);
                // Cancel-safe: a flag that `borrow_and_update` clears, and a timer.
                tokio::select! {
                    changed = self.nominated.changed() => if changed.is_err() { return },
                    () = sleep_until(next) => {}
                }
                continue;
            }
            let any = self.round(due, &mut attempts).await;
            failed_rounds = if any { 0 } else { failed_rounds.saturating_add(1) };
            if !any {
                sleep_until(Instant::now() + RETRY.delay(failed_rounds, (self.chance)())).await;
            }
        }
    }

    /// Reads these instances. Returns whether any could be read.
    async fn round(&self, due: Vec<Ocid>, attempts: &mut HashMap<Ocid, Attempt>) -> bool {
        let reads = due.into_iter().map(|instance| async {
            let answer = read_node_pool(&self.cloud, &instance).await;
            (instance, answer)
        });
        let mut answers = stream::iter(reads).buffer_unordered(AT_ONCE);
        let mut any = false;
        while let Some((instance, answer)) = answers.next().await {
            let is_read = matches!(answer, PoolAnswer::Named(_));
            any |= is_read;
            let before = attempts.get(&instance).map_or(0, |attempt| attempt.failures);
            let failures = if is_read { 0 } else { before.saturating_add(1) };
            let pause = if is_read { CORRECTED_WITHIN } else { RETRY.delay(failures, (self.chance)()) };
            attempts.insert(instance.clone(), Attempt { failures, next: Instant::now() + pause });
            self.store.change_pools(|pools| pools.record(&instance, answer));
        }
        any
    }

    /// Forgets instances without a Node. An annotation that comes and goes causes no further requests.
    fn forget(&self, attempts: &mut HashMap<Ocid, Attempt>) {
        let nodes = self.store.nodes();
        if attempts.keys().any(|instance| nodes.of(instance).is_none()) {
            attempts.retain(|instance, _| nodes.of(instance).is_some());
            self.store.change_pools(|pools| {
                pools.retain(|instance| nodes.of(instance).is_some());
                false
            });
        }
    }

    /// The instances whose read is due: new ones first, then those that wait longest.
    fn due(&self, nominated: &Nominated, attempts: &HashMap<Ocid, Attempt>, now: Instant) -> Vec<Ocid> {
        let next = |instance: &Ocid| attempts.get(instance).map(|attempt| attempt.next);
        let mut due: Vec<Ocid> =
            self.unconfirmed(nominated).filter(|instance| next(instance).is_none_or(|next| next <= now)).collect();
        due.sort_by_key(next);
        due
    }

    /// When the next read is due.
    fn next(&self, nominated: &Nominated, attempts: &HashMap<Ocid, Attempt>) -> Instant {
        let next = self.unconfirmed(nominated).filter_map(|instance| Some(attempts.get(&instance)?.next)).min();
        next.unwrap_or_else(|| Instant::now() + MAX_SLEEP)
    }

    fn unconfirmed(&self, nominated: &Nominated) -> impl Iterator<Item = Ocid> {
        let pools = self.store.pools();
        nominated.iter().filter_map(move |(instance, pool)| {
            let is_confirmed = matches!(pools.of(instance), Some(PoolAnswer::Named(Some(named))) if named == pool);
            (!is_confirmed).then(|| instance.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use oci::FreeformTags;
    use oci::{Instance, InstanceState};
    use sandbox::FakeCloud;
    use tokio::time::sleep;

    use super::*;
    use crate::attachment::sample::{instance, subnet};
    use crate::cluster::store::NodeView;

    fn pool(name: &str) -> Ocid {
        format!("ocid1.nodepool.oc1.iad.{name}").parse().unwrap()
    }

    fn machine(number: u32, node_pool: Option<Ocid>) -> Instance {
        Instance {
            id: instance(number),
            compartment_id: "ocid1.compartment.oc1..one".parse().unwrap(),
            lifecycle_state: InstanceState::Running,
            shape: "VM.Standard.E5.Flex".to_owned(),
            shape_config: None,
            display_name: None,
            agent_config: None,
            node_pool,
            freeform_tags: FreeformTags::default(),
        }
    }

    /// Instances with these node pools, the first one number 0, and their Nodes.
    fn scene(pools: &[Option<Ocid>]) -> (FakeCloud, Arc<Store>, watch::Sender<Nominated>) {
        let (cloud, store) = (FakeCloud::new(), Arc::new(Store::default()));
        for (number, pool) in (0..).zip(pools) {
            cloud.add_instance(machine(number, pool.clone()), &subnet(), 4);
            let node = NodeView { name: format!("n{number}"), instance: Some(instance(number)), ..NodeView::default() };
            store.nodes_mut().apply(node);
        }
        let nominated = watch::Sender::<Nominated>::default();
        let reader = NodePoolReader {
            cloud: (**cloud).clone(),
            store: store.clone(),
            nominated: nominated.subscribe(),
            chance: || 1.0,
        };
        tokio::spawn(reader.run());
        (cloud, store, nominated)
    }

    fn count(cloud: &FakeCloud) -> usize {
        cloud.calls().iter().filter(|(operation, _)| *operation == "GetInstance").count()
    }

    #[tokio::test(start_paused = true)]
    async fn instance_is_read_once_if_it_confirms() {
        let (cloud, store, nominated) = scene(&[Some(pool("a")), Some(pool("b")), None, Some(pool("a"))]);
        let all: Nominated = (0..3).map(|number| (instance(number), pool("a"))).collect();
        nominated.send_replace(all.clone());
        sleep(Duration::from_mins(1)).await;
        let answers = [0, 1, 2].map(|number| store.pools().of(&instance(number)).cloned());
        let named = |pool| Some(PoolAnswer::Named(pool));
        assert_eq!(answers, [named(Some(pool("a"))), named(Some(pool("b"))), named(None)]);
        assert_eq!((store.pools().of(&instance(3)), count(&cloud)), (None, 3), "it is not nominated");
        // An annotation that comes and goes causes no requests.
        for _ in 0..50 {
            nominated.send_replace(Nominated::new());
            sleep(Duration::from_secs(5)).await;
            nominated.send_replace(all.clone());
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(count(&cloud), 3);
        sleep(CORRECTED_WITHIN).await;
        assert_eq!(count(&cloud), 5, "the two that do not confirm");
        store.nodes_mut().delete("n0");
        nominated.send_replace(Nominated::new());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(store.pools().of(&instance(0)), None, "forgotten with its Node");
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_requests_are_retried_less_and_less() {
        let pools = vec![Some(pool("a")); 100];
        let (cloud, store, nominated) = scene(&pools);
        (0..100_000).for_each(|_| cloud.fail_next("GetInstance", (404, "NotAuthorizedOrNotFound"), false));
        nominated.send_replace((0..100).map(|number| (instance(number), pool("a"))).collect());
        sleep(Duration::from_mins(60)).await;
        assert!(count(&cloud) < 1200, "{}: a round of 32 every two minutes", count(&cloud));
        let unreadable =
            PoolAnswer::Unreadable("GetInstance: 404 NotAuthorizedOrNotFound: as the test wants".to_owned());
        for number in 0..100 {
            assert_eq!(
                store.pools().of(&instance(number)),
                Some(&unreadable),
                "{number} after {} requests",
                count(&cloud)
            );
        }
    }
}
