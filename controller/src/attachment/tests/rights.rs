//! A VnicAttachment names the refused call if a permission is missing: the row of docs/iam.md.

use std::collections::BTreeSet;
use std::time::Duration;

use vcn::Family;

use super::scene::Scene;

const PAGE: &str = include_str!("../../../../docs/iam.md");
/// No condition names these. Without shapes, OCI's own refusal shows that an instance is full. Lists also show the end of a
/// detach. Single requests replace bulk requests. The fleet requests the plugins of nodes, and NodeTasks name the restart of an
/// instance.
const UNNAMED_OPERATIONS: [&str; 8] = [
    "BulkCreateIpv6s",
    "BulkCreatePrivateIps",
    "GetVnicAttachment",
    "InstanceAction",
    "ListComputeHosts",
    "ListInstanceAgentPlugins",
    "ListInstanceMaintenanceEvents",
    "ListShapes",
];

/// The second column of the table of permissions.
fn operations() -> BTreeSet<&'static str> {
    let table = PAGE.split("| call |").nth(1).unwrap().split("\n\n").next().unwrap();
    let cells = table.lines().skip(2).filter_map(|line| line.split('|').nth(2));
    cells.flat_map(|cell| cell.split(',')).map(str::trim).filter(|word| !word.is_empty()).collect()
}

/// A scene whose next reconcile needs this call.
async fn scene_of(operation: &str) -> Scene {
    let scene = Scene::with(4);
    scene.wants("a");
    if ["GetInstance", "GetSubnet", "ListVnicAttachments", "AttachVnic"].contains(&operation) {
        return scene;
    }
    if operation.starts_with("Delete") {
        scene.change("a", |object| (object.spec.vnic.ipv4_count, object.spec.vnic.ipv6_count) = (1, 1));
    }
    scene.settle().await;
    if operation == "DetachVnic" {
        scene.delete("a");
    } else if operation == "ListIpv6s" {
        let foreign = oci::CreateAddress { vnic_id: Some(scene.vnic().await.id), ..oci::CreateAddress::default() };
        let token = oci::RetryToken::derive(&["foreign"]);
        scene.cloud.create_address(Family::Ipv6, &foreign, &token).await.unwrap();
    }
    scene.change("a", |object| {
        let vnic = &mut object.spec.vnic;
        match operation {
            "UpdateVnic" => vnic.skip_source_dest_check = true,
            "CreatePrivateIp" => vnic.ipv4_count = 1,
            "CreateIpv6" => vnic.ipv6_count = 1,
            "DeletePrivateIp" => vnic.ipv4_count = 0,
            "DeleteIpv6" => vnic.ipv6_count = 0,
            _ => {}
        }
    });
    scene
}

#[tokio::test(start_paused = true)]
async fn the_condition_names_each_refused_call() {
    let all = operations();
    assert!(all.len() >= 17 && UNNAMED_OPERATIONS.iter().all(|operation| all.contains(operation)), "{all:?}");
    for operation in all.into_iter().filter(|operation| !UNNAMED_OPERATIONS.contains(operation)) {
        let scene = scene_of(operation).await;
        scene.refuse(20, operation, (404, "NotAuthorizedOrNotFound"));
        let mut cause = Vec::new();
        // An attached VNIC is reported at the second reconcile.
        for _ in 0..2 {
            scene.reconcile().await;
            scene.cloud.settle();
            cause.push(scene.message("a"));
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        let words = format!("{operation}: 404 NotAuthorizedOrNotFound");
        let other = format!("{operation} is answered 404");
        let is_named = |cause: &String| cause.starts_with(&words) || cause.contains(&other);
        assert!(cause.iter().any(is_named), "{operation}: {cause:?}");
        assert!(scene.cloud.attachments().len() <= 2, "{operation}: the primary one, and one of it");
    }
}
