//! VnicProfiles down to the VNICs.

use std::time::{Duration, Instant};

use api::{PROFILE_LABEL, VnicAttachment, VnicProfile};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_harness::wait_until;
use oke_node_controller::profile::apply::apply;
use oke_node_controller::profile::plan::step::{Step, Target};
use oke_node_controller::profile::select::fate::RemovalReason;
use sandbox::OciSettings;
use serde_json::{Value, json};

use crate::scene::{Scene, reason};

impl Scene {
    pub(crate) fn profiles(&self) -> Api<VnicProfile> {
        Api::all(self.client.clone())
    }

    /// VNICs of these names for the nodes of a pool, in the subnet.
    pub(crate) async fn profile(&self, subnet: &str, vnics: &[&str]) {
        self.profile_with(subnet, vnics, 0).await;
    }

    /// The same, with so many IPv4 addresses each.
    async fn profile_with(&self, subnet: &str, vnics: &[&str], count: u8) {
        let subnet = &self.vcn.subnet(subnet).unwrap().id;
        let template = |name: &&str| json!({ "name": name, "purpose": "Host", "subnetId": subnet, "ipv4Count": count, "subnetRoute": true });
        let profile = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile",
            "metadata": { "name": "pool" },
            "spec": { "nodeSelector": { "matchLabels": { "pool": "a" } },
                "attachments": vnics.iter().map(template).collect::<Vec<Value>>() } });
        let params = PatchParams::apply("kubectl").force();
        self.profiles().patch("pool", &params, &Patch::Apply(profile)).await.unwrap();
    }

    pub(crate) async fn put_into_pool(&self, instances: std::ops::Range<u32>) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        for number in instances {
            let patch = Patch::Merge(json!({ "metadata": { "labels": { "pool": "a" } } }));
            nodes.patch(&format!("node-{number}"), &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Waits until the profile is Ready with this many nodes.
    pub(crate) async fn wait_for_nodes(&self, number: u32) {
        wait_until(&format!("{number} nodes are ready"), async || {
            let profile = self.profiles().get("pool").await;
            let status = profile.ok().and_then(|profile| profile.status).unwrap_or_default();
            let ready = status.conditions.iter().any(|condition| condition.reason == "Ready");
            ready && status.summary.is_some_and(|sum| (sum.matched, sum.ready) == (number, number))
        })
        .await;
    }

    async fn delete_profile(&self) {
        self.profiles().delete("pool", &DeleteParams::default()).await.unwrap();
    }

    async fn profile_is_gone(&self) -> bool {
        self.profiles().get_opt("pool").await.is_ok_and(|profile| profile.is_none())
    }
}

#[tokio::test]
async fn repeated_kills_leave_no_duplicate_or_orphaned_vnics() {
    let scene =
        Scene::with(5, 8, OciSettings { attaching: Duration::from_millis(400), ..OciSettings::default() }).await;
    scene.put_into_pool(0..5).await;
    scene.profile("pods", &["one", "two"]).await;
    let mut controller = scene.controller("killed");
    // Each kill comes as soon as something, but not everything, is done.
    for stamped in [1, 4, 8] {
        wait_until("something is made", async || scene.all().await.len() >= stamped).await;
        controller.kill();
        controller = scene.controller("killed");
    }
    scene.wait_for_nodes(5).await;
    assert_eq!(scene.vnics().len(), 10);
    scene.assert_exact().await;
    scene.delete_profile().await;
    for left in [9, 5] {
        wait_until("something is gone", async || scene.all().await.len() <= left).await;
        controller.kill();
        controller = scene.controller("killed");
    }
    wait_until("the profile is gone", async || scene.profile_is_gone().await).await;
    assert_eq!((scene.vnics().len(), scene.all().await.len()), (0, 0));
}

#[tokio::test]
async fn a_profile_survives_api_server_restarts_and_expired_watches() {
    let mut scene = Scene::with(3, 8, OciSettings::default()).await;
    scene.environment.insert("LEASE_SECONDS".to_owned(), "300".to_owned());
    let mut controller = scene.controller("one");
    scene.put_into_pool(0..1).await;
    scene.profile("pods", &["one"]).await;
    scene.wait_for_nodes(1).await;
    scene.kubernetes.restart().unwrap();
    scene.put_into_pool(1..2).await;
    scene.wait_for_nodes(2).await;
    controller.freeze(true);
    scene.put_into_pool(2..3).await;
    scene.kubernetes.expire().await.unwrap();
    controller.freeze(false);
    scene.wait_for_nodes(3).await;
    controller.freeze(true);
    scene.delete_profile().await;
    scene.kubernetes.expire().await.unwrap();
    controller.freeze(false);
    wait_until("the profile is gone", async || scene.profile_is_gone().await).await;
    assert_eq!(controller.ended(), None, "in the same process");
    assert!(controller.log().contains("too old resource version"), "it got a 410: {}", controller.log());
    assert_eq!(scene.vnics(), Vec::<String>::new());
}

#[tokio::test]
async fn another_subnet_replaces_one_vnic_at_a_time() {
    let scene = Scene::with(3, 8, OciSettings::default()).await;
    let _controller = scene.controller("one");
    scene.put_into_pool(0..3).await;
    scene.profile("pods", &["one"]).await;
    scene.wait_for_nodes(3).await;
    let ours = |state: &str| scene.cloud.attachments().iter().filter(|it| !it.primary && it.state == state).count();
    assert_eq!(ours("ATTACHED"), 3);
    scene.profile("nodes", &["one"]).await;
    let (mut fewest, began) = (3, Instant::now());
    let subnet = &scene.vcn.subnet("nodes").unwrap().id;
    wait_until("all are in the other subnet", async || {
        fewest = fewest.min(ours("ATTACHED"));
        let all = scene.all().await;
        all.len() == 3 && all.iter().all(|it| it.spec.vnic.subnet_id == *subnet && reason(it) == "Ready")
    })
    .await;
    println!("three VNICs replaced in {:?}", began.elapsed());
    // Perhaps 3: a busy machine may poll too rarely.
    assert!(fewest >= 2, "{fewest}");
    scene.wait_for_nodes(3).await;
    scene.assert_exact().await;
}

#[tokio::test]
async fn changed_template_is_applied_and_user_edit_is_reverted() {
    let scene = Scene::with(1, 8, OciSettings::default()).await;
    let _controller = scene.controller("one");
    scene.put_into_pool(0..1).await;
    scene.profile_with("pods", &["one"], 2).await;
    scene.wait_for_nodes(1).await;
    let made = scene.all().await.remove(0).metadata;
    let name = made.name.unwrap();
    let edit = Patch::Merge(json!({ "metadata": { "labels": { "mine": "kept" } }, "spec": { "mtu": 1500 } }));
    scene.objects().patch(&name, &PatchParams::default(), &edit).await.unwrap();
    let has = async |count: u8| {
        wait_until("the object is as the profile says", async || {
            let vnic = scene.get(&name).await.unwrap().spec.vnic;
            (vnic.ipv4_count, vnic.mtu) == (count, None)
        })
        .await;
    };
    has(2).await;
    scene.profile_with("pods", &["one"], 5).await;
    has(5).await;
    let kept = scene.get(&name).await.unwrap().metadata;
    assert_eq!(kept.labels.unwrap()["mine"], "kept", "foreign labels stay");
    assert_eq!(kept.uid, made.uid, "it was not recreated");
}

#[tokio::test]
async fn an_object_that_a_user_took_over_is_not_deleted() {
    let scene = Scene::with(1, 8, OciSettings::default()).await;
    let mut object = scene.object("taken", 0, json!({}));
    object.metadata.labels = Some([(PROFILE_LABEL.to_owned(), "pool".to_owned())].into());
    let made = scene.objects().create(&PostParams::default(), &object).await.unwrap();
    let delete = async |object: VnicAttachment| {
        let metadata = object.metadata;
        let object = Target { name: "taken".to_owned(), uid: metadata.uid, version: metadata.resource_version };
        let step = Step::Delete { object, why: RemovalReason::ProfileDeleted("pool".to_owned()) };
        let end = tokio::time::Instant::now() + Duration::from_mins(3);
        assert!(apply(&scene.client, &[&step], end).await.iter().all(|(_, outcome)| outcome.is_ok()));
        scene.get("taken").await
    };
    let free = Patch::Merge(json!({ "metadata": { "labels": { PROFILE_LABEL: null } } }));
    scene.objects().patch("taken", &PatchParams::default(), &free).await.unwrap();
    let own = delete(made).await.expect("it belongs to a user");
    assert_eq!(own.metadata.deletion_timestamp, None);
    assert_eq!(delete(own).await, None, "its present version");
}

/// docs/access.md depends on this.
#[tokio::test]
async fn a_nodes_provider_id_cannot_be_changed() {
    let scene = Scene::with(1, 8, OciSettings::default()).await;
    let other = Patch::Merge(json!({ "spec": { "providerID": "oci://ocid1.instance.oc1.iad.another" } }));
    let nodes: Api<Node> = Api::all(scene.client.clone());
    let refused = nodes.patch("node-0", &PatchParams::default(), &other).await.unwrap_err();
    assert!(refused.to_string().contains("providerID"), "{refused}");
}
