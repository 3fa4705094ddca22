//! An instance that ended while no controller ran, and that OCI has forgotten.

use std::time::Duration;

use api::condition::{ConditionType, find};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;
use vcn::Ocid;

use super::scene::{Scene, compartment, pods};
use crate::attachment::sample::{attachment, instance, subnet};
use crate::work::{NextReconcile, Worker};

const RESYNC: Duration = Duration::from_mins(5);

/// An instance with a VNIC and another one in the same subnet, both seen; no controller runs any more.
async fn before() -> Scene {
    let mut scene = Scene::with(4);
    scene.add_machine(2, &subnet());
    scene.wants("a");
    scene.settle().await;
    scene.restart();
    scene
}

/// Reconciles for this many regular intervals.
async fn look_for(scene: &Scene, pauses: u32) {
    for _ in 0..pauses {
        scene.look().await;
        sleep(RESYNC).await;
    }
}

/// The day is wall-clock time, which tests cannot wait for.
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
async fn an_instance_that_ended_unseen_is_released_after_a_day() {
    let mut scene = before().await;
    scene.cloud.forget_instance(&instance(1));
    scene.store.nodes_mut().delete("node-1");
    scene.delete("a");
    look_for(&scene, 1).await;
    assert_eq!(reason(&scene), "NotAuthorizedOrNotFound", "at first it is an ordinary 404");
    look_for(&scene, 14).await;
    assert_eq!(reason(&scene), "InstanceForgotten", "an hour is not a day");
    age(&scene, SignedDuration::from_hours(25));
    scene.restart();
    look_for(&scene, 11).await;
    assert_eq!(reason(&scene), "InstanceForgotten", "a new process has not seen it for long");
    look_for(&scene, 4).await;
    assert!(!scene.exists("a"));
    assert_eq!(scene.metrics.forgotten_so_far(), 1);
    assert_eq!(scene.count("DetachVnic"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wanted_object_reports_its_gone_instance_with_evidence() {
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
    assert_eq!(scene.count("GetInstance"), asked + 3, "its end was not seen: it may come back");
}

#[tokio::test(start_paused = true)]
async fn an_instance_moved_to_an_invisible_compartment_keeps_its_object() {
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
async fn an_invisible_orphan_names_the_next_step() {
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
    // The longest message fits.
    scene.cloud.forget_instance(&instance(1));
    scene.cloud.forget_instance(&instance(2));
    look_for(&scene, 2).await;
    let said = "no other VNIC of the subnet's compartment is visible; or remove the finalizer: our tags stay";
    assert!(scene.message("a").ends_with(said), "{}", scene.message("a"));
}

#[tokio::test(start_paused = true)]
async fn each_doubt_restarts_the_day() {
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
async fn an_unanswered_call_does_not_restart_the_day() {
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
async fn unanswered_calls_prove_nothing() {
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
async fn another_objects_vnic_in_the_subnet_is_the_witness() {
    let mut scene = Scene::with(4);
    let elsewhere = subnet_elsewhere(&scene);
    (2..60).for_each(|number| scene.add_machine(number, &elsewhere));
    scene.wants("a");
    scene.store.attachments_mut().apply(attachment("b", 59));
    scene.settle().await;
    while !matches!(scene.worker.work(instance(59)).await, NextReconcile::Settled(_)) {
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
async fn witnesses_are_read_in_a_fixed_order_and_bounded() {
    let scene = before().await;
    let elsewhere = subnet_elsewhere(&scene);
    (3..60).for_each(|number| scene.add_machine(number, &elsewhere));
    scene.cloud.forget_instance(&instance(1));
    scene.store.nodes_mut().delete("node-1");
    look_for(&scene, 2).await;
    assert_eq!(reason(&scene), "InstanceForgotten", "{}", scene.message("a"));
    let (told, asked) = (scene.status("a"), scene.count("GetVnic"));
    look_for(&scene, 10).await;
    assert_eq!(scene.status("a"), told, "as at the first reconcile");
    assert!(scene.count("GetVnic") <= asked + 10 * 6);
}

#[tokio::test(start_paused = true)]
async fn a_witness_is_found_behind_other_compartments() {
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
async fn a_forgotten_instance_returns_when_it_is_seen() {
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
        assert_eq!(scene.status("a").vnic_id.as_ref(), Some(&vnic), "it is read while it is not found");
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
async fn a_forgotten_instance_stays_so_with_less_evidence() {
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
