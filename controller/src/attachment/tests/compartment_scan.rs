//! Whole compartments are listed; one that cannot be listed does not affect others.

use std::cell::RefCell;
use std::time::Duration;

use oci::AttachmentState;
use vcn::Ocid;

use super::scene::{Scene, compartment};
use crate::attachment::sample::{attachment, instance};
use crate::work::Worker;

/// Instances in two compartments, each with a VNIC; and so many objects that regular reconciles would take hours.
async fn two_compartments() -> Scene {
    let scene = Scene::with(4);
    let other: Ocid = "ocid1.compartment.oc1..two".parse().unwrap();
    scene.add_instance(2, &other);
    scene.wants("a");
    scene.store.attachments_mut().apply(attachment("b", 2));
    for _ in 0..3 {
        scene.reconcile().await;
        scene.worker.work(instance(2)).await;
        scene.cloud.settle();
    }
    for number in 3..3000 {
        scene.store.attachments_mut().apply(attachment(&format!("other-{number}"), number));
    }
    scene
}

fn detach_behind(scene: &Scene, number: u32) {
    let mut all = scene.live().into_iter();
    let own = all.find(|it| it.instance_id == instance(number) && it.lifecycle_state == AttachmentState::Attached);
    scene.cloud.detach_behind(&own.unwrap().id);
}

#[tokio::test(start_paused = true)]
async fn an_unlistable_compartment_proves_nothing() {
    let scene = two_compartments().await;
    let missed = RefCell::new(Vec::new());
    let reported = || scene.metrics.text().contains("unlisted_compartments 1");
    let mut sweeping = Box::pin(scene.worker.scan_compartments(|| 1.0, |instance| missed.borrow_mut().push(instance)));
    let mut minutes = async |minutes: u64| {
        assert!(tokio::time::timeout(Duration::from_mins(minutes), &mut sweeping).await.is_err());
    };
    minutes(6).await;
    assert!(!reported() && missed.borrow().is_empty());
    scene.cloud.forbid(&compartment());
    detach_behind(&scene, 1);
    detach_behind(&scene, 2);
    minutes(5).await;
    assert!(reported());
    assert_eq!(*missed.borrow(), [instance(2)], "the first is unknown");
    let list_count = || {
        let list = ("ListVnicAttachments", compartment().to_string());
        scene.cloud.calls().into_iter().filter(|call| *call == list).count()
    };
    let before = list_count();
    minutes(5).await;
    assert_eq!((reported(), list_count()), (false, before), "it is not listed again until an instance is found in it");
    scene.cloud.allow(&compartment());
    scene.reconcile().await;
    minutes(5).await;
    assert_eq!((reported(), missed.borrow().len()), (false, 3));
    assert_eq!(list_count(), before + 1);
}
