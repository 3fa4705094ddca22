//! A controller that is killed every few seconds, and an OCI that refuses, delays and loses answers: in the end each request
//! has exactly one VNIC.

use std::time::{Duration, Instant};

use api::VnicAttachment;
use sandbox::Operation::{
    AttachVnic, BulkCreateAddresses, CreateAddress, DeleteAddress, DetachVnic, GetInstance, GetSubnet, GetVnic,
    ListAddresses, ListVnicAttachments, UpdateVnic,
};
use sandbox::{ApiFault, ApiFaultKind, OciSettings, Operation};
use serde_json::json;

use crate::scene::{Scene, reason};

const NAMES: [&str; 2] = ["one", "two"];

/// After this many kills, lives and Leases are longer.
const KILLS: u32 = 20;

/// The size, and the time limit.
struct Size {
    instances: u32,
    each: u32,
    life: Duration,
    most: Duration,
}

/// The whole with SOAK=1; otherwise what fits into a minute.
fn size() -> Size {
    if std::env::var_os("SOAK").is_some() {
        Size { instances: 20, each: 10, life: Duration::from_secs(4), most: Duration::from_mins(15) }
    } else {
        Size { instances: 8, each: 5, life: Duration::from_secs(3), most: Duration::from_mins(8) }
    }
}

/// Additional refusals per operation, and their share. All of them pass, so a retry succeeds.
const REFUSALS: [(&[Operation], u16, &str, f64); 6] = [
    // Another change of the instance is in progress.
    (&[AttachVnic, DetachVnic, UpdateVnic, CreateAddress, DeleteAddress], 409, "IncorrectState", 0.05),
    // The same as OCI has also reported it ("is currently being modified, try again later"): no blind repetition.
    (&[AttachVnic, DetachVnic, UpdateVnic, CreateAddress, BulkCreateAddresses], 409, "Conflict", 0.04),
    (&[AttachVnic, CreateAddress, BulkCreateAddresses], 409, "NotAuthorizedOrResourceAlreadyExists", 0.02),
    (&[UpdateVnic], 412, "NoEtagMatch", 0.30),
    // A 404 although resource and policy exist.
    (&[GetInstance, ListVnicAttachments, GetVnic, GetSubnet, ListAddresses], 404, "NotAuthorizedOrNotFound", 0.01),
    (&[AttachVnic, DetachVnic, UpdateVnic, CreateAddress], 404, "NotAuthorizedOrNotFound", 0.02),
];

/// A tenth is throttled, a twentieth fails or is not answered, mostly after it was carried out.
fn inject_faults(scene: &Scene) {
    // The first ones certainly, so that it happened.
    scene.cloud.inject(ApiFault::new(ApiFaultKind::GiveUp).of(AttachVnic).times(3));
    scene.cloud.inject(ApiFault::new(ApiFaultKind::GiveUp).of(DetachVnic).times(3));
    scene.cloud.inject(ApiFault::refuse(429, "TooManyRequests").share(0.10));
    scene.cloud.inject(ApiFault::refuse(503, "ServiceUnavailable").share(0.02));
    scene.cloud.inject(ApiFault::new(ApiFaultKind::FailAfterwards).share(0.02));
    scene.cloud.inject(ApiFault::new(ApiFaultKind::LoseRequest).share(0.01));
    scene.cloud.inject(ApiFault::new(ApiFaultKind::LoseAnswer).share(0.02));
    scene.cloud.inject(ApiFault::new(ApiFaultKind::Delay(Duration::from_millis(200))).share(0.05));
    // Longer than a Lease: a waiting request seldom ends in the process that sent it.
    scene.cloud.inject(ApiFault::new(ApiFaultKind::Delay(Duration::from_millis(1500))).share(0.01));
    for (operations, status, code, share) in REFUSALS {
        for operation in operations {
            scene.cloud.inject(ApiFault::refuse(status, code).of(*operation).share(share));
        }
    }
    for operation in [AttachVnic, DetachVnic] {
        scene.cloud.inject(ApiFault::new(ApiFaultKind::GiveUp).of(operation).share(0.05));
    }
}

/// Each kind of failure occurred. The rarest is expected fifteen times.
fn assert_faults_occurred(scene: &Scene) {
    const WRITES: [Operation; 6] =
        [AttachVnic, DetachVnic, UpdateVnic, CreateAddress, BulkCreateAddresses, DeleteAddress];
    const READS: [Operation; 5] = [GetInstance, ListVnicAttachments, GetVnic, GetSubnet, ListAddresses];
    let answered = |operations: &[Operation], status| -> u64 {
        operations.iter().map(|operation| scene.cloud.answered(*operation, status)).sum()
    };
    // 0: the connection broke.
    for status in [0, 404, 429, 500, 503] {
        assert_ne!(answered(&READS, status) + answered(&WRITES, status), 0, "none was answered with {status}");
    }
    assert_ne!(answered(&WRITES, 409), 0);
    assert_ne!(answered(&[UpdateVnic], 412), 0);
}

/// Two controllers, of which one is killed after each `life`, until something is true.
async fn killed_until(scene: &Scene, size: &Size, what: &str, mut done: impl AsyncFnMut() -> bool) -> u32 {
    let began = Instant::now();
    let mut kills = 0;
    // A Lease of a second, and more after twenty kills, because a slow machine would never finish.
    let start =
        |name: &str, kills: u32| scene.controller_with(name, &[("LEASE_SECONDS", (1 + kills / KILLS).to_string())]);
    let mut both = NAMES.map(|name| start(name, kills));
    loop {
        // The first one soon: before that, nothing is ready.
        let until = Instant::now() + if kills == 0 { size.life / 4 } else { size.life * (1 + kills / KILLS) };
        while Instant::now() < until {
            // If this thread stood still, all may be ready before the first kill: then it happens afterwards.
            if done().await && kills > 0 {
                return kills;
            }
            // A controller that could not renew its Lease on a busy machine exits, and a kubelet starts it again.
            for (controller, name) in both.iter_mut().zip(NAMES) {
                if controller.ended().is_some() {
                    *controller = start(name, kills);
                }
            }
            assert!(began.elapsed() < size.most, "not within {:?}, after {kills} kills: {what}", size.most);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Mostly the leader.
        let victim = usize::from(kills % 4 == 3) ^ usize::from(!both[0].leads());
        both[victim].kill();
        both[victim] = start(NAMES[victim], kills);
        kills += 1;
    }
}

#[tokio::test]
async fn kills_and_failures_leave_exactly_the_requested_vnics() {
    let size = size();
    let settings = OciSettings {
        attaching: Duration::from_millis(300),
        detaching: Duration::from_millis(300),
        // Longer than an attach: a request with another token meanwhile would give a second VNIC.
        listed_after: Duration::from_millis(450),
        ..OciSettings::default()
    };
    let mut scene = Scene::with(size.instances, size.each + 1, settings).await;
    // Three polls are longer than the lag of lists, as with the real times.
    scene.environment.insert("POLL_SECONDS".to_owned(), "0.2".to_owned());
    inject_faults(&scene);
    for instance in 0..size.instances {
        for number in 0..size.each {
            scene.want(&format!("v{instance}-{number}"), instance, json!({ "ipv4Count": number % 3 })).await;
        }
    }
    let expected = usize::try_from(size.instances * size.each).unwrap();
    let began = Instant::now();
    // Users change requested objects: the same token goes with another body.
    let mut unchanged: Vec<String> = scene.all().await.into_iter().filter_map(|object| object.metadata.name).collect();
    let kills = killed_until(&scene, &size, "all are ready", async || {
        let all = scene.all().await;
        let begun =
            |name: &String| all.iter().any(|it| it.metadata.name.as_ref() == Some(name) && !reason(it).is_empty());
        if let Some(place) = unchanged.iter().position(begun) {
            scene.change(&unchanged.swap_remove(place), json!({ "freeformTags": { "mind": "changed" } })).await;
        }
        unchanged.is_empty() && all.iter().filter(|object| is_ready(object)).count() == expected
    })
    .await;
    println!("{expected} attached in {:?}, {kills} kills", began.elapsed());
    let changed =
        scene.cloud.attachments().into_iter().filter(|it| it.state == "ATTACHED" && it.tags.contains_key("mind"));
    assert_eq!(changed.count(), expected);
    // Nothing is detached yet.
    assert!(scene.cloud.attachments().iter().any(|it| it.state == "DETACHED"), "no attach was accepted and dropped");
    scene.assert_exact().await;
    let nodes = (0..size.instances).map(|number| scene.vcn.node(&format!("node-{number}")).unwrap());
    let vnics: Vec<sandbox::Vnic> = nodes.flat_map(|node| node.vnics()).collect();
    for object in scene.all().await {
        let (count, status) = (object.spec.vnic.ipv4_count, object.status.unwrap());
        let vnic = vnics.iter().find(|vnic| Some(&vnic.id) == status.vnic_id.as_ref()).unwrap();
        let has: usize = vnic.secondary.iter().map(|(_, addresses)| addresses.len()).sum();
        assert_eq!(has, usize::from(count), "{vnic:?}");
    }
    for object in scene.all().await {
        scene.delete(object.metadata.name.as_deref().unwrap()).await;
    }
    let began = Instant::now();
    let kills = killed_until(&scene, &size, "all are gone", async || scene.all().await.is_empty()).await;
    println!("{expected} detached in {:?}, {kills} kills", began.elapsed());
    assert_eq!(scene.vnics(), Vec::<String>::new());
    assert_faults_occurred(&scene);
}

/// Ready in its present generation.
fn is_ready(object: &VnicAttachment) -> bool {
    let seen = object.status.as_ref().and_then(|status| status.observed_generation);
    reason(object) == "Ready" && seen == object.metadata.generation
}
