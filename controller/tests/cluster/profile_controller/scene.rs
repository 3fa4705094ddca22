//! One API server and one profile controller for all tests of the file. Each test has its own nodes, by a label.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use api::{PROFILE_LABEL, VnicAttachment, VnicProfile};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use kube_harness::{ApiServer, wait_for};
use oke_node_controller::cluster::events::Events;
use oke_node_controller::cluster::store::{Store, follow_attachments, follow_nodes, follow_profiles};
use oke_node_controller::profile::run::Profiles;
use oke_node_controller::report::metrics::Metrics;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

/// How long a node that lost its label keeps its VNICs here.
pub(crate) const GRACE: Duration = Duration::from_secs(3);
/// How long a plan is applied here: long enough for some objects.
const ROUND: Duration = Duration::from_millis(20);
pub(crate) const WITHIN: Duration = Duration::from_secs(180);

/// The controller, on its own thread with its own runtime, because tests come and go.
struct Running {
    store: Arc<Store>,
    metrics: Arc<Metrics>,
    runtime: Handle,
}

static RUNNING: OnceLock<Running> = OnceLock::new();

pub(crate) struct Scene {
    client: Client,
    pool: String,
}

/// An instance's OCID.
pub(crate) fn ocid(name: &str) -> String {
    format!("ocid1.instance.oc1.iad.{name}")
}

/// Not the shared one: this controller watches all profiles of its API server.
fn server() -> &'static ApiServer {
    static SERVER: OnceLock<ApiServer> = OnceLock::new();
    SERVER.get_or_init(|| ApiServer::start().unwrap())
}

fn running() -> &'static Running {
    RUNNING.get_or_init(|| {
        let (store, metrics): (Arc<Store>, Arc<Metrics>) = Default::default();
        let (ready, is_ready) = mpsc::channel();
        let its = (store.clone(), metrics.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        std::thread::spawn(move || runtime.block_on(controller(its.0, its.1, ready)));
        is_ready.recv_timeout(WITHIN).expect("the controller starts");
        Running { store, metrics, runtime: handle }
    })
}

async fn controller(store: Arc<Store>, metrics: Arc<Metrics>, ready: mpsc::Sender<()>) {
    let server = server();
    for crd in api::crd::all() {
        server.apply_object(serde_json::to_value(crd).unwrap()).await.unwrap();
    }
    let client = || server.client(server.admin()).unwrap();
    let (read, mut is_read): (Vec<_>, Vec<_>) = (0..3).map(|_| watch::channel(false)).unzip();
    let [attachments, nodes, profiles] = <[_; 3]>::try_from(read).unwrap();
    let (events, writer) = Events::new(metrics.clone());
    let work = async {
        for read in &mut is_read {
            read.wait_for(|read| *read).await.unwrap();
        }
        ready.send(()).unwrap();
        let (client, store) = (client(), store.clone());
        Profiles { client, store, metrics, events, grace: GRACE, round: ROUND, chance: || 0.5 }.run().await;
    };
    tokio::join!(
        follow_attachments(client(), store.clone(), attachments, |_| {}),
        follow_nodes(client(), store.clone(), nodes, |_| {}),
        follow_profiles(client(), store.clone(), profiles),
        writer.run(client(), "test".to_owned(), backoff::chance),
        work,
    );
}

impl Scene {
    /// A test's scene, with its own nodes.
    pub(crate) fn new(pool: &str) -> Self {
        running();
        let server = server();
        Self { client: server.client(server.admin()).unwrap(), pool: pool.to_owned() }
    }

    pub(crate) fn api<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn node(&self, name: &str, metadata: Value) {
        self.node_as(name, name, metadata).await;
    }

    pub(crate) async fn node_as(&self, name: &str, instance: &str, mut metadata: Value) {
        metadata["name"] = name.into();
        metadata["labels"]["pool"] = self.pool.clone().into();
        let node = json!({ "metadata": metadata, "spec": { "providerID": format!("oci://{}", ocid(instance)) } });
        let node: Node = serde_json::from_value(node).unwrap();
        self.api().create(&PostParams::default(), &node).await.unwrap();
    }

    /// One VNIC, `net1`, for the nodes of the test; again, to change it.
    pub(crate) async fn profile(&self, name: &str, vnic: Value) {
        self.profile_with(name, vnic, json!({})).await;
    }

    pub(crate) async fn profile_with(&self, name: &str, vnic: Value, more: Value) {
        let mut template = json!({ "name": "net1", "purpose": "Host", "subnetId": "ocid1.subnet.oc1.iad.s" });
        template.as_object_mut().unwrap().extend(vnic.as_object().unwrap().clone());
        let mut spec = json!({ "nodeSelector": { "matchLabels": { "pool": self.pool } }, "attachments": [template] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile",
            "metadata": { "name": name }, "spec": spec });
        let params = PatchParams::apply("kubectl").force();
        self.api::<VnicProfile>().patch(name, &params, &Patch::Apply(object)).await.unwrap();
    }

    pub(crate) async fn merge<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned>(
        &self,
        name: &str,
        patch: Value,
    ) {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn delete<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize>(
        &self,
        name: &str,
    ) {
        self.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// From now on VnicAttachments of a profile are refused.
    pub(crate) async fn refuse(&self, profile: &str) {
        let (version, name) = ("admissionregistration.k8s.io/v1", json!({ "name": "no-vnics" }));
        let made = json!({ "apiGroups": ["oke.oraclecloud.com"], "apiVersions": ["*"], "operations": ["CREATE"],
            "resources": ["vnicattachments"] });
        let expression = format!("!object.metadata.name.startsWith('{profile}.')");
        let server = server();
        for object in [
            json!({ "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": name,
                "spec": { "failurePolicy": "Fail", "matchConstraints": { "resourceRules": [made] },
                    "validations": [{ "expression": expression, "message": "no VNICs today" }] } }),
            json!({ "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": name,
                "spec": { "policyName": "no-vnics", "validationActions": ["Deny"] } }),
        ] {
            server.apply_object(object).await.unwrap();
        }
        // A policy takes effect some moments after its creation.
        let instance =
            json!({ "instanceId": ocid("x"), "name": "x", "purpose": "Host", "subnetId": "ocid1.subnet.oc1.iad.s" });
        let probe = json!({ "metadata": { "name": format!("{profile}.probe") }, "spec": instance });
        let probe: VnicAttachment = serde_json::from_value(probe).unwrap();
        let params = PostParams { dry_run: true, ..PostParams::default() };
        wait_for("it is refused", async || self.api().create(&params, &probe).await.is_err().then_some(())).await;
    }

    /// They are accepted again.
    pub(crate) async fn allow(&self) {
        self.delete::<ValidatingAdmissionPolicyBinding>("no-vnics").await;
    }

    /// The objects of a profile, once there are this many. Finalizers of deleted ones are removed, as the reconciler of
    /// attachments does when OCI has detached the VNIC.
    pub(crate) async fn objects(&self, profile: &str, number: usize) -> Vec<VnicAttachment> {
        wait_for(&format!("{number} objects of {profile}"), async || {
            let (leaving, all): (Vec<_>, Vec<_>) = self
                .made_from(profile)
                .await
                .into_iter()
                .partition(|object| object.metadata.deletion_timestamp.is_some());
            for object in &leaving {
                let name = object.metadata.name.as_deref().unwrap();
                let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                match self.api::<VnicAttachment>().patch(name, &PatchParams::default(), &free).await {
                    Ok(_) | Err(kube::Error::Api(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            (all.len() == number && leaving.is_empty()).then_some(all)
        })
        .await
    }

    /// All objects of a profile.
    pub(crate) async fn made_from(&self, profile: &str) -> Vec<VnicAttachment> {
        let params = ListParams::default().labels(&format!("{PROFILE_LABEL}={profile}"));
        self.api::<VnicAttachment>().list(&params).await.unwrap().items
    }

    /// What the reconciler of attachments would finally write.
    pub(crate) async fn make_ready(&self, object: &VnicAttachment) {
        let name = object.metadata.name.as_deref().unwrap();
        let condition = |kind: &str| {
            json!({ "type": kind, "status": "True", "reason": kind, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let status = json!({ "status": { "observedGeneration": object.metadata.generation,
            "conditions": [condition("Attached"), condition("Ready")] } });
        let api: Api<VnicAttachment> = self.api();
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    pub(crate) async fn profile_says(&self, profile: &str, reason: &str) {
        let what = format!("{profile} says {reason}");
        wait_for(&what, async || {
            let profile: VnicProfile = self.api().get(profile).await.unwrap();
            let conditions = profile.status?.conditions;
            conditions.iter().any(|condition| condition.reason == reason).then_some(())
        })
        .await;
    }

    pub(crate) async fn event(&self, name: &str, reason: &str) -> Event {
        wait_for(&format!("an event {reason} of {name}"), async || {
            self.events(name).await.into_iter().find(|event| event.reason.as_deref() == Some(reason))
        })
        .await
    }

    /// The reasons of all Events about an object.
    pub(crate) async fn reported(&self, name: &str) -> Vec<String> {
        self.events(name).await.into_iter().filter_map(|event| event.reason).collect()
    }

    async fn events(&self, name: &str) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let mut all = events.list(&ListParams::default()).await.unwrap().items;
        all.retain(|event| event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref()) == Some(name));
        all
    }

    /// Freezes the controller as soon as something was created from a profile, and reports that; it continues when the sender
    /// is dropped.
    pub(crate) fn stop_in_the_midst_of(&self, profile: &str) -> (oneshot::Receiver<()>, mpsc::Sender<()>) {
        let (go_on, goes_on) = mpsc::channel();
        let (stops, stands) = oneshot::channel();
        let params = ListParams::default().labels(&format!("{PROFILE_LABEL}={profile}"));
        running().runtime.spawn(async move {
            let server = server();
            let api: Api<VnicAttachment> = Api::all(server.client(server.admin()).unwrap());
            while api.list(&params).await.unwrap().items.is_empty() {
                tokio::task::yield_now().await;
            }
            stops.send(()).unwrap();
            // On the only thread of the controller.
            let _ = goes_on.recv();
        });
        (stands, go_on)
    }

    /// How many reconciles the controller made.
    pub(crate) fn looks(&self) -> u64 {
        running().metrics.profile_reconciles.get()
    }

    /// Triggers another reconcile.
    pub(crate) fn nudge<T>(&self) -> Option<T> {
        running().store.changed().notify_one();
        None
    }
}
