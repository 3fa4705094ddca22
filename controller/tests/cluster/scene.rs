//! An API server, a VCN with its OCI API, and their users.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::condition::{ConditionType, find};
use api::{CLUSTER_TAG, UID_TAG, VnicAttachment};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_harness::{ApiServer, ServiceAccount, wait_until};
use sandbox::{NodeSpec, OciApi, OciSettings, SubnetSpec, Vcn};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agents::NAMESPACE;
use crate::process::Controller;

/// The node pool of all instances.
pub(crate) const POOL: &str = "ocid1.nodepool.oc1.iad.aaaaaaaasandbox";

pub(crate) struct Scene {
    pub(crate) kubernetes: ApiServer,
    pub(crate) cloud: OciApi,
    pub(crate) vcn: Arc<Vcn>,
    pub(crate) client: Client,
    pub(crate) folder: TempDir,
    /// Additional environment of a controller.
    pub(crate) environment: BTreeMap<String, String>,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        // As in OCI: a VNIC may be created some time after its attachment exists.
        let settings = OciSettings { provisioning: Duration::from_millis(300), ..OciSettings::default() };
        Self::with(1, 8, settings).await
    }

    /// A scene with this many instances, and at most so many VNICs each.
    pub(crate) async fn with(instances: u32, most: u32, settings: OciSettings) -> Self {
        let mut vcn = Vcn::builder()
            .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24"]))
            .subnet(SubnetSpec::new("pods", &["10.0.32.0/20", "2603:c020:0:2::/64"]))
            .subnet(SubnetSpec::new("two", &["10.0.64.0/24", "2603:c020:0:4::/64", "2603:c020:0:5::/64"]));
        for number in 0..instances {
            let name = format!("node-{number}");
            vcn =
                vcn.node(NodeSpec::virtual_machine(&name, "nodes").shape("VM.Standard.E5.Flex", most).node_pool(POOL));
        }
        let vcn = Arc::new(vcn.start().expect("a sandbox"));
        let cloud = OciApi::start(Arc::clone(&vcn), settings).expect("its OCI API");
        let kubernetes = ApiServer::start().expect("an API server");
        for file in ["namespace.yaml", "crds.yaml"] {
            kubernetes.apply(&manifest(file)).await.expect("the namespace and the CRDs");
        }
        kubernetes
            .create_account(&ServiceAccount::new(NAMESPACE, "oke-node-agent"))
            .await
            .expect("the agents' account");
        let keys = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": api::CONTROLLER_KEYS, "namespace": NAMESPACE } });
        kubernetes.apply_object(keys).await.expect("the controllers' keys");
        let client = kubernetes.client(kubernetes.admin()).expect("a client");
        let folder = TempDir::new().expect("a folder");
        kubernetes.write_kubeconfig(kubernetes.admin(), &folder.path().join("kubeconfig")).expect("a kubeconfig");
        cloud.write_user(folder.path()).expect("a user of the cloud");
        let scene = Self { kubernetes, cloud, vcn, client, folder, environment: BTreeMap::new() };
        for number in 0..instances {
            let instance = scene.instance(number);
            let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("node-{number}") },
                "spec": { "providerID": format!("oci://{instance}") } });
            scene.kubernetes.apply_object(node).await.expect("a Node");
        }
        scene
    }

    pub(crate) fn controller(&self, name: &str) -> Controller {
        self.controller_with(name, &[])
    }

    /// One with additional settings.
    pub(crate) fn controller_with(&self, name: &str, more: &[(&str, String)]) -> Controller {
        let path = |file: &str| self.folder.path().join(file).display().to_string();
        let said = [
            ("KUBECONFIG", path("kubeconfig")),
            ("POD_NAME", name.to_owned()),
            ("OCI_PRINCIPAL", "api-key".to_owned()),
            ("OCI_CONFIG_FILE", path("config")),
            ("OCI_ENDPOINT", self.cloud.url()),
            ("OCI_REQUESTS_PER_SECOND", "1000".to_owned()),
            // A single controller must not lose its Lease because the machine is busy. Another one of the same name takes it
            // over at once.
            ("LEASE_SECONDS", "120".to_owned()),
            ("POLL_SECONDS", "0.1".to_owned()),
            ("RESYNC_SECONDS", "1".to_owned()),
            ("RETRY_MOST_SECONDS", "1".to_owned()),
            ("RELOAD_JITTER_SECONDS", "0".to_owned()),
        ];
        let mut all: BTreeMap<String, String> = said.map(|(key, value)| (key.to_owned(), value)).into();
        all.extend(self.environment.clone());
        all.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        let all: Vec<(String, String)> = all.into_iter().collect();
        Controller::start(&all, self.folder.path().join(format!("{name}.log")))
    }

    pub(crate) fn instance(&self, number: u32) -> String {
        self.vcn.node(&format!("node-{number}")).unwrap().id().to_string()
    }

    pub(crate) fn objects(&self) -> Api<VnicAttachment> {
        Api::all(self.client.clone())
    }

    /// An object as a person would apply it; `more` goes into its spec.
    pub(crate) fn object(&self, name: &str, instance: u32, more: Value) -> VnicAttachment {
        let mut spec = json!({
            "instanceId": self.instance(instance),
            "subnetId": self.vcn.subnet("pods").unwrap().id,
            "name": name, "purpose": "Host",
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if spec["purpose"] == "Host" {
            spec.as_object_mut().unwrap().entry("subnetRoute").or_insert(true.into());
        }
        let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
            "metadata": { "name": name }, "spec": spec });
        serde_json::from_value(object).unwrap()
    }

    pub(crate) async fn want(&self, name: &str, instance: u32, more: Value) {
        self.objects().create(&PostParams::default(), &self.object(name, instance, more)).await.unwrap();
    }

    pub(crate) async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.objects().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.objects().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn all(&self) -> Vec<VnicAttachment> {
        self.objects().list(&ListParams::default()).await.unwrap().items
    }

    pub(crate) async fn get(&self, name: &str) -> Option<VnicAttachment> {
        self.objects().get_opt(name).await.unwrap()
    }

    /// Waits until an object's condition Ready has this reason.
    pub(crate) async fn wait_for_reason(&self, name: &str, expected: &str) -> VnicAttachment {
        let mut last = None;
        let what = format!("{name} is {expected}");
        wait_until(&what, async || {
            last = self.get(name).await;
            last.as_ref().is_some_and(|object| reason(object) == expected)
        })
        .await;
        last.unwrap()
    }

    pub(crate) async fn wait_until_gone(&self, name: &str) {
        wait_until(&format!("{name} is gone"), async || self.get(name).await.is_none()).await;
    }

    /// The uids of the objects with VNICs in OCI, one entry per VNIC.
    pub(crate) fn vnics(&self) -> Vec<String> {
        let all = self.cloud.attachments().into_iter();
        let live = all.filter(|it| !it.primary && matches!(it.state, "ATTACHING" | "ATTACHED" | "DETACHING"));
        let mut uids: Vec<String> = live.map(|it| it.tags.get(UID_TAG).cloned().unwrap_or_default()).collect();
        uids.sort();
        uids
    }

    /// OCI has one VNIC for each object, and no others.
    pub(crate) async fn assert_exact(&self) {
        let mut expected: Vec<String> = self.all().await.iter().filter_map(|object| object.uid()).collect();
        expected.sort();
        assert_eq!(self.vnics(), expected);
        let all = self.cloud.attachments();
        let untagged =
            all.iter().filter(|it| !it.primary && it.state == "ATTACHED" && !it.tags.contains_key(CLUSTER_TAG));
        assert_eq!(untagged.count(), 0);
    }
}

/// The reason of an object's condition Ready.
pub(crate) fn reason(object: &VnicAttachment) -> String {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    find(conditions, ConditionType::Ready).map(|ready| ready.reason.clone()).unwrap_or_default()
}

pub(crate) fn manifest(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base").join(file)
}
