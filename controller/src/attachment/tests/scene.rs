//! An in-memory OCI, objects in the store, and a worker.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::condition::{ConditionType, find};
use api::{VnicAttachment, VnicAttachmentStatus};
use clap::Parser;
use oci::{
    AttachmentState, Budget, CreateAddress, Instance, InstanceState, RetryToken, Subnet, Vnic, VnicAttachment as Listed,
};
use sandbox::{FakeCloud, Refusal};
use vcn::{Family, Ocid};

use super::objects::{FakeObjects, delete, next};
use crate::args::Args;
use crate::attachment::mark::Mark;
use crate::attachment::observe::pod_network::PodNetwork;
use crate::attachment::sample::{attachment, instance, subnet};
use crate::attachment::worker::{AttachmentWorker, WorkerContext};
use crate::cluster::events::Events;
use crate::cluster::store::{NodeView, Store};
use crate::report::metrics::Metrics;
use crate::work::{NextReconcile, Worker};

pub(super) struct Scene {
    pub(super) cloud: FakeCloud,
    pub(super) store: Arc<Store>,
    pub(super) objects: FakeObjects,
    pub(super) worker: AttachmentWorker<FakeObjects>,
    pub(super) metrics: Arc<Metrics>,
}

pub(super) const CLUSTER: &str = "cluster-1";

pub(super) fn compartment() -> Ocid {
    "ocid1.compartment.oc1..one".parse().unwrap()
}

fn machine(number: u32) -> Instance {
    Instance {
        agent_config: None,
        id: instance(number),
        compartment_id: compartment(),
        lifecycle_state: InstanceState::Running,
        shape: "VM.Standard.E5.Flex".to_owned(),
        shape_config: None,
        display_name: None,
        node_pool: None,
        freeform_tags: oci::FreeformTags::default(),
    }
}

pub(super) fn pods(block: &str, id: Ocid) -> Subnet {
    Subnet {
        id,
        compartment_id: compartment(),
        display_name: None,
        cidr_block: block.parse().ok(),
        ipv6_cidr_block: "2603:c020:0:2::/64".parse().ok(),
        ipv6_cidr_blocks: Vec::new(),
        virtual_router_ip: None,
        ipv6_virtual_router_ip: None,
        prohibit_public_ip_on_vnic: true,
    }
}

impl Scene {
    /// One instance, number 1, with at most `most` VNICs, including its primary one.
    pub(super) fn with(most: usize) -> Self {
        let cloud = FakeCloud::new();
        for id in [subnet(), "ocid1.subnet.oc1.iad.nodes".parse().unwrap()] {
            cloud.add_subnet(pods("10.0.32.0/20", id));
        }
        cloud.add_instance(machine(1), &"ocid1.subnet.oc1.iad.nodes".parse().unwrap(), most);
        let store = Arc::new(Store::default());
        store.nodes_mut().apply(NodeView {
            name: "node-1".to_owned(),
            instance: Some(instance(1)),
            ..NodeView::default()
        });
        let objects = FakeObjects {
            store: store.clone(),
            statuses: Arc::default(),
            vanished: Arc::default(),
            halt: Arc::default(),
            refuse: Arc::default(),
            pod_network: Arc::new(Mutex::new((Some(PodNetwork::Absent), 0))),
        };
        let metrics = Arc::new(Metrics::default());
        let worker = worker(&cloud, &objects, &store, &metrics, CLUSTER);
        Self { cloud, store, objects, worker, metrics }
    }

    /// The same with room, and with object `a` changed like this; its VNIC is in sync.
    pub(super) async fn attached(change: impl FnOnce(&mut VnicAttachment)) -> Self {
        let scene = Self::with(4);
        scene.wants("a");
        scene.change("a", change);
        scene.settle().await;
        scene
    }

    /// One more instance, in another compartment.
    pub(super) fn add_instance(&self, number: u32, compartment: &Ocid) {
        let machine = Instance { compartment_id: compartment.clone(), ..machine(number) };
        self.cloud.add_instance(machine, &"ocid1.subnet.oc1.iad.nodes".parse().unwrap(), 4);
    }

    /// A subnet without a free address.
    pub(super) fn full_subnet(&self) -> Ocid {
        let id: Ocid = "ocid1.subnet.oc1.iad.full".parse().unwrap();
        self.cloud.add_subnet(pods("10.0.99.0/31", id.clone()));
        id
    }

    /// The process is killed and another one takes over: it knows nothing.
    pub(super) fn restart(&mut self) {
        self.restart_as(CLUSTER);
    }

    /// The same, and the cluster has this name from then on.
    pub(super) fn restart_as(&mut self, cluster: &str) {
        self.worker = worker(&self.cloud, &self.objects, &self.store, &self.metrics, cluster);
    }

    pub(super) fn wants(&self, name: &str) {
        self.store.attachments_mut().apply(attachment(name, 1));
    }

    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut VnicAttachment)) {
        let mut objects = self.store.attachments_mut();
        let mut object = next(objects.get(name).unwrap());
        change(&mut object);
        let generation = object.metadata.generation.unwrap_or(0) + 1;
        object.metadata.generation = Some(generation);
        objects.apply(object);
    }

    pub(super) fn delete(&self, name: &str) {
        delete(&self.store, name);
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.store.attachments().get(name).is_some()
    }

    pub(super) async fn reconcile(&self) -> NextReconcile {
        self.worker.work(instance(1)).await
    }

    /// Reconciles, with OCI settling in between, until nothing is pending.
    pub(super) async fn settle(&self) {
        for _ in 0..30 {
            let next = self.reconcile().await;
            if matches!(next, NextReconcile::Settled(_) | NextReconcile::Stuck(_) | NextReconcile::Gone) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
            self.cloud.settle();
        }
        panic!("it does not settle: {:?}", self.calls());
    }

    /// Reconciles ten times, also after failures. OCI completes its work in between.
    pub(super) async fn reconcile_often(&self) {
        for _ in 0..10 {
            self.reconcile().await;
            self.cloud.settle();
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
    }

    /// OCI refuses the next requests of an operation, as many as `times`.
    pub(super) fn refuse(&self, times: usize, operation: &'static str, refusal: impl Into<Refusal>) {
        let refusal = refusal.into();
        (0..times).for_each(|_| self.cloud.fail_next(operation, refusal.clone(), false));
    }

    pub(super) fn status(&self, name: &str) -> VnicAttachmentStatus {
        self.store.attachments().get(name).unwrap().status.clone().unwrap_or_default()
    }

    /// Status and reason of Attached, and of Ready.
    pub(super) fn reported(&self, name: &str) -> [String; 2] {
        let status = self.status(name);
        [ConditionType::Attached, ConditionType::Ready].map(|kind| {
            let reported = find(&status.conditions, kind);
            reported.map(|reported| format!("{} {}", reported.status, reported.reason)).unwrap_or_default()
        })
    }

    /// Status and reason of Ready.
    pub(super) fn ready(&self, name: &str) -> String {
        let [_, ready] = self.reported(name);
        ready
    }

    pub(super) fn message(&self, name: &str) -> String {
        let status = self.status(name);
        find(&status.conditions, ConditionType::Ready).map(|reported| reported.message.clone()).unwrap_or_default()
    }

    /// The calls that change something in OCI.
    pub(super) fn calls(&self) -> Vec<&'static str> {
        let all = self.cloud.calls().into_iter().map(|(operation, _)| operation);
        all.filter(|operation| !operation.starts_with("Get") && !operation.starts_with("List")).collect()
    }

    pub(super) fn count(&self, operation: &str) -> usize {
        self.cloud.calls().iter().filter(|(made, _)| *made == operation).count()
    }

    /// Secondary attachments that exist or are in progress.
    pub(super) fn live(&self) -> Vec<Listed> {
        let all = self.cloud.attachments().into_iter();
        all.filter(|it| it.lifecycle_state.counts() && it.display_name.is_some()).collect()
    }

    pub(super) async fn vnic(&self) -> Vnic {
        let live = self.live();
        assert_eq!(live.len(), 1, "{live:?}");
        assert_eq!(live[0].lifecycle_state, AttachmentState::Attached);
        self.cloud.vnic(live[0].vnic_id.as_ref().unwrap()).await.unwrap().value
    }

    /// The VNIC's addresses in addition to its own, the highest last.
    pub(super) async fn extra_addresses(&self, family: Family) -> Vec<IpAddr> {
        let all = self.cloud.addresses(&self.vnic().await.id, family).await.unwrap();
        // OCI marks a VNIC's own IPv4 address only; the controller tags the others.
        let is_own = |address: &oci::IpObject| match address.ip_address {
            IpAddr::V4(_) => address.is_primary,
            IpAddr::V6(_) => address.freeform_tags.is_empty(),
        };
        let mut all: Vec<_> =
            all.into_iter().filter(|address| !is_own(address)).map(|address| address.ip_address).collect();
        all.sort();
        all
    }

    /// Another owner, the primary VNIC, has this address.
    pub(super) async fn take_address(&self, taken: IpAddr) -> Ocid {
        let all = self.cloud.attachments().into_iter();
        let primary = all.filter(|it| it.display_name.is_none()).find_map(|it| it.vnic_id);
        let foreign = CreateAddress { vnic_id: primary, ip_address: Some(taken), ..CreateAddress::default() };
        let token = RetryToken::derive(&["foreign"]);
        self.cloud.create_address(Family::Ipv4, &foreign, &token).await.unwrap().value.id
    }

    pub(super) fn statuses(&self) -> usize {
        self.objects.statuses.load(Ordering::SeqCst)
    }
}

impl NextReconcile {
    /// How long the queue waits before the next reconcile: after a failure, `failed`.
    pub(super) fn pause(self, failed: Duration) -> Duration {
        match self {
            Self::Soon(pause) | Self::Settled(pause) | Self::Stuck(pause) => pause,
            Self::BackOff(pause) => pause.left,
            Self::Failed => failed,
            Self::Gone => Duration::from_hours(1),
        }
    }
}

fn worker(
    cloud: &FakeCloud,
    objects: &FakeObjects,
    store: &Arc<Store>,
    metrics: &Arc<Metrics>,
    cluster: &str,
) -> AttachmentWorker<FakeObjects> {
    let (events, _) = Events::new(Arc::default());
    let surroundings = WorkerContext {
        store: store.clone(),
        mark: Mark::new(cluster),
        events,
        metrics: metrics.clone(),
        pace: Args::parse_from(["oke-node-controller"]).options.pace,
        budget: Budget::default(),
    };
    AttachmentWorker::new((**cloud).clone(), objects.clone(), surroundings)
}
