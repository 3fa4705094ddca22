//! A Service of the scene, whose one endpoint is a server on a node. No kube-proxy runs.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_harness::ServiceAccount;
use serde_json::json;

use super::{PORT, Scene};

const NAMESPACE: &str = "shop";
/// The node of the endpoint.
const NODE: &str = "10.0.20.3";

impl Scene {
    /// Applies the Service with its endpoint, which the controller may test.
    pub(super) async fn serve(&self) {
        self.kubernetes.create_account(&ServiceAccount::new(NAMESPACE, "default")).await.unwrap();
        let object = |version: &str, kind: &str, name: &str| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": NAMESPACE } });
        let mut service = object("v1", "Service", "web");
        let port = json!({ "port": 80, "targetPort": PORT });
        service["spec"] = json!({ "selector": { "app": "web" }, "clusterIP": "10.96.3.4", "ports": [port] });
        let mut pod = object("v1", "Pod", "web-0");
        pod["metadata"]["labels"] = json!({ "app": "web" });
        let container = json!({ "name": "web", "image": "web", "ports": [{ "containerPort": PORT }] });
        pod["spec"] = json!({ "nodeName": NODE, "containers": [container] });
        let mut slice = object("discovery.k8s.io/v1", "EndpointSlice", "web-1");
        slice["metadata"]["labels"] = json!({ "kubernetes.io/service-name": "web" });
        let target = json!({ "kind": "Pod", "namespace": NAMESPACE, "name": "web-0" });
        slice["addressType"] = json!("IPv4");
        slice["endpoints"] = json!([{ "addresses": [NODE], "nodeName": NODE, "targetRef": target }]);
        slice["ports"] = json!([{ "port": PORT }]);
        let mut binding = object("rbac.authorization.k8s.io/v1", "RoleBinding", "tested");
        binding["roleRef"] =
            json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "oke-network-test-pods" });
        binding["subjects"] =
            json!([{ "kind": "ServiceAccount", "name": "oke-node-controller", "namespace": super::NAMESPACE }]);
        for object in [service, pod, slice, binding] {
            self.kubernetes.apply_object(object).await.unwrap();
        }
        let condition = json!({ "type": "Ready", "status": "True" });
        let status = json!({ "status": { "phase": "Running", "podIP": NODE, "podIPs": [{ "ip": NODE }],
            "conditions": [condition] } });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        pods.patch_status("web-0", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}
