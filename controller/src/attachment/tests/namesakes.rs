//! Two objects of one name on an instance: one of them keeps it.

use std::time::Duration;

use super::scene::Scene;

/// Each requests a VNIC of the same name, one after the other.
async fn want_in_turn(scene: &Scene, names: [&str; 2]) {
    for name in names {
        scene.wants(name);
        scene.change(name, |object| object.spec.vnic.name = "storage".parse().unwrap());
        scene.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_older_of_two_objects_keeps_the_name() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.wants("b");
    scene.change("b", |object| object.spec.vnic.name = "a".parse().unwrap());
    scene.settle().await;
    assert_eq!(scene.told("b"), ["False NameTaken", "False NameTaken"]);
    assert_eq!(scene.message("b"), "VnicAttachment a already uses the VNIC name a");
    scene.delete("a");
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.told("b")[1].as_str()), (false, "True Ready"));
}

#[tokio::test(start_paused = true)]
async fn the_object_with_a_vnic_keeps_the_name() {
    for names in [["a", "b"], ["b", "a"]] {
        let scene = Scene::with(6);
        want_in_turn(&scene, names).await;
        let [first, second] = names;
        assert_eq!((scene.told(first)[1].as_str(), scene.told(second)[1].as_str()), ("True Ready", "False NameTaken"));
        assert_eq!(scene.message(second), format!("VnicAttachment {first} already uses the VNIC name storage"));
        assert_eq!(scene.live().len(), 1, "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_detach_does_not_change_the_names_owner() {
    let mut scene = Scene::with(6);
    want_in_turn(&scene, ["b", "a"]).await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    // Lists lag behind requests, and the next process does not know about this one.
    scene.cloud.lag_lists(2);
    for _ in 0..8 {
        scene.look().await;
        scene.restart();
        assert!(scene.live().len() <= 1);
        scene.cloud.settle();
    }
    for _ in 0..20 {
        scene.look().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        scene.cloud.settle();
    }
    assert_eq!((scene.told("b")[1].as_str(), scene.told("a")[1].as_str()), ("True Ready", "False NameTaken"));
    assert_eq!(scene.live().len(), 1);
}
