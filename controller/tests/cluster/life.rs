//! The life of a requested VNIC.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::DeleteParams;
use kube_harness::wait_until;
use serde_json::json;

use crate::scene::Scene;

#[tokio::test]
async fn applied_vnic_is_attached_and_deleted_vnic_is_removed() {
    let scene = Scene::new().await;
    let controller = scene.controller("one");
    scene.want("storage", 0, json!({ "ipv4Count": 3, "ipv6Count": 1, "freeformTags": { "team": "x" } })).await;
    let object = scene.wait_for_reason("storage", "Ready").await;
    let status = object.status.unwrap();
    assert_eq!(status.node_name.as_deref(), Some("node-0"));
    assert_eq!(status.own_addresses.len(), 2);
    let node = scene.vcn.node("node-0").unwrap();
    let plugged = node.vnics().into_iter().find(|vnic| Some(&vnic.id) == status.vnic_id.as_ref());
    let mut beside: Vec<usize> = plugged.unwrap().secondary.iter().map(|(_, addresses)| addresses.len()).collect();
    beside.sort_unstable();
    assert_eq!(beside, [1, 3]);
    scene.assert_exact().await;
    // Counted when the status has been written.
    let count = |line: &str| controller.metric(line).unwrap_or_default();
    wait_until("it is counted", async || {
        count("oke_node_controller_attach_seconds_count") >= 1.0
            && count(r#"oke_node_controller_attachments{ready="True",reason="Ready"}"#) == 1.0
    })
    .await;
    scene.delete("storage").await;
    scene.wait_until_gone("storage").await;
    assert_eq!(scene.vnics(), Vec::<String>::new());
}

#[tokio::test]
async fn ipv6_addresses_are_assigned_in_a_subnet_with_two_blocks() {
    let scene = Scene::new().await;
    let _controller = scene.controller("one");
    let subnet = scene.vcn.subnet("two").unwrap().id.clone();
    let requested = "2603:c020:0:4::77";
    let more = json!({ "subnetId": subnet, "ipv6Count": 4, "requestedAddresses": [requested] });
    scene.want("several", 0, more).await;
    scene.want("one", 0, json!({ "subnetId": subnet, "ipv6Count": 1 })).await;
    for (name, beside) in [("several", 4), ("one", 1)] {
        let vnic = scene.wait_for_reason(name, "Ready").await.status.unwrap().vnic_id.unwrap();
        let node = scene.vcn.node("node-0").unwrap();
        let vnic = node.vnics().into_iter().find(|own| own.id == vnic).unwrap();
        let ipv6 = vnic.secondary.ipv6.unwrap();
        assert_eq!(ipv6.len(), beside, "{ipv6:?}");
        let of_first: Vec<String> =
            ipv6.iter().map(ToString::to_string).filter(|own| own.starts_with("2603:c020:0:4:")).collect();
        assert_eq!(
            of_first,
            if beside == 4 { vec![requested] } else { Vec::new() },
            "the others are of its own block, the last"
        );
    }
}

#[tokio::test]
async fn deleted_kinds_wait_for_a_controller() {
    let scene = Scene::new().await;
    let mut controller = scene.controller("one");
    scene.want("storage", 0, json!({})).await;
    scene.wait_for_reason("storage", "Ready").await;
    assert!(controller.terminate().success());
    let kinds = Api::<CustomResourceDefinition>::all(scene.client.clone());
    let kind = "vnicattachments.oke.oraclecloud.com";
    kinds.delete(kind, &DeleteParams::default()).await.unwrap();
    wait_until("its objects are being deleted", async || {
        scene.get("storage").await.unwrap().metadata.deletion_timestamp.is_some()
    })
    .await;
    assert_eq!(scene.vnics().len(), 1, "no controller was there to detach it");
    let _controller = scene.controller("one");
    wait_until("the kind is gone", async || kinds.get_opt(kind).await.unwrap().is_none()).await;
    assert_eq!(scene.vnics(), Vec::<String>::new());
}
