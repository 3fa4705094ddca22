//! Many who are refused, and few requests: who is new, who goes and who is polled is served all the same.

use std::sync::Arc;
use std::time::Duration;

use api::VnicAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use oci::{Budget, FakeCloud, Rates};
use tokio::time::{Instant, sleep};

use super::objects::FakeObjects;
use super::scene::{Scene, compartment};
use crate::attachment::sample::{attachment, instance};
use crate::attachment::tidings::is_settled;
use crate::attachment::worker::AttachmentWorker;
use crate::store::Store;
use crate::work::{self, Next, Retries, Work, Worker};

/// Calls in a look at what is refused; a second's calls are two.
const LOOK: Duration = Duration::from_millis(1500);
const REFUSED: u32 = 100;

/// Takes as long for a look as its calls take.
struct Slow(AttachmentWorker<FakeCloud, FakeObjects>);

impl Worker<vcn::Ocid> for Slow {
    fn retries(&self) -> Retries {
        self.0.retries()
    }

    async fn work(&self, key: vcn::Ocid) -> Next {
        sleep(LOOK).await;
        self.0.work(key).await
    }
}

fn wants(store: &Store, name: &str, number: u32, subnet: &vcn::Ocid) {
    let mut object = attachment(name, number);
    object.spec.vnic.subnet_id = subnet.clone();
    store.attachments_mut().apply(object);
}

/// How long it takes until this is so. The cloud settles meanwhile.
async fn until(cloud: &FakeCloud, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_hours(1), "{what}");
        sleep(Duration::from_millis(100)).await;
        cloud.settle();
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_hundred_who_are_refused_keep_nobody_waiting() {
    let mut scene = Scene::with(4);
    let (full, nodes) = (scene.full_subnet(), "ocid1.subnet.oc1.iad.nodes".parse().unwrap());
    scene.worker.budget = Budget::new(Rates { most: 2.0, ..Rates::default() });
    scene.wants("old");
    scene.settle().await;
    for number in 2..=REFUSED + 2 {
        scene.add_machine(number, &nodes);
    }
    let Scene { cloud, store, worker, .. } = scene;
    let work = Work::default();
    for number in 2..REFUSED + 2 {
        wants(&store, &format!("refused-{number}"), number, &full);
        work.now(instance(number));
    }
    let running = tokio::spawn(work::run(work.clone(), Arc::new(Slow(worker)), 1, || 0.5));
    sleep(Duration::from_mins(30)).await;
    assert_eq!(work.depth().failing, REFUSED as usize);
    let ready = |name: &str| {
        let object = store.attachments().get(name).cloned();
        object.is_some_and(|object| is_settled(&object, object.status.as_ref()))
    };
    wants(&store, "new", REFUSED + 2, &crate::attachment::sample::subnet());
    work.now(instance(REFUSED + 2));
    let attached = until(&cloud, "the new one is ready", || ready("new")).await;
    let mut object = VnicAttachment::clone(store.attachments().get("old").unwrap());
    object.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1_000_000).unwrap()));
    store.attachments_mut().apply(object);
    work.now(instance(1));
    let gone = until(&cloud, "the old one is gone", || store.attachments().get("old").is_none()).await;
    running.abort();
    // Two or three looks each and the polls' pauses; behind all that are refused, one look alone would wait for 150 s.
    assert!(attached < Duration::from_secs(30) && gone < Duration::from_secs(30), "{attached:?}, {gone:?}");
}

#[tokio::test(start_paused = true)]
async fn polls_are_slower_while_many_wait_and_no_longer() {
    let scene = Scene::with(4);
    let others = 2..42;
    for number in others.clone() {
        scene.add_instance(number, &compartment());
        scene.store.attachments_mut().apply(attachment(&format!("other-{number}"), number));
        assert!(matches!(scene.worker.work(instance(number)).await, Next::Soon(_)));
    }
    scene.wants("a");
    // 41 of them, 3 calls each, in half of 20 calls a second.
    assert_eq!(scene.look().await, Next::Soon(Duration::from_millis(12_300)));
    scene.cloud.settle();
    for number in others {
        assert!(matches!(scene.worker.work(instance(number)).await, Next::Settled(_)));
    }
    scene.settle().await;
    scene.wants("b");
    assert_eq!(scene.look().await, Next::Soon(Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn pauses_go_by_what_the_cloud_takes_not_by_what_it_may_be_asked() {
    let scene = Scene::with(4);
    for number in 2..3002 {
        scene.store.attachments_mut().apply(attachment(&format!("other-{number}"), number));
    }
    scene.wants("a");
    let pauses = async || {
        let Next::Soon(poll) = scene.look().await else { panic!("it is being attached") };
        [poll, scene.worker.retries().apart, scene.worker.between_looks()].map(|pause| pause.as_millis())
    };
    assert_eq!(pauses().await, [3_000, 450, 1_500_500], "20 a second");
    // Two thirds of a request per second: most of it is less than a poll of one instance takes.
    for _ in 0..5 {
        scene.worker.budget.throttled(None);
        sleep(Duration::from_secs(1)).await;
    }
    let soon = pauses().await;
    assert!(soon[2] < 2 * 1_500_500, "a dip of some seconds: {soon:?}");
    sleep(Duration::from_hours(1)).await;
    let low = pauses().await;
    assert_eq!(low, [9_600, 14_400, 48_016_000]);
    // By the same the queue reckons what was put off before.
    let longest = scene.worker.longest();
    assert_eq!([longest.soon, longest.regular].map(|pause| pause.as_millis()), [low[0], low[2]]);
}
