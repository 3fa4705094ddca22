//! A VNIC is requested once, whatever happens meanwhile.

use std::time::Duration;

use api::{CLUSTER_TAG, NAME_TAG, UID_TAG};
use oci::{InstanceState, ShapeConfig, VnicState};

use super::scene::{CLUSTER, Scene, pods};
use crate::attachment::sample::instance;
use crate::work::NextReconcile;

#[tokio::test(start_paused = true)]
async fn a_requested_vnic_is_attached_and_reported() {
    let scene = Scene::with(2);
    scene.wants("storage");
    assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
    assert_eq!(scene.told("storage"), ["False Attaching", "False Attaching"]);
    scene.settle().await;
    assert_eq!(scene.told("storage"), ["True Attached", "True Ready"]);
    let vnic = scene.vnic().await;
    let tags = [(CLUSTER_TAG, CLUSTER), (UID_TAG, "uid-storage"), (NAME_TAG, "storage")];
    assert_eq!(vnic.freeform_tags, tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let status = scene.status("storage");
    assert_eq!(status.vnic_id, Some(vnic.id));
    assert_eq!(status.node_name.as_deref(), Some("node-1"));
    assert_eq!(status.own_addresses, [vnic.private_ip.unwrap(), vnic.ipv6_addresses[0]]);
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_is_set_before_the_request() {
    let scene = Scene::with(2);
    scene.wants("storage");
    // It was deleted, and the watch is behind.
    scene.objects.vanished.lock().unwrap().insert("storage".to_owned());
    scene.look().await;
    assert_eq!(scene.calls(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn two_processes_with_a_stale_list_request_one_vnic() {
    let mut scene = Scene::with(4);
    scene.wants("a");
    scene.cloud.lag_lists(4);
    for _ in 0..4 {
        scene.look().await;
        scene.restart();
        scene.cloud.settle();
    }
    assert_eq!((scene.count("AttachVnic"), scene.live().len()), (4, 1), "OCI knows the token");
    // Also for the next one, whatever else was refused meanwhile.
    scene.settle().await;
    let asked = scene.count("AttachVnic");
    scene.change("a", |object| object.spec.vnic.skip_source_dest_check = true);
    scene.cloud.fail_next("UpdateVnic", (409, "Conflict"), false);
    scene.look().await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    for _ in 0..4 {
        scene.look().await;
        scene.restart();
        scene.cloud.settle();
    }
    assert_eq!((scene.count("AttachVnic"), scene.live().len()), (asked + 4, 1));
}

#[tokio::test(start_paused = true)]
async fn vnics_of_an_instance_are_attached_one_by_one() {
    let scene = Scene::with(8);
    ["a", "b", "c"].iter().for_each(|name| scene.wants(name));
    scene.look().await;
    assert_eq!(scene.calls(), ["AttachVnic"]);
    assert_eq!(scene.told("b"), ["False InstanceBusy", "False InstanceBusy"]);
    scene.settle().await;
    assert_eq!(scene.count("AttachVnic"), 3);
    assert_eq!(["a", "b", "c"].map(|name| scene.told(name)[1].clone()), ["True Ready"; 3].map(String::from));
}

#[tokio::test(start_paused = true)]
async fn a_vnic_beyond_the_shapes_limit_is_explained() {
    let scene = Scene::with(2);
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    assert_eq!(scene.told("b"), ["False ShapeCapacity", "False ShapeCapacity"]);
    assert_eq!(scene.message("b"), "the instance (VM.Standard.E5.Flex) has 2 of 2 VNICs");
    assert_eq!(scene.count("AttachVnic"), 1);
    scene.delete("a");
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.told("b")[1].as_str()), (false, "True Ready"), "there is room now");
}

#[tokio::test(start_paused = true)]
async fn the_instances_own_limit_outranks_its_shape() {
    let scene = Scene::with(4);
    scene.cloud.change_instance(&instance(1), |machine| {
        machine.shape_config = Some(ShapeConfig { ocpus: Some(1.0), max_vnic_attachments: Some(2) });
    });
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    assert_eq!(scene.told("b")[0], "False ShapeCapacity");
}

#[tokio::test(start_paused = true)]
async fn a_starting_instance_is_waited_for() {
    for (state, called, told) in [
        (InstanceState::Starting, 0, "False InstanceBusy"),
        (InstanceState::Stopping, 0, "False InstanceBusy"),
        (InstanceState::Stopped, 1, "False Attaching"),
    ] {
        let scene = Scene::with(4);
        scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = state);
        scene.wants("a");
        scene.look().await;
        assert_eq!((scene.count("AttachVnic"), scene.told("a")[0].as_str()), (called, told), "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bare_metal_requests_name_the_port() {
    let scene = Scene::with(4);
    scene.cloud.change_instance(&instance(1), |it| it.shape = "BM.Standard.E4.128".to_owned());
    scene.wants("a");
    scene.change("a", |object| object.spec.vnic.nic_index = Some(1));
    scene.settle().await;
    assert_eq!(scene.live()[0].nic_index, Some(1));
}

#[tokio::test(start_paused = true)]
async fn attach_time_counts_from_the_accepted_request() {
    // Days of a full subnet do not count.
    for refusal in [(400, "LimitExceeded"), (503, "ServiceUnavailable")] {
        let scene = Scene::with(4);
        scene.wants("a");
        scene.cloud.fail_next("AttachVnic", refusal, false);
        scene.look().await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        scene.look().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        scene.cloud.settle();
        scene.look().await;
        let text = scene.metrics.text();
        let line = text.lines().find(|line| line.starts_with("oke_node_controller_attach_seconds_sum")).unwrap();
        assert_eq!(line, "oke_node_controller_attach_seconds_sum 5.0", "{refusal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_while_a_foreign_detach_is_in_progress() {
    let scene = Scene::attached(|_| {}).await;
    oci::Cloud::detach_vnic(&scene.cloud, &scene.live()[0].id, None).await.unwrap();
    scene.wants("b");
    assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
    assert_eq!((scene.count("AttachVnic"), scene.told("b")[0].as_str()), (1, "False InstanceBusy"));
    scene.settle().await;
    assert_eq!(["a", "b"].map(|name| scene.told(name)[1].clone()), ["True Ready"; 2].map(String::from));
    assert_eq!(scene.count("AttachVnic"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_vnic_is_ready_only_when_it_is_available() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.change("a", |object| (object.spec.vnic.ipv4_count, object.spec.vnic.ipv6_count) = (2, 1));
    scene.look().await;
    scene.cloud.settle();
    let vnic = scene.live()[0].vnic_id.clone().unwrap();
    scene.cloud.change_vnic(&vnic, |vnic| vnic.lifecycle_state = VnicState::Provisioning);
    let asked = scene.calls();
    for _ in 0..3 {
        assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
        assert_eq!(scene.told("a"), ["False Attaching", "False Attaching"]);
        assert_eq!((scene.status("a").vnic_id.as_ref(), scene.count("ListAddresses")), (Some(&vnic), 0));
        assert_eq!(scene.calls(), asked);
    }
    scene.cloud.change_vnic(&vnic, |vnic| vnic.lifecycle_state = VnicState::Available);
    scene.settle().await;
    assert_eq!((scene.told("a")[1].as_str(), scene.addresses_beside().await), ("True Ready", 2));
    assert!(!scene.metrics.text().contains("detached_out_of_band_total 1"));
    // A VNIC that was ready stays so, without extra requests.
    let written = scene.statuses();
    scene.cloud.change_vnic(&vnic, |vnic| vnic.lifecycle_state = VnicState::Provisioning);
    assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
    assert_eq!(scene.statuses(), written);
    // As while it is changed: it exists, and keeps its addresses.
    let told = scene.status("a");
    scene.change("a", |object| object.spec.vnic.display_name = Some("other".to_owned()));
    let asked = scene.calls();
    for _ in 0..2 {
        assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
        assert_eq!(scene.told("a"), ["True Attached", "False ChangePending"]);
        let now = scene.status("a");
        assert_eq!((now.vnic_id, now.own_addresses), (told.vnic_id.clone(), told.own_addresses.clone()));
    }
    assert_eq!((scene.calls(), scene.statuses()), (asked, written + 1));
    scene.cloud.change_vnic(&vnic, |vnic| vnic.lifecycle_state = VnicState::Available);
    scene.settle().await;
    assert_eq!(scene.told("a"), ["True Attached", "True Ready"]);
    assert_eq!(scene.vnic().await.display_name.as_deref(), Some("other"));
    // It is reported as going before its attachment is.
    scene.cloud.change_vnic(&vnic, |vnic| vnic.lifecycle_state = VnicState::Terminating);
    let asked = scene.calls();
    assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
    assert_eq!((scene.told("a")[0].as_str(), scene.calls()), ("False DetachedOutOfBand", asked));
    scene.cloud.detach_behind(&scene.live()[0].id);
    scene.settle().await;
    assert_eq!((scene.told("a")[1].as_str(), scene.live().len()), ("True Ready", 1));
}

#[tokio::test(start_paused = true)]
async fn a_prohibited_public_address_is_not_requested() {
    let scene = Scene::with(4);
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.change("a", |object| object.spec.vnic.assign_public_ip = true);
    scene.look().await;
    assert_eq!(scene.count("AttachVnic"), 1, "for b");
    assert_eq!(["a", "b"].map(|name| scene.told(name)[0].clone()), ["False InvalidSpec", "False Attaching"]);
    assert!(scene.message("a").starts_with("assignPublicIp is true"), "{}", scene.message("a"));
    scene.settle().await;
    assert_eq!(["a", "b"].map(|name| scene.told(name)[1].clone()), ["False InvalidSpec", "True Ready"]);
    // Where it is allowed, it is requested.
    let id: vcn::Ocid = "ocid1.subnet.oc1.iad.public".parse().unwrap();
    scene.cloud.add_subnet(oci::Subnet { prohibit_public_ip_on_vnic: false, ..pods("10.0.64.0/20", id.clone()) });
    scene.wants("c");
    scene.change("c", |object| {
        object.spec.vnic.assign_public_ip = true;
        object.spec.vnic.subnet_id = id;
    });
    scene.settle().await;
    assert_eq!((scene.told("c")[1].as_str(), scene.count("AttachVnic")), ("True Ready", 2));
}
