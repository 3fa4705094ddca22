//! A VNIC whose addresses OCI does not list concerns one object: it reports that, nothing is concluded from it, and others
//! continue.

use std::time::Duration;

use oci::{CreateAddress, RetryToken};
use vcn::Family;

use super::scene::Scene;
use crate::work::NextReconcile;

const NO_RIGHT: (u16, &str) = (404, "NotAuthorizedOrNotFound");
const MAX_LISTS: usize = 1000;

#[tokio::test(start_paused = true)]
async fn attach_and_detach_work_without_listing_addresses() {
    for operation in ["ListPrivateIps", "ListIpv6s"] {
        let scene = Scene::with(4);
        ["a", "c"].iter().for_each(|name| scene.wants(name));
        scene.change("c", |object| (object.spec.vnic.ipv4_count, object.spec.vnic.ipv6_count) = (2, 2));
        scene.settle().await;
        let before = scene.status("c").own_addresses;
        scene.refuse(MAX_LISTS, operation, NO_RIGHT);
        scene.delete("a");
        scene.wants("b");
        let calls = scene.calls().len();
        scene.reconcile_often().await;
        assert!(!scene.exists("a"), "{operation}");
        for name in ["b", "c"] {
            assert_eq!(
                scene.reported(name),
                ["True Attached", "Unknown NotAuthorizedOrNotFound"],
                "{operation} {name}"
            );
        }
        assert_eq!(
            scene.calls()[calls..],
            ["DetachVnic", "AttachVnic"],
            "{operation}: what is not known is left as it is"
        );
        assert_eq!(scene.status("c").own_addresses, before, "{operation}");
        assert_eq!(scene.reconcile().await, NextReconcile::Failed, "{operation}: so that the backoff grows");
    }
}

#[tokio::test(start_paused = true)]
async fn two_404_answers_are_reported_and_one_is_not() {
    let scene = Scene::attached(|object| object.spec.vnic.ipv4_count = 2).await;
    let (written, calls) = (scene.statuses(), scene.calls().len());
    scene.cloud.fail_next("ListAddresses", NO_RIGHT, false);
    assert!(matches!(scene.reconcile().await, NextReconcile::Soon(_)));
    scene.settle().await;
    assert_eq!(scene.statuses(), written);
    scene.refuse(2, "ListAddresses", NO_RIGHT);
    scene.reconcile().await;
    assert_eq!(scene.reconcile().await, NextReconcile::Failed);
    assert_eq!((scene.statuses(), &*scene.ready("a")), (written + 1, "Unknown NotAuthorizedOrNotFound"));
    scene.settle().await;
    assert_eq!((&*scene.ready("a"), scene.calls().len()), ("True Ready", calls));
}

#[tokio::test(start_paused = true)]
async fn a_changed_object_is_not_ready_without_its_addresses() {
    let scene = Scene::attached(|_| {}).await;
    scene.refuse(MAX_LISTS, "ListPrivateIps", NO_RIGHT);
    let calls = scene.calls().len();
    scene.change("a", |object| object.spec.vnic.ipv4_count = 2);
    scene.reconcile().await;
    assert_eq!((&*scene.ready("a"), scene.calls().len()), ("Unknown NotAuthorizedOrNotFound", calls));
    // The VNIC itself is known, and is changed; so is the other family.
    scene.change("a", |object| {
        object.spec.vnic.skip_source_dest_check = true;
        object.spec.vnic.ipv6_count = 1;
    });
    scene.reconcile_often().await;
    assert_eq!(scene.calls()[calls..], ["UpdateVnic", "CreateAddress"]);
    assert_eq!(scene.ready("a"), "Unknown NotAuthorizedOrNotFound");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_own_ipv6_address_is_not_replaced() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.refuse(MAX_LISTS, "ListIpv6s", NO_RIGHT);
    scene.reconcile_often().await;
    let vnic = scene.vnic().await;
    assert_eq!(scene.status("a").own_addresses, Vec::from_iter(vnic.private_ip), "the list shows which it is");
    let foreign = CreateAddress { vnic_id: Some(vnic.id), ..CreateAddress::default() };
    let token = RetryToken::derive(&["foreign"]);
    scene.cloud.create_address(Family::Ipv6, &foreign, &token).await.unwrap();
    scene.reconcile_often().await;
    assert_eq!(scene.status("a").own_addresses, Vec::from_iter(vnic.private_ip));
    assert_eq!(scene.reported("a"), ["True Attached", "Unknown NotAuthorizedOrNotFound"]);
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_the_requests_of_a_reconcile() {
    let scene = Scene::with(4);
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    let (written, listed) = (scene.statuses(), scene.count("ListAddresses"));
    scene.cloud.fail_next("ListAddresses", (503, "ServiceUnavailable"), false);
    assert_eq!(scene.reconcile().await, NextReconcile::Failed);
    assert_eq!((scene.statuses(), scene.count("ListAddresses")), (written, listed + 1));
    // An unreadable answer does not concern the VNIC either; others continue.
    scene.refuse(MAX_LISTS, "ListPrivateIps", (415, ""));
    scene.wants("c");
    scene.reconcile_often().await;
    assert_eq!(["a", "b"].map(|name| scene.ready(name)), ["True Ready"; 2].map(String::from));
    assert_eq!(scene.reported("c"), ["True Attached", "Unknown OciUnavailable"]);
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_vnic_stays_ready() {
    let scene = Scene::attached(|_| {}).await;
    scene.refuse(MAX_LISTS, "GetVnic", (415, ""));
    for _ in 0..5 {
        assert_eq!(scene.reconcile().await, NextReconcile::Failed);
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    assert_eq!((&*scene.ready("a"), scene.live().len(), scene.count("AttachVnic")), ("True Ready", 1, 1));
    let vnic = scene.live()[0].vnic_id.clone().unwrap();
    assert!(scene.cloud.vnic(&vnic).await.is_err(), "it still cannot be read");
}
