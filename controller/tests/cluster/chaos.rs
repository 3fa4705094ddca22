//! A controller that is killed every few seconds, a cloud that refuses, answers late and loses answers: in the end there is
//! what was asked for, each once.

use std::time::{Duration, Instant};

use sandbox::{ApiFault, ApiFaultKind, OciSettings};
use serde_json::json;

use crate::scene::{Scene, reason};

const NAMES: [&str; 2] = ["one", "two"];

/// How much, and how long it may take.
struct Size {
    instances: u32,
    each: u32,
    life: Duration,
    most: Duration,
}

/// All of it with SOAK=1; else what fits into a minute.
fn size() -> Size {
    if std::env::var_os("SOAK").is_some() {
        Size { instances: 20, each: 10, life: Duration::from_secs(4), most: Duration::from_mins(15) }
    } else {
        Size { instances: 8, each: 5, life: Duration::from_secs(3), most: Duration::from_mins(8) }
    }
}

/// A tenth is refused for being too many, a twentieth fails, and of that a part after it was done.
fn bad_weather(scene: &Scene) {
    scene.cloud.inject(ApiFault::refuse(429, "TooManyRequests").share(0.10));
    scene.cloud.inject(ApiFault::refuse(503, "ServiceUnavailable").share(0.02));
    scene.cloud.inject(ApiFault::new(ApiFaultKind::FailAfterwards).share(0.02));
    scene.cloud.inject(ApiFault::new(ApiFaultKind::LoseAnswer).share(0.01));
    scene.cloud.inject(ApiFault::new(ApiFaultKind::Delay(Duration::from_millis(200))).share(0.05));
}

/// Two controllers, of which one is killed after each `life`, until something is so.
async fn killed_until(scene: &Scene, size: &Size, what: &str, mut done: impl AsyncFnMut() -> bool) -> u32 {
    let began = Instant::now();
    let mut kills = 0;
    let mut both = NAMES.map(|name| scene.controller(name));
    loop {
        // The first one soon: nobody is through before.
        let until = Instant::now() + if kills == 0 { size.life / 4 } else { size.life };
        while Instant::now() < until {
            if done().await {
                assert!(kills > 0, "nobody was killed before {what}");
                return kills;
            }
            // Who could not renew its lease in time, on a busy machine, ends, and a kubelet starts it again.
            for (controller, name) in both.iter_mut().zip(NAMES) {
                if controller.ended().is_some() {
                    *controller = scene.controller(name);
                }
            }
            assert!(began.elapsed() < size.most, "not within {:?}, after {kills} kills: {what}", size.most);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Mostly the one that works.
        let victim = usize::from(kills % 4 == 3) ^ usize::from(!both[0].leads());
        both[victim].kill();
        both[victim] = scene.controller(NAMES[victim]);
        kills += 1;
    }
}

#[tokio::test]
async fn whoever_is_killed_each_request_has_one_vnic_and_each_deletion_leaves_none() {
    let size = size();
    let settings = OciSettings {
        attaching: Duration::from_millis(300),
        detaching: Duration::from_millis(300),
        // Longer than attaching takes: who asks again meanwhile, with another token, gets a second VNIC.
        listed_after: Duration::from_millis(450),
        ..OciSettings::default()
    };
    let mut scene = Scene::with(size.instances, size.each + 1, settings).await;
    scene.environment.insert("LEASE_SECONDS".to_owned(), "1".to_owned());
    // Three polls are longer than lists are behind, as with the real times.
    scene.environment.insert("POLL_SECONDS".to_owned(), "0.2".to_owned());
    bad_weather(&scene);
    for instance in 0..size.instances {
        for number in 0..size.each {
            scene.want(&format!("v{instance}-{number}"), instance, json!({ "ipv4Count": number % 3 })).await;
        }
    }
    let wanted = usize::try_from(size.instances * size.each).unwrap();
    let began = Instant::now();
    let kills = killed_until(&scene, &size, "all are ready", async || {
        let all = scene.all().await;
        all.iter().filter(|object| reason(object) == "Ready").count() == wanted
    })
    .await;
    println!("{wanted} attached in {:?}, {kills} kills", began.elapsed());
    scene.assert_exact().await;
    let nodes = (0..size.instances).map(|number| scene.vcn.node(&format!("node-{number}")).unwrap());
    let vnics: Vec<sandbox::Vnic> = nodes.flat_map(|node| node.vnics()).collect();
    for object in scene.all().await {
        let (wanted, status) = (object.spec.vnic.ipv4_count, object.status.unwrap());
        let vnic = vnics.iter().find(|vnic| Some(&vnic.id) == status.vnic_id.as_ref()).unwrap();
        let has: usize = vnic.secondary.iter().map(|(_, addresses)| addresses.len()).sum();
        assert_eq!(has, usize::from(wanted), "{vnic:?}");
    }
    for object in scene.all().await {
        scene.delete(object.metadata.name.as_deref().unwrap()).await;
    }
    let began = Instant::now();
    let kills = killed_until(&scene, &size, "all are gone", async || scene.all().await.is_empty()).await;
    println!("{wanted} detached in {:?}, {kills} kills", began.elapsed());
    assert_eq!(scene.vnics(), Vec::<String>::new());
}
