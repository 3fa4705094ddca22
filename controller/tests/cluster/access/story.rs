//! All of the controller's work in a cluster: objects from before its start, new ones, deleted ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use api::bundle::{BUNDLE_ACCOUNT, BUNDLE_AUDIENCE};
use api::condition::find;
use api::node_task::TaskState;
use api::{
    Condition, ConditionType, NetworkTest, NodePolicy, NodeTask, POLICY_FINALIZER, TASK_FINALIZER, TestState, UID_TAG,
    VnicAttachment, VnicProfile,
};
use health::fleet::AGENT_ACCOUNT_MISSING;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use nettest::probe::PROBE_VERSION;
use sandbox::{NodeSpec, OciApi, OciSettings, SubnetSpec, Vcn};
use serde_json::{Value, json};
use tempfile::TempDir;
use vcn::Ocid;

use super::cluster::{Cluster, NAME, NAMESPACE, PROBES, make_pod};
use super::process::start;
use crate::agents::{self, FakeAgent, TrustedControllers};
use crate::bundles::{is_sent, token};
use crate::process::Controller;
use crate::scene::reason;

const LOG: &str = "log";
const AGENT: &str = "oke-node-agent";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A cluster and an OCI for the story.
struct Scene<'c> {
    cluster: &'c Cluster,
    vcn: Arc<Vcn>,
    oci: OciApi,
    within: Duration,
    slowest: Duration,
    trusted: TrustedControllers,
    agents: Vec<FakeAgent>,
}

pub(crate) struct Outcome {
    /// The first part that failed.
    pub(crate) missing: Option<&'static str>,
    /// The duration of the slowest successful part.
    pub(crate) slowest: Duration,
    pub(crate) log: String,
}

/// Runs it from the start, with a deadline per part, and cleans up.
pub(crate) async fn play(cluster: &Cluster, within: Duration) -> Outcome {
    let mut scene = Scene::new(cluster, within);
    let folder = TempDir::new().unwrap();
    let missing = scene.play(folder.path()).await.err();
    let log = std::fs::read_to_string(folder.path().join(LOG)).unwrap();
    cluster.clear().await;
    Outcome { missing, slowest: scene.slowest, log }
}

impl<'c> Scene<'c> {
    fn new(cluster: &'c Cluster, within: Duration) -> Self {
        let mut builder = Vcn::builder().subnet(SubnetSpec::new("nodes", &["10.0.0.0/24"]));
        for name in ["a", "b"] {
            let node = NodeSpec::virtual_machine(name, "nodes").shape("VM.Standard.E5.Flex", 24);
            builder = builder.node(node.on_paper());
        }
        let vcn = Arc::new(builder.start().unwrap());
        let oci = OciApi::start(Arc::clone(&vcn), OciSettings::default()).unwrap();
        let trusted = TrustedControllers::follow(cluster.admin.clone());
        Self { cluster, vcn, oci, within, slowest: Duration::ZERO, trusted, agents: Vec::new() }
    }

    async fn play(&mut self, folder: &Path) -> Result<(), &'static str> {
        self.keys().await;
        self.node("a").await;
        self.account().await;
        self.agent("a").await;
        self.pod_network("a").await;
        self.profile("before").await;
        self.attachment("own", "a").await;
        self.network_test("before", None).await;
        self.policy("before").await;
        self.stop_switch("false").await;
        make_pod(&self.cluster.admin, PROBES, "orphan", &json!({ "app.kubernetes.io/name": "oke-network-probe" }))
            .await;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.cluster.admin.clone(), NAMESPACE);
        accounts.delete(AGENT, &DeleteParams::default()).await.unwrap();
        let (mut controller, _proxymux) = start(self.cluster, &self.oci, &folder.join(LOG)).await;
        self.parts(&mut controller).await
    }

    async fn parts(&mut self, controller: &mut Controller) -> Result<(), &'static str> {
        self.until("the user's VNIC is ready", async |scene| scene.is_ready("own").await).await?;
        self.until("the profile's VNIC is ready", async |scene| scene.stamped_ready("before").await == [true]).await?;
        self.until("the profile says so", async |scene| scene.profile_is_ready("before").await).await?;
        self.until("an Event reports the VNIC", async |scene| scene.has_event("own").await).await?;
        self.until("its key is published, and the key of a pod that is gone removed", async |scene| {
            scene.published().await == [format!("{NAME}-0")]
        })
        .await?;
        self.until("a node has its conditions", async |scene| scene.is_judged("a").await).await?;
        self.missing_account_is_shown(controller).await?;
        self.bundle_is_sent(controller).await?;
        self.repaired_node_is_left_to_oke(controller).await?;
        self.policies_are_rolled_out().await?;
        self.tasks_are_refused().await?;
        self.until("a network test is finished", async |scene| scene.is_tested("before").await).await?;
        self.network_test("late", Some(0)).await;
        self.until("a network test that came later is deleted in the end", async |scene| {
            scene.api::<NetworkTest>().get_opt("late").await.unwrap().is_none()
        })
        .await?;
        self.until("an orphaned probe Pod is deleted", async |scene| {
            scene.probes().await.iter().all(|pod| pod.name_any() != "orphan")
        })
        .await?;
        self.pod_test("from-pod").await;
        self.until("a network test from a pod is finished", async |scene| {
            scene.end_probes().await;
            scene.answered("from-pod").await
        })
        .await?;
        self.until("its probe Pod is deleted", async |scene| scene.probes().await.is_empty()).await?;
        self.until("VNICs bear the cluster's name", async |scene| scene.tags_name_the_cluster().await).await?;
        self.lease_is_renewed().await?;
        self.node("b").await;
        self.agent("b").await;
        self.until("a node that came later has its conditions", async |scene| scene.is_judged("b").await).await?;
        self.until("a node that came later has its VNIC", async |scene| {
            scene.stamped_ready("before").await == [true, true]
        })
        .await?;
        self.attachment("late", "a").await;
        self.until("a VNIC that was requested later is ready", async |scene| scene.is_ready("late").await).await?;
        self.profile("after").await;
        self.until("a profile that came later has its VNICs", async |scene| {
            scene.stamped_ready("after").await == [true, true]
        })
        .await?;
        self.api::<VnicProfile>().delete("after", &DeleteParams::default()).await.unwrap();
        self.until("a deleted profile's VNICs are gone", async |scene| scene.stamped_ready("after").await.is_empty())
            .await?;
        let own = self.uid("own").await;
        self.api::<VnicAttachment>().delete("own", &DeleteParams::default()).await.unwrap();
        self.until("a deleted VNIC is gone, its object too", async |scene| {
            !scene.is_attached(&own) && scene.get("own").await.is_none()
        })
        .await?;
        self.stops(controller).await
    }

    async fn stops(&mut self, controller: &mut Controller) -> Result<(), &'static str> {
        controller.send_sigterm();
        self.until("it exits when it is stopped", async |_| controller.ended().is_some_and(|status| status.success()))
            .await?;
        self.until("the Lease is released", async |scene| scene.holder().await.is_none()).await
    }

    async fn missing_account_is_shown(&mut self, controller: &Controller) -> Result<(), &'static str> {
        self.until("the missing account of the agents is shown", async |_| {
            controller.view("/fleet").is_some_and(|(_, fleet)| fleet.contains(AGENT_ACCOUNT_MISSING))
        })
        .await?;
        self.account().await;
        Ok(())
    }

    async fn repaired_node_is_left_to_oke(&mut self, controller: &Controller) -> Result<(), &'static str> {
        self.until("a node that a NodeRepairConfig selects is left to OKE", async |scene| {
            let shown = "NodeRepairConfig gpus selects it";
            !scene.cluster.has_pod_networks.load(Ordering::Relaxed)
                || controller.view("/fleet").is_some_and(|(_, fleet)| fleet.contains(shown))
        })
        .await
    }

    async fn bundle_is_sent(&mut self, controller: &Controller) -> Result<(), &'static str> {
        let token = token(&self.cluster.admin, BUNDLE_ACCOUNT, BUNDLE_AUDIENCE).await;
        self.until("a bundle is sent", async |_| is_sent(controller, &token)).await
    }

    async fn lease_is_renewed(&mut self) -> Result<(), &'static str> {
        let first = self.renewed().await;
        self.until("the Lease is renewed", async |scene| scene.renewed().await > first).await
    }

    async fn policies_are_rolled_out(&mut self) -> Result<(), &'static str> {
        self.until("a policy has its finalizer", async |scene| scene.policy_has_finalizer("before").await).await?;
        self.until("it has its status, and the stop switch was read", async |scene| {
            !["", "Stopped"].contains(&&*scene.progress("before").await)
        })
        .await?;
        self.policy("late").await;
        self.until("a policy that came later has its status", async |scene| !scene.progress("late").await.is_empty())
            .await?;
        self.stop_switch("alice: a test").await;
        self.until("the stop switch stops it", async |scene| scene.progress("late").await == "Stopped").await?;
        self.stop_switch("false").await;
        self.api::<NodePolicy>().delete("late", &DeleteParams::default()).await.unwrap();
        self.until("a deleted policy is gone", async |scene| {
            scene.api::<NodePolicy>().get_opt("late").await.unwrap().is_none()
        })
        .await
    }

    /// Without the key `tasks`. A finalizer from a time with it goes.
    async fn tasks_are_refused(&mut self) -> Result<(), &'static str> {
        self.task("before", 3600, json!([])).await;
        self.until("a task is refused", async |scene| {
            let task = scene.api::<NodeTask>().get("before").await.unwrap();
            task.status.is_some_and(|status| status.state == Some(TaskState::Refused))
        })
        .await?;
        self.task("late", 0, json!([TASK_FINALIZER])).await;
        self.until("a finished task is deleted in the end", async |scene| {
            scene.api::<NodeTask>().get_opt("late").await.unwrap().is_none()
        })
        .await
    }

    async fn task(&self, name: &str, ttl: u32, finalizers: Value) {
        let spec = json!({ "node": "a", "action": { "growRootDisk": {} }, "ttlSecondsAfterFinished": ttl });
        let metadata = json!({ "name": name, "finalizers": finalizers });
        let task = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask", "metadata": metadata, "spec": spec });
        let task: NodeTask = serde_json::from_value(task).unwrap();
        self.api().create(&PostParams::default(), &task).await.unwrap();
    }

    async fn until(
        &mut self,
        part: &'static str,
        mut true_now: impl AsyncFnMut(&Self) -> bool,
    ) -> Result<(), &'static str> {
        let begun = Instant::now();
        while !true_now(self).await {
            if begun.elapsed() > self.within {
                return Err(part);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.slowest = self.slowest.max(begun.elapsed());
        Ok(())
    }

    fn api<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.cluster.admin.clone())
    }

    fn instance(&self, node: &str) -> String {
        let record =
            self.oci.attachments().into_iter().find(|attachment| attachment.node == node && attachment.primary);
        record.unwrap().instance.to_string()
    }

    async fn node(&self, name: &str) {
        let node = json!({ "metadata": { "name": name, "labels": { "pool": name } }, "spec": { "providerID": format!("oci://{}", self.instance(name)) } });
        let node: Node = serde_json::from_value(node).unwrap();
        self.api().create(&PostParams::default(), &node).await.unwrap();
    }

    /// The account of the agents' Pods.
    async fn account(&self) {
        let account = kube_harness::ServiceAccount::new(NAMESPACE, AGENT);
        self.cluster.server.create_account(&account).await.unwrap();
    }

    /// As the manifest creates it, with a key that was left.
    async fn keys(&self) {
        let keys = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": api::CONTROLLER_KEYS, "namespace": NAMESPACE }, "data": { "gone": "sha256:" } });
        self.cluster.server.apply_object(keys).await.unwrap();
    }

    /// The pods whose keys are published.
    async fn published(&self) -> Vec<String> {
        let keys: Api<ConfigMap> = Api::namespaced(self.cluster.admin.clone(), NAMESPACE);
        keys.get(api::CONTROLLER_KEYS).await.unwrap().data.unwrap_or_default().into_keys().collect()
    }

    async fn agent(&mut self, node: &str) {
        self.agents.push(FakeAgent::on(&self.cluster.admin, node, &self.trusted).await);
    }

    async fn is_judged(&self, node: &str) -> bool {
        agents::verdict(&self.cluster.admin, node, agents::NETWORK).await.is_some_and(|(status, _)| status == "True")
    }

    /// As OKE leaves it, if its kind is served.
    async fn pod_network(&self, node: &str) {
        if self.cluster.has_pod_networks.load(Ordering::Relaxed) {
            let instance: Ocid = self.instance(node).parse().unwrap();
            let npn = json!({ "apiVersion": "oci.oraclecloud.com/v1beta1", "kind": "NativePodNetwork",
                "metadata": { "name": instance.unique_id() }, "spec": { "id": instance },
                "status": { "state": "SUCCESS", "reason": "COMPLETED" } });
            self.cluster.server.apply_object(npn).await.unwrap();
        }
    }

    async fn profile(&self, name: &str) {
        let template = json!({ "name": name, "purpose": "Host", "subnetId": self.subnet(), "subnetRoute": true });
        let spec = json!({ "nodeSelector": {}, "allNodes": true, "attachments": [template] });
        self.make::<VnicProfile>("VnicProfile", name, spec).await;
    }

    async fn network_test(&self, name: &str, ttl: Option<u32>) {
        let spec = json!({ "sources": [{ "node": "a" }], "targets": [{ "service": "imds" }],
            "probes": [{ "type": "HTTP" }], "ttlSecondsAfterFinished": ttl });
        self.make::<NetworkTest>("NetworkTest", name, spec).await;
    }

    async fn policy(&self, name: &str) {
        let settings = json!({ "sysctls": { "vm.swappiness": "10" } });
        self.make::<NodePolicy>("NodePolicy", name, json!({ "allNodes": true, "settings": settings })).await;
    }

    async fn policy_has_finalizer(&self, name: &str) -> bool {
        let policy = self.api::<NodePolicy>().get(name).await.unwrap();
        policy.finalizers().iter().any(|finalizer| finalizer == POLICY_FINALIZER)
    }

    /// The reason of a policy's condition Progressing.
    async fn progress(&self, name: &str) -> String {
        let status = self.api::<NodePolicy>().get(name).await.unwrap().status.unwrap_or_default();
        find(&status.conditions, ConditionType::Progressing).map(|it| it.reason.clone()).unwrap_or_default()
    }

    /// As `kubectl oke-node stop` writes it.
    async fn stop_switch(&self, text: &str) {
        let switch = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME, "namespace": NAMESPACE },
            "data": { "stop": text } });
        self.cluster.server.apply_object(switch).await.unwrap();
    }

    async fn pod_test(&self, name: &str) {
        let spec = json!({ "sources": [{ "pods": { "namespace": "shop" } }], "targets": [{ "service": "imds" }],
            "probes": [{ "type": "HTTP" }] });
        self.make::<NetworkTest>("NetworkTest", name, spec).await;
    }

    async fn probes(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.admin.clone(), PROBES);
        pods.list(&ListParams::default()).await.unwrap().items
    }

    /// Plays the kubelet's part.
    async fn end_probes(&self) {
        let pods: Api<Pod> = Api::namespaced(self.cluster.admin.clone(), PROBES);
        let report = json!({ "version": PROBE_VERSION, "tally": { "sent": 5, "received": 5 } });
        let terminated = json!({ "exitCode": 0, "message": report.to_string() });
        let container = json!({ "name": "probe", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": { "terminated": terminated } });
        let status = Patch::Merge(json!({ "status": { "phase": "Succeeded", "containerStatuses": [container] } }));
        for pod in self.probes().await {
            // The controller may have deleted it meanwhile.
            let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await;
        }
    }

    async fn answered(&self, name: &str) -> bool {
        let status = self.api::<NetworkTest>().get(name).await.unwrap().status.unwrap_or_default();
        status.state == Some(TestState::Finished) && status.counts.is_some_and(|counts| counts.unknown == 0)
    }

    async fn is_tested(&self, name: &str) -> bool {
        let status = self.api::<NetworkTest>().get(name).await.unwrap().status.unwrap_or_default();
        status.state == Some(TestState::Finished)
    }

    async fn attachment(&self, name: &str, node: &str) {
        let spec = json!({ "instanceId": self.instance(node), "subnetId": self.subnet(), "name": name, "purpose": "Host",
                "subnetRoute": true });
        self.make::<VnicAttachment>("VnicAttachment", name, spec).await;
    }

    async fn make<K>(&self, kind: &str, name: &str, spec: Value)
    where
        K: kube::Resource<DynamicType = ()> + serde::Serialize + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
    {
        let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
        let object: K = serde_json::from_value(object).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap();
    }

    fn subnet(&self) -> String {
        self.vcn.subnet("nodes").unwrap().id.to_string()
    }

    async fn get(&self, name: &str) -> Option<VnicAttachment> {
        self.api().get_opt(name).await.unwrap()
    }

    async fn uid(&self, name: &str) -> String {
        self.get(name).await.unwrap().metadata.uid.unwrap()
    }

    async fn is_ready(&self, name: &str) -> bool {
        self.get(name).await.is_some_and(|object| reason(&object) == "Ready")
    }

    async fn stamped_ready(&self, profile: &str) -> Vec<bool> {
        let of_profile = ListParams::default().labels(&format!("{}={profile}", api::PROFILE_LABEL));
        let objects = self.api::<VnicAttachment>().list(&of_profile).await.unwrap();
        objects.iter().map(|object| reason(object) == "Ready").collect()
    }

    async fn profile_is_ready(&self, name: &str) -> bool {
        let status = self.api::<VnicProfile>().get(name).await.unwrap().status.unwrap_or_default();
        find(&status.conditions, ConditionType::Ready).is_some_and(Condition::is_true)
    }

    async fn has_event(&self, name: &str) -> bool {
        let events: Api<Event> = Api::namespaced(self.cluster.admin.clone(), "default");
        let uid = Some(self.uid(name).await);
        let about = |event: &Event| event.regarding.as_ref().and_then(|object| object.uid.clone()) == uid;
        events.list(&ListParams::default()).await.unwrap().iter().any(about)
    }

    async fn tags_name_the_cluster(&self) -> bool {
        let uid = self.api::<Namespace>().get("kube-system").await.unwrap().uid().unwrap();
        let tagged = self.oci.attachments().into_iter().filter(|attachment| !attachment.tags.is_empty());
        let names: Vec<_> = tagged.map(|attachment| attachment.tags.get(api::CLUSTER_TAG).cloned()).collect();
        !names.is_empty() && names.iter().all(|name| name.as_ref() == Some(&uid))
    }

    fn is_attached(&self, uid: &str) -> bool {
        let attachments = self.oci.attachments();
        attachments
            .iter()
            .any(|found| found.state != "DETACHED" && found.tags.get(UID_TAG).is_some_and(|tag| tag == uid))
    }

    async fn lease(&self) -> Option<Lease> {
        Api::namespaced(self.cluster.admin.clone(), NAMESPACE).get_opt(NAME).await.unwrap()
    }

    async fn renewed(&self) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime> {
        self.lease().await?.spec?.renew_time
    }

    async fn holder(&self) -> Option<String> {
        self.lease().await?.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }
}
