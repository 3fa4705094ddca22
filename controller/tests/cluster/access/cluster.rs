//! A cluster with our definitions, and the controller's account with only the rights of a test.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use api::bundle::BUNDLE_ACCOUNT;
use api::{NetworkTest, NodePolicy, NodeTask, VnicAttachment, VnicProfile};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_harness::{ApiServer, Bound, Identity, ServiceAccount, wait_until};
use serde_json::json;

use super::roles::{Right, Rights, each_right};

pub(crate) const NAME: &str = "oke-node-controller";
pub(crate) const NAMESPACE: &str = "oke-node-manager";

/// Where probe Pods run, and where a pod stands that they test.
pub(crate) const PROBES: &str = "oke-node-manager-probes";
const SHOP: &str = "shop";

/// Where a kubelet puts a pod's token. In a fresh /run.
const MOUNTED: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    pub(crate) admin: Client,
    /// The controller's pod, and its token.
    pod: Pod,
    identity: Identity,
    /// A client with that token.
    account: Client,
    all: Rights,
    /// Whether it serves OKE's NativePodNetworks.
    pub(crate) has_pod_networks: AtomicBool,
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        let server = ApiServer::start().unwrap();
        server.apply(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base/crds.yaml")).await.unwrap();
        let account = ServiceAccount::new(NAMESPACE, NAME);
        server.create_account(&account).await.unwrap();
        server.create_account(&ServiceAccount::new(NAMESPACE, "oke-node-agent")).await.unwrap();
        server.create_account(&ServiceAccount::new(NAMESPACE, BUNDLE_ACCOUNT)).await.unwrap();
        server.create_account(&ServiceAccount::new(PROBES, "oke-network-probe")).await.unwrap();
        server.create_account(&ServiceAccount::new(SHOP, "default")).await.unwrap();
        let admin = server.client(server.admin()).unwrap();
        let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }]);
        let group = "rbac.authorization.k8s.io";
        let named = json!({ "name": "tested", "namespace": SHOP });
        let api = format!("{group}/v1");
        for object in [
            json!({ "apiVersion": api, "kind": "Role", "metadata": named, "rules": rules }),
            json!({ "apiVersion": api, "kind": "RoleBinding", "metadata": named,
                "roleRef": { "apiGroup": group, "kind": "Role", "name": "tested" },
                "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE }] }),
        ] {
            server.apply_object(object).await.unwrap();
        }
        make_pod(&admin, SHOP, "cart", &json!({})).await;
        let running =
            json!({ "status": { "phase": "Running", "podIP": "10.0.32.7", "podIPs": [{ "ip": "10.0.32.7" }] } });
        let shop: Api<Pod> = Api::namespaced(admin.clone(), SHOP);
        shop.patch_status("cart", &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACE);
        // As the Deployment's controller would create it.
        let template = Rights::pod_template();
        let metadata = json!({ "name": format!("{NAME}-0"), "labels": template["metadata"]["labels"] });
        let pod = serde_json::from_value(json!({ "metadata": metadata, "spec": template["spec"] })).unwrap();
        let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
        let identity = server.token(&account, &Bound::Pod(pod.name_any())).await.unwrap();
        let account = server.client(&identity).unwrap();
        Self {
            server,
            admin,
            pod,
            identity,
            account,
            all: Rights::of_the_manifest(),
            has_pod_networks: AtomicBool::new(false),
        }
    }

    /// From here on it is a cluster with VCN-native pod networking, and with OKE's repair of the nodes with the label `pool=a`. The
    /// group of NodeRepairConfigs is one that the controller does not know.
    pub(crate) async fn serve_pod_networks(&self) {
        self.server.apply(&ApiServer::native_pod_networks()).await.unwrap();
        let (group, plural) = ("repair.example.com", "noderepairconfigs");
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version = json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
        let names = json!({ "kind": "NodeRepairConfig", "plural": plural, "singular": "noderepairconfig" });
        let spec = json!({ "group": group, "scope": "Cluster", "names": names, "versions": [version] });
        let kind = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") }, "spec": spec });
        self.server.apply_object(kind).await.unwrap();
        let config = json!({ "apiVersion": format!("{group}/v1"), "kind": "NodeRepairConfig",
            "metadata": { "name": "gpus" }, "spec": { "nodeSelector": { "matchLabels": { "pool": "a" } } } });
        self.server.apply_object(config).await.unwrap();
        self.has_pod_networks.store(true, Ordering::Relaxed);
    }

    pub(crate) const fn pod(&self) -> &Pod {
        &self.pod
    }

    pub(crate) fn token(&self) -> &str {
        self.identity.token().unwrap()
    }

    /// Plays the kubelet's part. In a cluster, OCI's tokens come from the API server's address and authority; here it is
    /// another address.
    pub(crate) fn mount_account(&self, authority_of_proxymux: &str) {
        assert!(std::env::var_os("OKE_TEST_ISOLATED").is_some(), "this test writes to /run: run it by cargo test");
        let folder = Path::new(MOUNTED);
        self.server.write_in_cluster(&self.identity, NAMESPACE, folder).unwrap();
        let authorities = format!("{}\n{authority_of_proxymux}", self.server.authority());
        std::fs::write(folder.join("ca.crt"), authorities).unwrap();
    }

    /// Grants the account these rights only, and waits until the API server applies that.
    pub(crate) async fn grant(&self, rights: &Rights) {
        for object in &rights.0 {
            self.server.apply_object(object.clone()).await.unwrap();
        }
        let given = each_right(rights);
        let same = |one: &Right, other: &Right| {
            (&one.namespace, &one.group, &one.resource, &one.name, &one.verb)
                == (&other.namespace, &other.group, &other.resource, &other.name, &other.verb)
        };
        for right in each_right(&self.all) {
            let is_given = given.iter().any(|given| same(given, &right));
            wait_until(&format!("{right} is {is_given}"), async || self.may(&right).await == is_given).await;
        }
    }

    async fn may(&self, right: &Right) -> bool {
        let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
        let review: SelfSubjectAccessReview = serde_json::from_value(json!({ "spec": { "resourceAttributes": {
            "group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb,
            "namespace": right.namespace, "name": right.name,
        }}}))
        .unwrap();
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.account.clone());
        reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
    }

    /// Nothing is requested any more, and no controller runs.
    pub(crate) async fn clear(&self) {
        let everything = (DeleteParams::default(), ListParams::default());
        let profiles: Api<VnicProfile> = Api::all(self.admin.clone());
        let attachments: Api<VnicAttachment> = Api::all(self.admin.clone());
        let without = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        for profile in profiles.list(&everything.1).await.unwrap() {
            profiles.patch(&profile.name_any(), &PatchParams::default(), &without).await.unwrap();
        }
        profiles.delete_collection(&everything.0, &everything.1).await.unwrap();
        for object in attachments.list(&everything.1).await.unwrap() {
            attachments.patch(&object.name_any(), &PatchParams::default(), &without).await.unwrap();
        }
        attachments.delete_collection(&everything.0, &everything.1).await.unwrap();
        let policies: Api<NodePolicy> = Api::all(self.admin.clone());
        for policy in policies.list(&everything.1).await.unwrap() {
            policies.patch(&policy.name_any(), &PatchParams::default(), &without).await.unwrap();
        }
        let tasks: Api<NodeTask> = Api::all(self.admin.clone());
        for task in tasks.list(&everything.1).await.unwrap() {
            tasks.patch(&task.name_any(), &PatchParams::default(), &without).await.unwrap();
        }
        tasks.delete_collection(&everything.0, &everything.1).await.unwrap();
        policies.delete_collection(&everything.0, &everything.1).await.unwrap();
        Api::<NetworkTest>::all(self.admin.clone()).delete_collection(&everything.0, &everything.1).await.unwrap();
        Api::<Node>::all(self.admin.clone()).delete_collection(&everything.0, &everything.1).await.unwrap();
        let keys: Api<ConfigMap> = Api::namespaced(self.admin.clone(), NAMESPACE);
        keys.delete_collection(&everything.0, &everything.1).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let agents = ListParams::default().labels("app.kubernetes.io/name=oke-node-agent");
        pods.delete_collection(&DeleteParams::default().grace_period(0), &agents).await.unwrap();
        let probes: Api<Pod> = Api::namespaced(self.admin.clone(), PROBES);
        probes.delete_collection(&DeleteParams::default().grace_period(0), &everything.1).await.unwrap();
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), NAMESPACE);
        leases.delete_collection(&everything.0, &everything.1).await.unwrap();
    }
}

/// A Pod on the node `a`.
pub(crate) async fn make_pod(admin: &Client, namespace: &str, name: &str, labels: &serde_json::Value) {
    let account = if namespace == PROBES { "oke-network-probe" } else { "default" };
    let pod = json!({ "metadata": { "name": name, "labels": labels },
        "spec": { "nodeName": "a", "serviceAccountName": account, "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0, "containers": [{ "name": "a", "image": "a" }] } });
    let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}
