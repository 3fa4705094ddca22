//! A subnet with several IPv6 blocks: a request names its block, always the same.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use oci::{CloudView, Subnet};
use vcn::Family;

use super::scene::{Scene, pods};
use crate::attachment::sample::subnet;

const FIRST: &str = "2603:c020:0:2::/64";
const SECOND: &str = "2603:c020:0:5::/64";

fn blocks(scene: &Scene, all: &[&str]) {
    let all: Vec<IpNetwork> = all.iter().map(|block| block.parse().unwrap()).collect();
    let one = pods("10.0.32.0/20", subnet());
    scene.cloud.add_subnet(Subnet { ipv6_cidr_block: all.first().copied(), ipv6_cidr_blocks: all, ..one });
}

/// How many addresses in addition to its own it has of each block.
async fn beside(scene: &Scene) -> [usize; 2] {
    let vnic = scene.vnic().await.id;
    let all = scene.cloud.addresses(&vnic, Family::Ipv6).await.unwrap();
    // OCI does not mark a VNIC's own IPv6 address; the controller tags the others.
    let all = all.into_iter().filter(|own| !own.freeform_tags.is_empty());
    let all: Vec<IpAddr> = all.map(|own| own.ip_address).collect();
    [FIRST, SECOND].map(|block| {
        let block: IpNetwork = block.parse().unwrap();
        all.iter().filter(|address| block.contains(**address)).count()
    })
}

#[tokio::test(start_paused = true)]
async fn addresses_come_from_the_vnics_own_block() {
    for (count, requested, expected) in [
        (1, None, [0, 1]),
        (5, None, [0, 5]),
        (1, Some("2603:c020:0:2::77"), [1, 0]),
        (4, Some("2603:c020:0:2::77"), [1, 3]),
    ] {
        let scene = Scene::with(4);
        blocks(&scene, &[FIRST, SECOND]);
        scene.wants("a");
        scene.change("a", |object| {
            object.spec.vnic.ipv6_count = count;
            object.spec.requested_addresses =
                requested.map(|address: &str| address.parse().unwrap()).into_iter().collect();
        });
        scene.settle().await;
        assert_eq!(
            (beside(&scene).await, scene.told("a")[1].as_str()),
            (expected, "True Ready"),
            "{count} {requested:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn vnic_without_own_ipv6_address_uses_the_first_block() {
    let scene = Scene::with(4);
    blocks(&scene, &[]);
    scene.wants("a");
    scene.settle().await;
    blocks(&scene, &[FIRST, SECOND]);
    tokio::time::sleep(std::time::Duration::from_hours(2)).await;
    scene.change("a", |object| object.spec.vnic.ipv6_count = 3);
    scene.settle().await;
    assert_eq!((beside(&scene).await, scene.told("a")[1].as_str()), ([3, 0], "True Ready"));
}
