//! `oke-node-controller plan` against a real API server and the emulated OCI API, with read access only: nothing changes.

use std::process::Command;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube_harness::{ApiServer, wait_until};
use oke_node_controller::profile::select::from_template::object_name;
use sandbox::{ApiFault, OciSettings, Operation, VnicSpec};
use serde_json::{Value, json};

use crate::scene::Scene;

impl Scene {
    /// A cluster with a new profile for two nodes and a paused one. One node requests a missing profile, and the other has as
    /// many VNICs as its shape allows.
    async fn to_plan() -> Self {
        let scene = Self::with(2, 2, OciSettings::default()).await;
        scene.vcn.attach_vnic("node-1", &VnicSpec::new("nodes")).unwrap();
        let request = json!({ "metadata": { "annotations": { "oke.oraclecloud.com/vnics": "absent" }, "labels": { "pool": "a" } } });
        let nodes: Api<Node> = Api::all(scene.client.clone());
        nodes.patch("node-0", &PatchParams::default(), &Patch::Merge(request)).await.unwrap();
        let role = "rbac.authorization.k8s.io/v1";
        let rule = |group: &str, kinds: &[&str]| json!({ "apiGroups": [group], "resources": kinds, "verbs": ["list"] });
        let rules = [
            rule("", &["nodes"]),
            rule("oke.oraclecloud.com", &["vnicprofiles", "vnicattachments"]),
            json!({ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"] }),
            json!({ "apiGroups": ["oci.oraclecloud.com"], "resources": ["nativepodnetworks"], "verbs": ["get"] }),
        ];
        let profile = |name: &str, vnic: &str, selector: Value, paused: bool| {
            let template =
                json!({ "name": vnic, "purpose": "Host", "subnetId": scene.vcn.subnet("nodes").unwrap().id });
            json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile", "metadata": { "name": name },
                "spec": { "nodeSelector": selector, "allNodes": selector == json!({}), "attachments": [template],
                    "paused": paused } })
        };
        for object in [
            json!({ "apiVersion": role, "kind": "ClusterRole", "metadata": { "name": "reads" }, "rules": rules }),
            json!({ "apiVersion": role, "kind": "ClusterRoleBinding", "metadata": { "name": "reads" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads" },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader" }] }),
            profile("storage", "net1", json!({}), false),
            profile("idle", "net2", json!({ "matchLabels": { "pool": "a" } }), true),
        ] {
            scene.kubernetes.apply_object(object).await.unwrap();
        }
        scene.wait_for_the_readers_rights().await;
        scene
    }

    /// The API server applies a role and its binding a moment after they were created.
    async fn wait_for_the_readers_rights(&self) {
        let attributes = json!({ "verb": "list", "group": "oke.oraclecloud.com", "resource": "vnicprofiles" });
        let review = json!({ "spec": { "user": "reader", "resourceAttributes": attributes } });
        let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let may = async || reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed;
        wait_until("the reader may read", may).await;
    }

    /// Its output for a user.
    fn plan(&self, user: &str, arguments: &[&str]) -> (bool, String, String) {
        let kubeconfig = self.folder.path().join(user);
        self.kubernetes.write_kubeconfig(&self.kubernetes.user(user, None).unwrap(), &kubeconfig).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_oke-node-controller"))
            .env("KUBECONFIG", kubeconfig)
            .env("OCI_PRINCIPAL", "api-key")
            .env("OCI_CONFIG_FILE", self.folder.path().join("config"))
            .env("OCI_ENDPOINT", self.cloud.url())
            .arg("plan")
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    }

    /// The versions of everything that could have been written.
    async fn versions(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (group, version, kind) in [
            ("", "v1", "Node"),
            ("events.k8s.io", "v1", "Event"),
            ("oke.oraclecloud.com", "v1alpha1", "VnicProfile"),
            ("oke.oraclecloud.com", "v1alpha1", "VnicAttachment"),
        ] {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            all.extend(api.list(&ListParams::default()).await.unwrap().into_iter().map(|object| {
                (format!("{kind}/{}", object.metadata.name.unwrap()), object.metadata.resource_version.unwrap())
            }));
        }
        all
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one output, checked whole")]
async fn plan_prints_the_steps_and_changes_nothing() {
    let scene = Scene::to_plan().await;
    let before = scene.versions().await;
    let (fine, text, errors) = scene.plan("reader", &[]);
    assert!(fine && errors.is_empty(), "{text}{errors}");
    let [machine, full] = ["node-0", "node-1"].map(|node| scene.vcn.node(node).unwrap().id().clone());
    let name = |profile: &str, vnic: &str, instance| object_name(profile, &vnic.parse().unwrap(), instance);
    let (a, b) = (name("storage", "net1", &machine), name("storage", "net1", &full));
    let (paused, subnet) = (name("idle", "net2", &machine), &scene.vcn.subnet("nodes").unwrap().id);
    let expected = format!(
        "\
add the finalizer to VnicProfile storage
create VnicAttachment {a} (VnicProfile storage, VNIC net1 of node node-0)
create VnicAttachment {b} (VnicProfile storage, VNIC net1 of node node-1)
{a}: attach a VNIC in {subnet} to {machine}
{b}: nothing: ShapeCapacity: the instance (VM.Standard.E5.Flex) has 2 of 2 VNICs

When it is no longer paused:
create VnicAttachment {paused} (VnicProfile idle, VNIC net2 of node node-0)

Problems:
node node-0: UnknownVnicProfile: annotation oke.oraclecloud.com/vnics names VnicProfile absent, which does not exist
"
    );
    assert_eq!(text, expected);
    let (fine, json, errors) = scene.plan("reader", &["-o", "json"]);
    assert!(fine, "{errors}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["objects"][0]["step"], &json["objects"][1]["step"]), (&"add_finalizer".into(), &"create".into()));
    assert_eq!(json["whenNotPaused"][0]["object"], paused);
    assert_eq!((&json["cloud"][0]["word"], &json["cloud"][1]["word"]), (&"attach".into(), &"ShapeCapacity".into()));
    assert_eq!(json["problems"][0]["reason"], "UnknownVnicProfile");
    assert_eq!(scene.versions().await, before);
    for operation in [
        Operation::AttachVnic,
        Operation::DetachVnic,
        Operation::UpdateVnic,
        Operation::CreateAddress,
        Operation::DeleteAddress,
        Operation::BulkCreateAddresses,
    ] {
        let requests: u64 =
            [200, 204, 400, 404, 409, 429].map(|status| scene.cloud.answered(operation, status)).iter().sum();
        assert_eq!(requests, 0, "{operation:?}");
    }
    assert!(scene.cloud.answered(Operation::ListVnicAttachments, 200) > 0);
    assert!(scene.all().await.is_empty());

    let (fine, text, errors) = scene.plan("reader", &["--node", "node-0"]);
    assert!(fine && text.contains(&format!("{a}: attach")) && !text.contains("ShapeCapacity"), "{text}{errors}");
    let (fine, text, errors) = scene.plan("reader", &["--instance", full.as_str()]);
    assert!(fine && !text.contains(&format!("{a}: attach")) && text.contains("ShapeCapacity"), "{text}{errors}");
    let (fine, _, errors) = scene.plan("reader", &["--node", "absent"]);
    assert!(!fine && errors.contains("there is no Node absent that is an OCI instance"), "{errors}");

    scene.kubernetes.apply(&ApiServer::native_pod_networks()).await.unwrap();
    let name = machine.unique_id();
    let npn = json!({ "apiVersion": "oci.oraclecloud.com/v1beta1", "kind": "NativePodNetwork", "metadata": { "name": name },
        "spec": { "id": machine }, "status": { "state": "IN_PROGRESS", "reason": "IN_PROGRESS" } });
    scene.kubernetes.apply_object(npn).await.unwrap();
    let (fine, text, errors) = scene.plan("reader", &["--node", "node-0"]);
    let held = format!("{a}: nothing: PodNetworkPending: NativePodNetwork {name} is IN_PROGRESS: IN_PROGRESS");
    assert!(fine && text.contains(&held), "{text}{errors}");

    scene.cloud.forbid(&[Operation::GetInstance]);
    let (fine, text, errors) = scene.plan("reader", &[]);
    assert!(fine && text.contains(&format!("{a}: nothing: NotAuthorizedOrNotFound: ")), "{text}{errors}");
    scene.cloud.inject(ApiFault::refuse(400, "InvalidParameter").of(Operation::GetInstance));
    let (fine, text, errors) = scene.plan("reader", &[]);
    assert!(fine && text.contains(&format!("{machine} cannot be read: GetInstance {machine}")), "{text}{errors}");

    let (fine, text, errors) = scene.plan("stranger", &[]);
    assert!(!fine && text.is_empty(), "{text}");
    assert!(errors.contains("listing VnicProfiles") && errors.contains("forbidden"), "{errors}");
}
