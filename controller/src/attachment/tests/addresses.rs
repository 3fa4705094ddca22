//! Addresses in addition to a VNIC's own: added, released, and never those of other owners.

use std::net::IpAddr;

use vcn::Family;

use super::scene::{Scene, pods};
use crate::work::NextReconcile;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_spent_token_of_an_address_is_replaced() {
    for requested in [vec![], vec![address("10.0.40.7")]] {
        let scene = Scene::attached(|_| {}).await;
        scene.change("a", |object| {
            object.spec.vnic.ipv4_count = 1;
            object.spec.requested_addresses = requested;
        });
        // It is created, deleted by another program, and requested again.
        scene.reconcile().await;
        scene.cloud.delete_behind(scene.extra_addresses(Family::Ipv4).await[0]);
        scene.reconcile().await;
        assert_eq!((&*scene.ready("a"), scene.extra_addresses(Family::Ipv4).await.len()), ("True Ready", 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_reconcile_continues_soon() {
    let scene = Scene::attached(|object| object.spec.vnic.ipv4_count = 1).await;
    scene.change("a", |object| object.spec.requested_addresses = vec![address("10.0.40.7")]);
    // The token is refused twice; then the address is added, and the other one released.
    scene.refuse(2, "CreateAddress", (409, "InvalidatedRetryToken"));
    assert!(matches!(scene.reconcile().await, NextReconcile::Soon(_)));
    assert_eq!((scene.count("CreateAddress"), scene.count("DeleteAddress")), (4, 1));
    assert_eq!(scene.message("a"), "the VNIC still has more than its 1 IPv4 addresses");
    scene.settle().await;
    let extra = scene.extra_addresses(Family::Ipv4).await;
    assert_eq!((extra, &*scene.ready("a")), (vec![address("10.0.40.7")], "True Ready"));
}

#[tokio::test(start_paused = true)]
async fn slowly_assigned_addresses_are_requested_once() {
    let scene = Scene::with(4);
    scene.cloud.pace_bulks(10);
    scene.wants("a");
    scene.change("a", |object| object.spec.vnic.ipv4_count = 31);
    scene.settle().await;
    assert_eq!((scene.extra_addresses(Family::Ipv4).await.len(), &*scene.ready("a")), (31, "True Ready"));
    assert_eq!((scene.count("BulkCreateAddresses"), scene.count("DeleteAddress")), (1, 0), "several need one request");
    // More of them are another request.
    scene.change("a", |object| object.spec.vnic.ipv4_count = 41);
    scene.settle().await;
    assert_eq!((scene.extra_addresses(Family::Ipv4).await.len(), scene.count("BulkCreateAddresses")), (41, 2));
}

#[tokio::test(start_paused = true)]
async fn address_in_use_does_not_block_other_addresses() {
    let scene = Scene::attached(|object| object.spec.vnic.ipv4_count = 2).await;
    let foreign = scene.take_address(address("10.0.40.7")).await;
    scene.change("a", |object| {
        object.spec.vnic.ipv4_count = 5;
        object.spec.vnic.ipv6_count = 2;
        object.spec.requested_addresses = vec![address("10.0.40.7"), address("10.0.40.8")];
    });
    scene.reconcile_often().await;
    let four = scene.extra_addresses(Family::Ipv4).await;
    assert!(four.len() == 4 && four.contains(&address("10.0.40.8")), "{four:?}");
    assert_eq!(scene.extra_addresses(Family::Ipv6).await.len(), 2);
    assert_eq!(scene.reported("a"), ["True Attached", "False AddressTaken"]);
    scene.cloud.delete_address(Family::Ipv4, &foreign).await.unwrap();
    scene.settle().await;
    let five = scene.extra_addresses(Family::Ipv4).await;
    assert!(five.len() == 5 && four.iter().all(|own| five.contains(own)), "{five:?}");
}

#[tokio::test(start_paused = true)]
async fn an_address_is_released_only_after_its_replacement_is_assigned() {
    let scene = Scene::attached(|object| object.spec.vnic.ipv4_count = 1).await;
    let before = scene.extra_addresses(Family::Ipv4).await;
    let foreign = scene.take_address(address("10.0.40.7")).await;
    scene.change("a", |object| object.spec.requested_addresses = vec![address("10.0.40.7")]);
    scene.reconcile_often().await;
    assert_eq!((scene.extra_addresses(Family::Ipv4).await, &*scene.ready("a")), (before, "False AddressTaken"));
    assert!(scene.message("a").starts_with("CreatePrivateIp of 10.0.40.7: 409 "), "{}", scene.message("a"));
    scene.cloud.delete_address(Family::Ipv4, &foreign).await.unwrap();
    scene.settle().await;
    assert_eq!(scene.extra_addresses(Family::Ipv4).await, [address("10.0.40.7")]);
    assert_eq!(scene.ready("a"), "True Ready");
}

#[tokio::test(start_paused = true)]
async fn a_refused_change_does_not_block_addresses() {
    let scene = Scene::attached(|_| {}).await;
    scene.change("a", |object| {
        object.spec.vnic.skip_source_dest_check = true;
        object.spec.vnic.ipv4_count = 3;
    });
    scene.refuse(200, "UpdateVnic", (404, "NotAuthorizedOrNotFound"));
    scene.reconcile_often().await;
    assert_eq!(scene.extra_addresses(Family::Ipv4).await.len(), 3);
    assert_eq!(scene.reported("a"), ["True Attached", "Unknown NotAuthorizedOrNotFound"]);
}

#[tokio::test(start_paused = true)]
async fn no_request_follows_an_unanswered_one() {
    for (status, code) in [(503, "ServiceUnavailable"), (429, "TooManyRequests"), (401, "NotAuthenticated")] {
        let scene = Scene::attached(|_| {}).await;
        scene.change("a", |object| {
            object.spec.vnic.skip_source_dest_check = true;
            object.spec.vnic.ipv4_count = 3;
        });
        scene.cloud.fail_next("UpdateVnic", (status, code), false);
        scene.reconcile().await;
        assert_eq!((scene.count("UpdateVnic"), scene.count("BulkCreateAddresses")), (1, 0), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_bulk_requests_fall_back_to_single_ones() {
    for refusal in [
        (400, "LimitExceeded"),
        (400, "InvalidParameter"),
        (403, "NotAuthorized"),
        (404, "NotAuthorizedOrNotFound"),
        (409, "NotAuthorizedOrResourceAlreadyExists"),
        (405, "MethodNotAllowed"),
        (501, "MethodNotImplemented"),
    ] {
        let scene = Scene::attached(|_| {}).await;
        scene.change("a", |object| object.spec.vnic.ipv4_count = 70);
        scene.cloud.fail_next("BulkCreateAddresses", refusal, false);
        scene.reconcile().await;
        assert_eq!((scene.extra_addresses(Family::Ipv4).await.len(), &*scene.ready("a")), (70, "True Ready"));
        assert_eq!(scene.count("BulkCreateAddresses"), 1);
        // The next time, in bulk again.
        scene.change("a", |object| object.spec.vnic.ipv4_count = 80);
        scene.settle().await;
        assert_eq!((scene.extra_addresses(Family::Ipv4).await.len(), scene.count("BulkCreateAddresses")), (80, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_ipv6_address_is_not_the_vnics_own() {
    // The VNIC was created before its subnet had a block, or its own address was deleted.
    for had_own in [false, true] {
        let scene = Scene::with(4);
        let id: vcn::Ocid = "ocid1.subnet.oc1.iad.late".parse().unwrap();
        let late = pods("10.0.64.0/20", id.clone());
        scene
            .cloud
            .add_subnet(oci::Subnet { ipv6_cidr_block: late.ipv6_cidr_block.filter(|_| had_own), ..late.clone() });
        scene.wants("a");
        scene.change("a", |object| object.spec.vnic.subnet_id = id.clone());
        scene.settle().await;
        scene.cloud.add_subnet(late);
        scene.change("a", |object| object.spec.vnic.ipv6_count = 1);
        scene.settle().await;
        let vnic = scene.vnic().await;
        if had_own {
            scene.cloud.delete_behind(vnic.ipv6_addresses[0]);
        }
        assert_eq!(scene.extra_addresses(Family::Ipv6).await.len(), 1);
        scene.change("a", |object| object.spec.vnic.ipv6_count = 0);
        scene.settle().await;
        assert_eq!((scene.vnic().await.ipv6_addresses, &*scene.ready("a")), (Vec::new(), "True Ready"));
        assert_eq!(scene.status("a").own_addresses, Vec::from_iter(vnic.private_ip), "had its own: {had_own}");
    }
}

#[tokio::test(start_paused = true)]
async fn vnic_with_only_its_own_ipv6_is_not_listed_again() {
    let scene = Scene::attached(|_| {}).await;
    let listed = scene.count("ListAddresses");
    for _ in 0..3 {
        scene.reconcile().await;
    }
    assert_eq!(scene.count("ListAddresses"), listed + 3, "IPv4 alone");
}
