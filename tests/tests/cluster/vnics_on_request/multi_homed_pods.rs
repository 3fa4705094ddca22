//! Executes `docs/multi-homed-pods.md` with the real controller and agent. Its objects are applied to a real API server, and
//! its commands are run. Multus gives a pod the interface of its NetworkAttachmentDefinition.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::Pod as KubePod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_harness::{Assets, ServiceAccount};
use sandbox::Pod;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tests::built::bin_dir;

use super::{POOL, Scene, offer};
use crate::root;

const PAGE: &str = include_str!("../../../../docs/multi-homed-pods.md");
const REFERENCE: &str = "/usr/lib/cni";

/// The whole objects of the page, in their order; what is only a part of one is merged into the Pod.
fn objects(subnet: &str) -> Vec<Value> {
    let page = PAGE.replace("ocid1.subnet.oc1.iad.…", subnet).replace("ocid1.nodepool.oc1.iad.…", POOL);
    let mut objects: Vec<Value> = Vec::new();
    for block in page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        for document in serde_yaml_ng::Deserializer::from_str(block) {
            let document = Value::deserialize(document).unwrap_or_else(|error| panic!("{error}: {block}"));
            match document.get("kind") {
                Some(_) => objects.push(document),
                None => merge(objects.iter_mut().find(|it| it["kind"] == "Pod").unwrap(), document),
            }
        }
    }
    objects
}

fn merge(into: &mut Value, part: Value) {
    match (into, part) {
        (Value::Object(into), Value::Object(part)) => {
            part.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, part) => *into = part,
    }
}

/// The page's commands: what stands in backquotes and begins with this program. NODE is node-a.
fn commands(program: &str) -> Vec<Vec<&'static str>> {
    let quoted = PAGE.split('`').skip(1).step_by(2);
    let found: Vec<Vec<_>> = quoted
        .filter_map(|text| text.strip_prefix(program)?.strip_prefix(' '))
        .map(|arguments| arguments.split(' ').map(|word| if word == "NODE" { "node-a" } else { word }).collect())
        .collect();
    assert!(!found.is_empty(), "{program}");
    found
}

impl Scene {
    fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(Assets::find().unwrap().program("kubectl"));
        command.env_clear().env("HOME", "/nonexistent").env("KUBECONFIG", self.folder.path().join("kubeconfig"));
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// As a kubelet's runtime with Multus first in its directory; the pod network is the reference plugin ptp.
    fn multus(&self, verb: &str, pod: &Pod, namespace: &str) -> Result<Value, String> {
        let address = json!({ "address": "10.99.0.2/24", "gateway": "10.99.0.1" });
        let network = json!({ "cniVersion": "1.0.0", "name": "network", "type": "ptp",
            "ipam": { "type": "static", "addresses": [address] } });
        let conf = json!({ "cniVersion": "1.0.0", "name": "multus", "type": "multus", "delegates": [network],
            "kubeconfig": self.folder.path().join("kubeconfig"), "cniDir": "/var/lib/cni/multus" });
        let arguments = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={}", pod.name());
        let output = self
            .node("node-a")
            .command(multus())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", format!("{namespace}-{}", pod.name()))
            .env("CNI_NETNS", pod.path())
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", format!("{}:{REFERENCE}", bin_dir().display()))
            .env("CNI_ARGS", arguments)
            .output_of_input(conf.to_string().as_bytes())
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(serde_json::from_str(&text).unwrap_or_default()),
            false => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}

/// The program that tests/kube/multus/build built.
pub(crate) fn multus() -> PathBuf {
    let output = Command::new(root().join("tests/kube/multus/build")).arg("--where").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// As Multus' own manifest defines it, as far as an API server needs it.
pub(crate) fn definition() -> Value {
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": { "config": { "type": "string" } } } } });
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "network-attachment-definitions.k8s.cni.cncf.io" },
        "spec": { "group": "k8s.cni.cncf.io", "scope": "Namespaced",
            "names": { "plural": "network-attachment-definitions", "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition", "shortNames": ["net-attach-def"] },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] } })
}

/// The page's objects and two namespaces; in the one that the VNIC does not allow the same definition and pod.
async fn apply_page(scene: &Scene) {
    let server = &scene.kubernetes;
    server.apply_object(definition()).await.unwrap();
    for namespace in ["team-a", "team-b"] {
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        server.apply_object(object).await.unwrap();
        server.create_account(&ServiceAccount::new(namespace, "default")).await.unwrap();
    }
    scene.annotate("node-a", api::NODE_POOL_ANNOTATION, POOL).await;
    for mut object in objects(scene.vcn.subnet("storage").unwrap().id.as_str()) {
        server.apply_object(object.clone()).await.unwrap();
        if object["metadata"]["namespace"] == "team-a" {
            object["metadata"]["namespace"] = "team-b".into();
            server.apply_object(object).await.unwrap();
        }
    }
}

#[tokio::test]
async fn page_of_extra_interfaces_works_as_written_and_with_multus() {
    let scene = Scene::new().await;
    let node = scene.node("node-a");
    apply_page(&scene).await;
    scene.wait_for("the VNIC is offered", async || offer(&node)).await;
    for arguments in commands("kubectl") {
        scene.kubectl(&arguments);
    }
    for arguments in commands("oke-node-agent") {
        let output = node.command(bin_dir().join("oke-node-agent")).args(&arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    let pods: Api<KubePod> = Api::namespaced(scene.client.clone(), "team-a");
    let networks = PAGE.split('`').find_map(|text| text.strip_prefix("k8s.v1.cni.cncf.io/networks: ")).unwrap();
    let annotated = json!({ "metadata": { "annotations": { "k8s.v1.cni.cncf.io/networks": networks } } });
    for namespace in ["team-a", "team-b"] {
        let pods: Api<KubePod> = Api::namespaced(scene.client.clone(), namespace);
        pods.patch("web", &PatchParams::default(), &Patch::Merge(&annotated)).await.unwrap();
    }
    let refused = node.add_pod("web").unwrap();
    let error = scene.multus("ADD", &refused, "team-b").unwrap_err();
    assert!(error.contains("namespace team-b is not allowed to use VNIC storage"), "{error}");
    refused.remove().unwrap();

    let pod = node.add_pod("web").unwrap();
    scene.multus("ADD", &pod, "team-a").unwrap();
    let annotations = pods.get("web").await.unwrap().metadata.annotations.unwrap();
    let status: Value = serde_json::from_str(&annotations["k8s.v1.cni.cncf.io/network-status"]).unwrap();
    let extra = status.as_array().unwrap().iter().find(|network| network["interface"] == "net1").unwrap();
    assert_eq!(extra["name"], "team-a/storage", "{status}");
    let address: IpAddr = extra["ips"][0].as_str().unwrap().parse().unwrap();
    let peer = scene.node("node-b");
    let answers = async || peer.pings(None, address).unwrap().then_some(());
    scene.wait_for(&format!("{address} answers the other node"), answers).await;
    scene.multus("DEL", &pod, "team-a").unwrap();
    let records = || std::fs::read_dir(Path::new("/run/vcn-native/allocations")).unwrap().count();
    assert_eq!(node.run(records).unwrap(), 0);
}
