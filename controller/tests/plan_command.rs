//! `oke-node-controller plan` against a real API server: by somebody who may only list, and nothing is another afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::process::Command;
use std::time::{Duration, Instant};

use api::VnicAttachment;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube_harness::ApiServer;
use serde_json::{Value, json};
use tempfile::TempDir;

struct Scene {
    server: &'static ApiServer,
    folder: TempDir,
}

impl Scene {
    /// A cluster with a profile for two nodes, one of which asks for another profile that is not there.
    async fn new() -> Self {
        let server = ApiServer::shared().unwrap();
        for crd in api::crd::all() {
            server.apply_object(serde_json::to_value(crd).unwrap()).await.unwrap();
        }
        // A kind that is new is not served at once.
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Err(error) = objects(server).await {
            assert!(Instant::now() < deadline, "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let role = "rbac.authorization.k8s.io/v1";
        let rule = |group: &str, kinds: &[&str]| json!({ "apiGroups": [group], "resources": kinds, "verbs": ["list"] });
        let rules = [rule("", &["nodes"]), rule("oke.oraclecloud.com", &["vnicprofiles", "vnicattachments"])];
        let node = |name: &str, annotations: Value| {
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "annotations": annotations },
                "spec": { "providerID": format!("oci://ocid1.instance.oc1.iad.{name}") } })
        };
        let template = json!({ "name": "net1", "purpose": "Host", "subnetId": "ocid1.subnet.oc1.iad.s" });
        for object in [
            json!({ "apiVersion": role, "kind": "ClusterRole", "metadata": { "name": "reads" }, "rules": rules }),
            json!({ "apiVersion": role, "kind": "ClusterRoleBinding", "metadata": { "name": "reads" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads" },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader" }] }),
            node("a", json!({ "oke.oraclecloud.com/vnics": "nobody" })),
            node("b", json!({})),
            json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile",
                "metadata": { "name": "storage", "finalizers": ["oke.oraclecloud.com/profile"] },
                "spec": { "nodeSelector": {}, "attachments": [template] } }),
        ] {
            server.apply_object(object).await.unwrap();
        }
        Self { server, folder: TempDir::new().unwrap() }
    }

    /// What it says, by whom it is run.
    fn plan(&self, user: &str, arguments: &[&str]) -> (bool, String, String) {
        let kubeconfig = self.folder.path().join(user);
        self.server.write_kubeconfig(&self.server.user(user, None).unwrap(), &kubeconfig).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_oke-node-controller"))
            .env("KUBECONFIG", kubeconfig)
            .arg("plan")
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    }

    /// The versions of everything that could have been written.
    async fn versions(&self) -> Vec<(String, String)> {
        objects(self.server).await.unwrap()
    }
}

async fn objects(server: &ApiServer) -> kube::Result<Vec<(String, String)>> {
    let client = server.client(server.admin()).unwrap();
    let mut all = Vec::new();
    for (group, version, kind) in [
        ("", "v1", "Node"),
        ("events.k8s.io", "v1", "Event"),
        ("oke.oraclecloud.com", "v1alpha1", "VnicProfile"),
        ("oke.oraclecloud.com", "v1alpha1", "VnicAttachment"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let objects = api.list(&ListParams::default()).await?.items;
        all.extend(objects.into_iter().map(|object| {
            (format!("{kind}/{}", object.metadata.name.unwrap()), object.metadata.resource_version.unwrap())
        }));
    }
    Ok(all)
}

#[tokio::test]
async fn it_says_what_would_be_done_and_does_nothing_of_it() {
    let scene = Scene::new().await;
    let before = scene.versions().await;
    let (fine, text, errors) = scene.plan("reader", &[]);
    assert!(fine && errors.is_empty(), "{text}{errors}");
    let expected = "\
make VnicAttachment storage.net1.f3246ebdbf40 (VnicProfile storage, VNIC net1 of node a)
make VnicAttachment storage.net1.f6246ebdc459 (VnicProfile storage, VNIC net1 of node b)

To be seen to:
node a: UnknownVnicProfile: annotation oke.oraclecloud.com/vnics names VnicProfile nobody, which is not there
";
    assert_eq!(text, expected);
    let (fine, json, errors) = scene.plan("reader", &["-o", "json"]);
    assert!(fine, "{errors}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["objects"][0]["step"], "make");
    assert_eq!(json["problems"][0]["reason"], "UnknownVnicProfile");
    assert_eq!(scene.versions().await, before);
    let client = scene.server.client(scene.server.admin()).unwrap();
    assert!(Api::<VnicAttachment>::all(client).list(&ListParams::default()).await.unwrap().items.is_empty());
    let (fine, text, errors) = scene.plan("stranger", &[]);
    assert!(!fine && text.is_empty(), "{text}");
    assert!(errors.contains("listing VnicProfiles") && errors.contains("forbidden"), "{errors}");
}
