//! An instance ended while no controller ran, and the cloud has forgotten it.

use std::time::Duration;

use api::condition::{ConditionType, find};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;
use vcn::Ocid;

use super::scene::{Scene, compartment, pods};
use crate::attachment::sample::{attachment, instance, subnet};
use crate::work::{Next, Worker};

const RESYNC: Duration = Duration::from_mins(5);

/// An instance with a VNIC and another one in the same subnet, both seen; nobody works any more.
async fn before() -> Scene {
    let mut scene = Scene::with(4);
    scene.add_machine(2, &subnet());
    scene.wants("a");
    scene.settle().await;
    scene.restart();
    scene
}

/// Looks for so many regular pauses.
async fn look_for(scene: &Scene, pauses: u32) {
    for _ in 0..pauses {
        scene.look().await;
        sleep(RESYNC).await;
    }
}

/// The day is a calendar's, which tests cannot wait for.
fn age(scene: &Scene, by: SignedDuration) {
    let mut objects = scene.store.attachments_mut();
    let mut object = api::VnicAttachment::clone(objects.get("a").unwrap());
    for condition in &mut object.status.as_mut().unwrap().conditions {
        condition.last_transition_time = Time(Timestamp::now() - by);
    }
    objects.apply(object);
}

fn reason(scene: &Scene) -> String {
    let status = scene.status("a");
    find(&status.conditions, ConditionType::Attached).unwrap().reason.clone()
}

async fn a_day_passes(scene: &Scene) {
    look_for(scene, 2).await;
    age(scene, SignedDuration::from_hours(25));
    look_for(scene, 14).await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_ended_unseen_holds_nothing_up_for_ever() {
    let mut scene = before().await;
    scene.cloud.forget_instance(&instance(1));
    scene.store.nodes_mut().delete("node-1");
    scene.delete("a");
    look_for(&scene, 1).await;
    assert_eq!(reason(&scene), "NotAuthorizedOrNotFound", "at first it is a 404 like any other");
    look_for(&scene, 14).await;
    assert_eq!(reason(&scene), "InstanceForgotten", "an hour is no day");
    age(&scene, SignedDuration::from_hours(25));
    scene.restart();
    look_for(&scene, 11).await;
    assert_eq!(reason(&scene), "InstanceForgotten", "another process has not seen it for long");
    look_for(&scene, 4).await;
    assert!(!scene.exists("a"));
    assert_eq!(scene.metrics.forgotten_so_far(), 1);
    assert_eq!(scene.count("DetachVnic"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_still_says_that_its_instance_is_gone_and_on_what_evidence() {
    let scene = before().await;
    scene.cloud.forget_instance(&instance(1));
    scene.store.nodes_mut().delete("node-1");
    a_day_passes(&scene).await;
    assert_eq!(scene.told("a"), ["False NodeGone", "False NodeGone"]);
    let words = "forgotten: for a day 404 for instance and VNIC, not listed in 1 compartments, no Node; other VNICs there are visible";
    assert_eq!(scene.message("a"), words);
    let (written, asked) = (scene.statuses(), scene.count("GetInstance"));
    look_for(&scene, 3).await;
    assert_eq!((scene.statuses(), scene.message("a").as_str()), (written, words), "and stays so");
    assert_eq!(scene.count("GetInstance"), asked + 3, "nobody saw it end: it may come back");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_moved_out_of_sight_keeps_its_object() {
    let scene = before().await;
    let elsewhere: Ocid = "ocid1.compartment.oc1..elsewhere".parse().unwrap();
    scene.cloud.hide_instance(&instance(1), &elsewhere);
    scene.store.nodes_mut().delete("node-1");
    scene.delete("a");
    a_day_passes(&scene).await;
    assert!(scene.exists("a"));
    assert_eq!(reason(&scene), "NotAuthorizedOrNotFound");
    assert!(scene.message("a").ends_with("its VNIC is visible"), "{}", scene.message("a"));
}

#[tokio::test(start_paused = true)]
async fn an_orphan_out_of_sight_says_what_is_in_the_way_and_how_to_let_it_go() {
    let scene = before().await;
    scene.change("a", |object| object.spec.vnic.on_delete = api::OnDelete::Orphan);
    scene.settle().await;
    let elsewhere: Ocid = "ocid1.compartment.oc1..elsewhere".parse().unwrap();
    scene.cloud.hide_instance(&instance(1), &elsewhere);
    scene.store.nodes_mut().delete("node-1");
    scene.delete("a");
    look_for(&scene, 2).await;
    assert!(
        scene.message("a").ends_with("its VNIC is visible; or remove the finalizer: our tags stay"),
        "{}",
        scene.message("a")
    );
    // The longest that there is to say has room.
    scene.cloud.forget_instance(&instance(1));
    scene.cloud.forget_instance(&instance(2));
    look_for(&scene, 2).await;
    let said = "no other VNIC of the subnet's compartment is visible; or remove the finalizer: our tags stay";
    assert!(scene.message("a").ends_with(said), "{}", scene.message("a"));
}

#[tokio::test(start_paused = true)]
async fn every_doubt_keeps_the_object_and_begins_the_day_anew() {
    for doubt in ["a Node names it", "another VNIC", "subnet", "list"] {
        let scene = before().await;
        scene.cloud.forget_instance(&instance(1));
        if doubt != "a Node names it" {
            scene.store.nodes_mut().delete("node-1");
        }
        if doubt == "another VNIC" {
            scene.cloud.forget_instance(&instance(2));
        }
        scene.delete("a");
        look_for(&scene, 2).await;
        age(&scene, SignedDuration::from_hours(25));
        look_for(&scene, 10).await;
        match doubt {
            "subnet" => scene.cloud.fail_next("GetSubnet", (404, "NotAuthorizedOrNotFound"), false),
            "list" => scene.cloud.fail_next("ListVnicAttachments", (404, "NotAuthorizedOrNotFound"), false),
            _ => {}
        }
        look_for(&scene, 1).await;
        assert_eq!(reason(&scene), "NotAuthorizedOrNotFound", "{doubt}");
        look_for(&scene, 14).await;
        assert!(scene.exists("a"), "{doubt}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_says_nothing_and_the_day_goes_on() {
    for operation in ["GetInstance", "GetVnic", "GetSubnet", "ListVnicAttachments"] {
        for refusal in [(503, "ServiceUnavailable"), (429, "TooManyRequests")] {
            let scene = before().await;
            scene.cloud.forget_instance(&instance(1));
            scene.store.nodes_mut().delete("node-1");
            scene.delete("a");
            look_for(&scene, 2).await;
            age(&scene, SignedDuration::from_hours(25));
            look_for(&scene, 5).await;
            let told = scene.status("a");
            scene.cloud.fail_next(operation, refusal, false);
            look_for(&scene, 1).await;
            assert_eq!(scene.status("a"), told, "{operation} {refusal:?}");
            look_for(&scene, 7).await;
            assert!(!scene.exists("a"), "{operation} {refusal:?}: an hour since the first look of this process");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_ends_by_calls_without_an_answer() {
    let mut scene = before().await;
    scene.cloud.forget_instance(&instance(1));
    scene.store.nodes_mut().delete("node-1");
    scene.delete("a");
    look_for(&scene, 2).await;
    age(&scene, SignedDuration::from_hours(25));
    let told = scene.status("a");
    for restarted in [false, true] {
        if restarted {
            scene.restart();
        }
        for _ in 0..14 {
            scene.cloud.fail_next("GetVnic", (503, "ServiceUnavailable"), false);
            look_for(&scene, 1).await;
        }
        assert_eq!(scene.status("a"), told, "restarted: {restarted}");
    }
    look_for(&scene, 11).await;
    assert_eq!(reason(&scene), "InstanceForgotten", "its hour begins with the first answer");
    look_for(&scene, 3).await;
    assert!(!scene.exists("a"));
}

/// A subnet in another compartment than the objects' one.
fn subnet_elsewhere(scene: &Scene) -> Ocid {
    let id: Ocid = "ocid1.subnet.oc1.iad.elsewhere".parse().unwrap();
    let compartment_id = "ocid1.compartment.oc1..network".parse().unwrap();
    scene.cloud.add_subnet(oci::Subnet { compartment_id, ..pods("10.0.48.0/20", id.clone()) });
    id
}

#[tokio::test(start_paused = true)]
async fn the_vnic_of_another_object_in_the_subnet_is_the_witness_among_however_many_that_are_none() {
    let mut scene = Scene::with(4);
    let elsewhere = subnet_elsewhere(&scene);
    (2..60).for_each(|number| scene.add_machine(number, &elsewhere));
    scene.wants("a");
    scene.store.attachments_mut().apply(attachment("b", 59));
    scene.settle().await;
    while !matches!(scene.worker.work(instance(59)).await, Next::Settled(_)) {
        scene.cloud.settle();
    }
    scene.restart();
    scene.cloud.forget_instance(&instance(1));
    scene.store.nodes_mut().delete("node-1");
    scene.delete("a");
    look_for(&scene, 2).await;
    let asked = scene.count("GetVnic");
    for look in 1..=10 {
        look_for(&scene, 1).await;
        assert_eq!(reason(&scene), "InstanceForgotten", "look {look}: {}", scene.message("a"));
    }
    assert_eq!(scene.count("GetVnic"), asked + 20, "its own VNIC and the witness");
}

#[tokio::test(start_paused = true)]
async fn others_are_witnesses_in_an_order_that_stays_and_not_without_bound() {
    let scene = before().await;
    let elsewhere = subnet_elsewhere(&scene);
    (3..60).for_each(|number| scene.add_machine(number, &elsewhere));
    scene.cloud.forget_instance(&instance(1));
    scene.store.nodes_mut().delete("node-1");
    look_for(&scene, 2).await;
    assert_eq!(reason(&scene), "InstanceForgotten", "{}", scene.message("a"));
    let (told, asked) = (scene.status("a"), scene.count("GetVnic"));
    look_for(&scene, 10).await;
    assert_eq!(scene.status("a"), told, "as it was at the first look");
    assert!(scene.count("GetVnic") <= asked + 10 * 6);
}

#[tokio::test(start_paused = true)]
async fn a_witness_is_found_behind_however_many_vnics_of_other_compartments() {
    // In the same subnet, though the last in the list; in another one of the same compartment.
    for witness in [subnet(), "ocid1.subnet.oc1.iad.nodes".parse().unwrap()] {
        let mut scene = Scene::with(4);
        let elsewhere = subnet_elsewhere(&scene);
        (2..60).for_each(|number| scene.add_machine(number, &elsewhere));
        scene.add_machine(99, &witness);
        scene.wants("a");
        scene.settle().await;
        scene.restart();
        scene.cloud.forget_instance(&instance(1));
        scene.store.nodes_mut().delete("node-1");
        look_for(&scene, 2).await;
        assert_eq!(reason(&scene), "InstanceForgotten", "{witness}: {}", scene.message("a"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_for_terminated_is_not_once_something_is_seen_of_it() {
    for seen in ["a Node names it", "its VNIC is visible", "OCI lists an attachment of it"] {
        let scene = before().await;
        let vnic = scene.status("a").vnic_id.unwrap();
        scene.cloud.hide_instance(&instance(1), &"ocid1.compartment.oc1..elsewhere".parse().unwrap());
        scene.cloud.forbid(&vnic);
        let node = scene.store.nodes().of(&instance(1)).unwrap().clone();
        scene.store.nodes_mut().delete("node-1");
        a_day_passes(&scene).await;
        look_for(&scene, 2).await;
        assert_eq!(scene.told("a"), ["False NodeGone", "False NodeGone"]);
        assert_eq!(scene.status("a").vnic_id.as_ref(), Some(&vnic), "it is asked for as long as it is not found");
        match seen {
            "a Node names it" => drop(scene.store.nodes_mut().apply(node)),
            "its VNIC is visible" => scene.cloud.allow(&vnic),
            _ => scene.cloud.hide_instance(&instance(1), &compartment()),
        }
        scene.delete("a");
        look_for(&scene, 3).await;
        assert!(scene.exists("a"), "{seen}");
        assert_eq!(reason(&scene), "NotAuthorizedOrNotFound", "{seen}");
        assert!(scene.message("a").ends_with(seen), "{}", scene.message("a"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_for_terminated_stays_so_where_less_is_to_be_seen() {
    let scene = before().await;
    scene.cloud.forget_instance(&instance(1));
    scene.store.nodes_mut().delete("node-1");
    a_day_passes(&scene).await;
    let told = scene.status("a");
    assert_eq!(reason(&scene), "NodeGone");
    scene.cloud.forget_instance(&instance(2));
    look_for(&scene, 2).await;
    scene.cloud.fail_next("GetSubnet", (404, "NotAuthorizedOrNotFound"), false);
    look_for(&scene, 1).await;
    assert_eq!(scene.status("a"), told);
}
