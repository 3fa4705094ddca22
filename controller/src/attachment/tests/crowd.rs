//! Many refused requests, and a small budget: new, deleted, polled and briefly waiting objects are served all the same.

use std::sync::Arc;
use std::time::Duration;

use oci::{Budget, Rates};
use sandbox::FakeCloud;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::objects::{FakeObjects, delete, next};
use super::pod_networks::npn;
use super::scene::{Scene, compartment};
use crate::attachment::report::event_diff::is_settled;
use crate::attachment::sample::{attachment, instance, subnet};
use crate::attachment::worker::AttachmentWorker;
use crate::cluster::store::Store;
use crate::work::{self, NextReconcile, Retries, Work, Worker};

/// Calls per reconcile of a refused object; the budget is two per second.
const LOOK: Duration = Duration::from_millis(1500);
const REFUSED: u32 = 40;

/// Delays each reconcile by the time of its calls.
struct SlowWorker(AttachmentWorker<FakeObjects>);

impl Worker<vcn::Ocid> for SlowWorker {
    fn retries(&self) -> Retries {
        self.0.retries()
    }

    async fn work(&self, key: vcn::Ocid) -> NextReconcile {
        sleep(LOOK).await;
        self.0.work(key).await
    }
}

fn wants(store: &Store, name: &str, number: u32, subnet: &vcn::Ocid) {
    let mut object = attachment(name, number);
    object.spec.vnic.subnet_id = subnet.clone();
    store.attachments_mut().apply(object);
}

/// The time until this is true. OCI settles meanwhile.
async fn until(cloud: &FakeCloud, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_hours(1), "{what}");
        sleep(Duration::from_millis(100)).await;
        cloud.settle();
    }
    began.elapsed()
}

fn is_ready(store: &Store, name: &str) -> bool {
    let object = store.attachments().get(name).cloned();
    object.is_some_and(|object| is_settled(&object))
}

/// A queue with many objects that have been refused for half an hour.
struct Crowd {
    cloud: FakeCloud,
    store: Arc<Store>,
    objects: FakeObjects,
    work: Work<vcn::Ocid>,
    running: JoinHandle<()>,
}

impl Crowd {
    async fn of_refused(mut scene: Scene) -> Self {
        let (full, nodes) = (scene.full_subnet(), "ocid1.subnet.oc1.iad.nodes".parse().unwrap());
        scene.worker.context.budget = Budget::new(Rates { most: 2.0, ..Rates::default() });
        for number in 2..=REFUSED + 2 {
            scene.add_machine(number, &nodes);
        }
        let Scene { cloud, store, objects, worker, .. } = scene;
        let work = Work::default();
        for number in 2..REFUSED + 2 {
            wants(&store, &format!("refused-{number}"), number, &full);
            work.now(instance(number));
        }
        let running = tokio::spawn(work::run(work.clone(), Arc::new(SlowWorker(worker)), 1, || 0.5));
        sleep(Duration::from_mins(30)).await;
        assert_eq!(work.depth().failing, REFUSED as usize);
        Self { cloud, store, objects, work, running }
    }
}

#[tokio::test(start_paused = true)]
async fn new_deleted_and_pending_objects_do_not_wait_for_refused_ones() {
    let scene = Scene::with(4);
    scene.wants("old");
    scene.settle().await;
    let Crowd { cloud, store, objects, work, running } = Crowd::of_refused(scene).await;
    wants(&store, "new", REFUSED + 2, &subnet());
    work.now(instance(REFUSED + 2));
    let attached = until(&cloud, "the new one is ready", || is_ready(&store, "new")).await;
    delete(&store, "old");
    work.now(instance(1));
    let gone = until(&cloud, "the old one is gone", || store.attachments().get("old").is_none()).await;
    // Two or three reconciles each, and polls. Behind all refused ones, one reconcile alone would wait for a minute.
    assert!(attached < Duration::from_secs(30) && gone < Duration::from_secs(30), "{attached:?}, {gone:?}");

    let says = |state: &str| objects.pod_network.lock().unwrap().0 = Some(npn(state, state, &[]));
    let began = Instant::now();
    says("IN_PROGRESS");
    wants(&store, "pending", 1, &subnet());
    work.now(instance(1));
    sleep(Duration::from_secs(30)).await;
    says("SUCCESS");
    until(&cloud, "the pending one is ready", || is_ready(&store, "pending")).await;
    let attached = began.elapsed();
    // OCI accepts a change but does not apply it, and has to be asked again.
    cloud.accept_without_effect("UpdateVnic");
    let mut object = next(store.attachments().get("pending").unwrap());
    object.metadata.generation = Some(object.metadata.generation.unwrap_or_default() + 1);
    object.spec.vnic.skip_source_dest_check = true;
    store.attachments_mut().apply(object);
    work.now(instance(1));
    let asked = || cloud.calls().iter().filter(|(operation, _)| *operation == "UpdateVnic").count();
    until(&cloud, "the change is requested", || asked() == 1).await;
    cloud.carry_out("UpdateVnic");
    let changed = until(&cloud, "the pending one is changed", || is_ready(&store, "pending")).await;
    running.abort();
    // Reconciles after 0, 15 and 45 s, and polls. In the retry lane, one reconcile alone would wait for three minutes.
    assert!(attached < Duration::from_secs(75) && changed < Duration::from_secs(15), "{attached:?}, {changed:?}");
}

#[tokio::test(start_paused = true)]
async fn polls_are_slower_while_many_wait() {
    let scene = Scene::with(4);
    let others = 2..42;
    for number in others.clone() {
        scene.add_instance(number, &compartment());
        scene.store.attachments_mut().apply(attachment(&format!("other-{number}"), number));
        assert!(matches!(scene.worker.work(instance(number)).await, NextReconcile::Soon(_)));
    }
    scene.wants("a");
    // 41 of them, 3 calls each, in half of 20 calls a second.
    assert_eq!(scene.reconcile().await, NextReconcile::Soon(Duration::from_millis(12_300)));
    scene.cloud.settle();
    for number in others {
        assert!(matches!(scene.worker.work(instance(number)).await, NextReconcile::Settled(_)));
    }
    scene.settle().await;
    scene.wants("b");
    assert_eq!(scene.reconcile().await, NextReconcile::Soon(Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn intervals_follow_the_rate_that_oci_accepts() {
    let scene = Scene::with(4);
    for number in 2..3002 {
        scene.store.attachments_mut().apply(attachment(&format!("other-{number}"), number));
    }
    scene.wants("a");
    let pauses = async || {
        let NextReconcile::Soon(poll) = scene.reconcile().await else { panic!("it is being attached") };
        [poll, scene.worker.retries().apart, scene.worker.between_looks()].map(|pause| pause.as_millis())
    };
    assert_eq!(pauses().await, [3_000, 450, 1_500_500], "20 a second");
    // Two thirds of a request per second: most of it is less than a poll of one instance takes.
    for _ in 0..5 {
        scene.worker.context.budget.throttled(None);
        sleep(Duration::from_secs(1)).await;
    }
    let soon = pauses().await;
    assert!(soon[2] < 2 * 1_500_500, "a dip of some seconds: {soon:?}");
    sleep(Duration::from_hours(1)).await;
    let low = pauses().await;
    assert_eq!(low, [9_600, 14_400, 4 * 3_600_000], "at most four hours, because the rate may rise again");
}
