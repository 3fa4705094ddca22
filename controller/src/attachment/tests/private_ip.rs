//! The fixed address of a VNIC.

use std::net::{IpAddr, Ipv4Addr};

use api::{Purpose, VnicAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::scene::Scene;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 40, 7);

fn fixed(object: &mut VnicAttachment) {
    object.spec.vnic.purpose = Purpose::Host;
    object.spec.vnic.subnet_route = true;
    object.spec.vnic.private_ip = Some(ADDRESS);
}

#[tokio::test(start_paused = true)]
async fn vnic_gets_the_address_and_keeps_it_when_attached_again() {
    let scene = Scene::attached(fixed).await;
    assert_eq!((&*scene.ready("a"), scene.vnic().await.private_ip), ("True Ready", Some(IpAddr::V4(ADDRESS))));
    let before = scene.vnic().await.id;
    scene.cloud.detach_behind(&scene.live()[0].id);
    scene.reconcile_often().await;
    scene.settle().await;
    let after = scene.vnic().await;
    assert_eq!((&*scene.ready("a"), after.private_ip), ("True Ready", Some(IpAddr::V4(ADDRESS))));
    assert_ne!(after.id, before);
}

#[tokio::test(start_paused = true)]
async fn taken_address_is_reported_with_the_answer_of_oci() {
    let scene = Scene::with(4);
    let taken = scene.take_address(ADDRESS.into()).await;
    scene.wants("a");
    scene.change("a", fixed);
    scene.wants("b");
    scene.reconcile_often().await;
    let message = scene.message("a");
    assert_eq!(scene.reported("a"), ["False AddressTaken", "False AddressTaken"], "{message}");
    assert!(message.starts_with("AttachVnic: 409 Conflict: ") && message.contains("10.0.40.7"), "{message}");
    assert_eq!(scene.ready("b"), "True Ready", "another VNIC of the instance does not wait");
    assert_eq!(scene.live().len(), 1);
    scene.cloud.delete_behind(ADDRESS.into());
    scene.settle().await;
    assert_eq!((&*scene.ready("a"), scene.live().len()), ("True Ready", 2), "{taken}");
}

#[tokio::test(start_paused = true)]
async fn address_outside_the_subnet_is_reported_as_taken() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.change("a", |object| {
        fixed(object);
        object.spec.vnic.private_ip = Some(Ipv4Addr::new(192, 168, 0, 5));
    });
    scene.reconcile().await;
    assert_eq!(scene.ready("a"), "False AddressTaken");
    let message = scene.message("a");
    assert!(message.starts_with("AttachVnic: 400 InvalidParameter: ") && message.contains("192.168.0.5"), "{message}");
}

/// As a controller of an earlier version attached it, which does not know the field.
#[tokio::test(start_paused = true)]
async fn address_of_a_vnic_that_exists_is_ignored_with_a_reason() {
    let scene = Scene::attached(|object| {
        fixed(object);
        object.spec.vnic.private_ip = None;
    })
    .await;
    let before = scene.vnic().await;
    scene.change("a", fixed);
    scene.settle().await;
    assert_eq!(scene.ready("a"), "True PrivateIpIgnored");
    assert_eq!(scene.vnic().await.id, before.id, "it is not replaced");
    let written = scene.statuses();
    scene.settle().await;
    assert_eq!(scene.statuses(), written, "written once");
    // Deleting goes on as usual.
    scene.change("a", |object| object.metadata.deletion_timestamp = Some(Time(Timestamp::now())));
    scene.settle().await;
    assert_eq!(scene.live().len(), 0);
}
