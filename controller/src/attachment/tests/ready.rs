//! The reason of Ready of a VNIC that is ready.

use api::{NodeReport, Purpose, Route};

use super::scene::Scene;

#[tokio::test(start_paused = true)]
async fn host_vnic_without_routes_is_ready_with_a_reason() {
    let scene = Scene::attached(|object| object.spec.vnic.purpose = Purpose::Host).await;
    assert_eq!(scene.reported("a"), ["True Attached", "True NoRoutes"]);
    let written = scene.statuses();
    scene.settle().await;
    assert_eq!((scene.statuses(), &*scene.message("a")), (written, ""), "written once, and without a message");
    scene.change("a", |object| object.spec.vnic.subnet_route = true);
    scene.settle().await;
    assert_eq!(scene.ready("a"), "True Ready");
    scene.change("a", |object| {
        object.spec.vnic.subnet_route = false;
        object.spec.vnic.routes = vec![Route { destination: "172.16.0.0/12".parse().unwrap(), via: None }];
    });
    scene.settle().await;
    assert_eq!(scene.ready("a"), "True Ready");
}

#[tokio::test(start_paused = true)]
async fn unusable_host_vnic_is_not_ready_although_it_lacks_routes() {
    let scene = Scene::attached(|object| object.spec.vnic.purpose = Purpose::Host).await;
    let reports = |configured: bool, reason: &str| {
        scene.change("a", |object| {
            let generation = object.metadata.generation.map(|generation| generation + 1);
            let report = NodeReport { configured, reason: reason.to_owned(), in_use: 0, generation };
            object.status.as_mut().unwrap().node = Some(report);
        });
    };
    reports(false, "LinkMissing");
    scene.settle().await;
    assert_eq!(scene.ready("a"), "False NotConfigured");
    // OCI does not answer: the last status stays.
    scene.refuse(3, "GetInstance", (503, "ServiceUnavailable"));
    scene.reconcile().await;
    assert_eq!(scene.ready("a"), "False NotConfigured");
    reports(true, "");
    scene.settle().await;
    assert_eq!(scene.ready("a"), "True NoRoutes");
    scene.refuse(3, "GetInstance", (503, "ServiceUnavailable"));
    scene.reconcile().await;
    assert_eq!(scene.ready("a"), "True NoRoutes");
}
