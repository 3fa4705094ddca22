//! Two objects of one name on an instance: one of them has it.

use std::time::Duration;

use super::scene::Scene;

/// Each in turn asks for a VNIC called the same.
async fn want_in_turn(scene: &Scene, names: [&str; 2]) {
    for name in names {
        scene.wants(name);
        scene.change(name, |object| object.spec.vnic.name = "storage".parse().unwrap());
        scene.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_older_of_two_with_one_name_has_it() {
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
async fn who_has_its_vnic_keeps_the_name_whatever_the_order_of_the_two() {
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
async fn who_had_its_vnic_is_the_one_that_has_another_when_somebody_detached_it() {
    for is_listed in [true, false] {
        let mut scene = Scene::with(6);
        want_in_turn(&scene, ["b", "a"]).await;
        let gone = scene.live()[0].id.clone();
        scene.cloud.detach_behind(&gone);
        if !is_listed {
            scene.cloud.hide(&gone, 1000);
        }
        // What was asked for is not listed at once, and whoever comes next does not know of it.
        scene.cloud.lag_lists(2);
        for _ in 0..8 {
            scene.look().await;
            scene.restart();
            assert!(scene.live().len() <= 1, "listed: {is_listed}");
            scene.cloud.settle();
        }
        for _ in 0..20 {
            scene.look().await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            scene.cloud.settle();
        }
        assert_eq!((scene.told("b")[1].as_str(), scene.told("a")[1].as_str()), ("True Ready", "False NameTaken"));
        assert_eq!(scene.live().len(), 1, "listed: {is_listed}");
    }
}
