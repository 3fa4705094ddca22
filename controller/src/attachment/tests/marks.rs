//! Ownership of a VNIC whose tags were changed.

use std::time::Duration;

use api::{CLUSTER_TAG, OnDelete, RELEASED_TAG};
use oci::{FreeformTags, UpdateVnic};

use super::scene::{CLUSTER, Scene};
use crate::attachment::mark::Mark;
use crate::attachment::sample::{instance, subnet};

async fn tag(scene: &Scene, tags: FreeformTags) {
    let change = UpdateVnic { freeform_tags: Some(tags), ..UpdateVnic::default() };
    scene.cloud.update_vnic(&scene.vnic().await.id, &change, None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn removed_tags_are_restored() {
    let mut scene = Scene::attached(|_| {}).await;
    let before = scene.vnic().await;
    for restarted in [false, true] {
        tag(&scene, FreeformTags::default()).await;
        if restarted {
            scene.restart();
        }
        scene.settle().await;
        assert_eq!(scene.vnic().await.freeform_tags, before.freeform_tags);
        assert_eq!((scene.vnic().await.id, scene.count("AttachVnic")), (before.id.clone(), 1));
        assert_eq!(scene.reported("a"), ["True Attached", "True Ready"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renamed_cluster_keeps_its_vnics_and_addresses() {
    let mut scene = Scene::attached(|object| object.spec.vnic.ipv4_count = 3).await;
    let (before, written) = (scene.vnic().await.id, scene.calls());
    scene.restart_as("another-name");
    scene.settle().await;
    let after = scene.vnic().await;
    assert_eq!((after.id, after.freeform_tags.get(CLUSTER_TAG).map(String::as_str)), (before, Some("another-name")));
    assert_eq!(scene.calls()[written.len()..], ["UpdateVnic"], "its tags, and nothing else");
}

#[tokio::test(start_paused = true)]
async fn a_released_vnic_is_not_adopted() {
    let scene = Scene::attached(|object| object.spec.vnic.on_delete = OnDelete::Orphan).await;
    scene.delete("a");
    // The tags are removed, and the object still exists: the process was killed in between.
    let released = FreeformTags::from([(RELEASED_TAG.to_owned(), "uid-a".to_owned())]);
    tag(&scene, released.clone()).await;
    scene.change("a", |object| object.spec.vnic.on_delete = OnDelete::Detach);
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.count("DetachVnic")), (false, 0));
    assert_eq!(scene.vnic().await.freeform_tags, released);
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_vnic_is_found_on_an_instance_without_objects() {
    let scene = Scene::with(4);
    ["a", "left"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    let left = scene.status("left").vnic_id.unwrap();
    let tags = FreeformTags::from([(RELEASED_TAG.to_owned(), "uid-left".to_owned())]);
    let change = UpdateVnic { freeform_tags: Some(tags), ..UpdateVnic::default() };
    scene.cloud.update_vnic(&left, &change, None).await.unwrap();
    // The finalizers were removed by hand.
    ["a", "left"].iter().for_each(|name| drop(scene.store.attachments_mut().delete(name)));
    scene.reconcile().await;
    assert!(scene.metrics.text().contains("unclaimed_vnics 0"));
    let before = scene.count("GetVnic");
    let sweeping = scene.worker.scan_compartments(|| 1.0, |instance| panic!("{instance}"));
    let _ = tokio::time::timeout(Duration::from_secs(301), sweeping).await;
    assert!(scene.metrics.text().contains("unclaimed_vnics 0"), "one list proves nothing");
    let sweeping = scene.worker.scan_compartments(|| 1.0, |instance| panic!("{instance}"));
    let _ = tokio::time::timeout(Duration::from_secs(1501), sweeping).await;
    assert!(scene.metrics.text().contains("unclaimed_vnics 1"), "a released VNIC does not count");
    assert_eq!((scene.count("GetVnic") - before, scene.live().len()), (2, 2), "each is read once");
}

#[tokio::test(start_paused = true)]
async fn invisible_vnics_do_not_hide_an_orphaned_one() {
    const OTHERS: usize = 250;
    let scene = Scene::with(OTHERS + 4);
    for number in 0..OTHERS {
        let foreign = oci::AttachVnic {
            instance_id: instance(1),
            create_vnic_details: oci::CreateVnic { subnet_id: Some(subnet()), ..oci::CreateVnic::default() },
            display_name: Some(Mark::new("another").attachment_name(&format!("uid-{number}"))),
            nic_index: None,
        };
        let token = oci::RetryToken::derive(&[&number.to_string()]);
        scene.cloud.attach_vnic(&foreign, &token).await.unwrap();
        scene.cloud.settle();
    }
    scene.live().iter().for_each(|foreign| scene.cloud.forbid(foreign.vnic_id.as_ref().unwrap()));
    scene.wants("a");
    scene.settle().await;
    // The finalizer was removed by hand.
    scene.store.attachments_mut().delete("a");
    scene.reconcile().await;
    let read_count = || scene.count("GetVnic");
    let mut sweeping = Box::pin(scene.worker.scan_compartments(|| 1.0, |instance| panic!("{instance}")));
    let mut sweeps = async |number: u64| {
        let before = read_count();
        // One second more than the start of the scans.
        assert!(tokio::time::timeout(Duration::from_secs(300 * number + 1), &mut sweeping).await.is_err());
        read_count() - before
    };
    assert_eq!(sweeps(2).await, 200, "the second list is the first proof");
    assert_eq!(sweeps(1).await, OTHERS - 200 + 1);
    assert!(scene.metrics.text().contains("unclaimed_vnics 1"));
    assert_eq!(sweeps(9).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_primary_vnic_belongs_to_no_object() {
    for first in [true, false] {
        let scene = Scene::with(4);
        let primary = scene.cloud.attachments().into_iter().find_map(|it| it.vnic_id).unwrap();
        let tags = Mark::new(CLUSTER).tags("uid-a", "a", &FreeformTags::new());
        let copy = UpdateVnic { freeform_tags: Some(tags.clone()), ..UpdateVnic::default() };
        scene.wants("a");
        if !first {
            scene.settle().await;
        }
        scene.cloud.update_vnic(&primary, &copy, None).await.unwrap();
        scene.settle().await;
        let own = scene.vnic().await.id;
        assert_eq!((scene.status("a").vnic_id, &*scene.ready("a")), (Some(own), "True Ready"));
        scene.delete("a");
        scene.settle().await;
        assert!(!scene.exists("a"));
        assert_eq!((scene.live().len(), scene.count("DetachVnic")), (0, 1), "the copy came first: {first}");
        assert_eq!(scene.cloud.vnic(&primary).await.unwrap().value.freeform_tags, tags, "left as it is");
        assert!(scene.metrics.text().contains("unclaimed_vnics 0"));
    }
}
