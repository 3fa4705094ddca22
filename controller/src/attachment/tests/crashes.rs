//! The process is killed between any two instructions that matter: at each call to the cloud and each write, before it is
//! carried out and after. Another one finishes the work. Or a write is refused, and the same one does, or another.

use std::time::Duration;

use api::{OnDelete, UID_TAG};
use tokio::time::{sleep, timeout};

use super::objects::Refusals;
use super::scene::Scene;
use crate::work::Next;

/// What is being done when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// A VNIC and its addresses are made.
    Attach,
    /// The same, and the object is deleted before anybody takes over.
    Forsake,
    /// They are made anew, for somebody took them away.
    AttachAgain,
    /// They go.
    Detach,
    /// They are left to others.
    Leave,
}

const STORIES: [Story; 5] = [Story::Attach, Story::Forsake, Story::AttachAgain, Story::Detach, Story::Leave];

/// What the API server answers: somebody else wrote, a right is missing, the object is not as it should be, it is out of order.
const REFUSALS: [u16; 4] = [409, 403, 422, 500];

/// Where it happens.
#[derive(Clone, Copy, Debug)]
enum At {
    Call(usize),
    Write(usize),
}

impl Story {
    /// What went before.
    async fn begin(self) -> Scene {
        let scene = Scene::with(4);
        scene.cloud.lag_lists(1);
        scene.wants("a");
        scene.change("a", |object| {
            object.spec.vnic.ipv4_count = 3;
            if self == Self::Leave {
                object.spec.vnic.on_delete = OnDelete::Orphan;
            }
        });
        if !matches!(self, Self::Attach | Self::Forsake) {
            scene.settle().await;
        }
        match self {
            Self::Attach | Self::Forsake => {}
            Self::AttachAgain => scene.cloud.detach_behind(&scene.live()[0].id),
            Self::Detach | Self::Leave => scene.delete("a"),
        }
        scene
    }

    async fn check(self, scene: &Scene, when: &str) {
        let live = scene.live();
        match self {
            Self::Attach | Self::AttachAgain => {
                assert_eq!((live.len(), scene.told("a")[1].as_str()), (1, "True Ready"), "{when}");
                assert_eq!(scene.addresses_beside().await, 3, "{when}");
            }
            Self::Detach | Self::Forsake => assert_eq!((live.len(), scene.exists("a")), (0, false), "{when}"),
            Self::Leave => {
                assert_eq!((live.len(), scene.exists("a"), scene.count("DetachVnic")), (1, false, 0), "{when}");
                assert!(!scene.vnic().await.freeform_tags.contains_key(UID_TAG), "{when}");
            }
        }
    }
}

/// Returns whether it came to that point.
async fn killed(story: Story, at: At, done: bool) -> bool {
    let mut scene = story.begin().await;
    match at {
        At::Call(number) => scene.cloud.halt(number, done),
        At::Write(number) => *scene.objects.halt.lock().unwrap() = Some((number, done)),
    }
    let mut killed = false;
    let mut ended = false;
    for _ in 0..30 {
        match timeout(Duration::from_mins(1), scene.look()).await {
            Err(_) => {
                killed = true;
                scene.restart();
                if story == Story::Forsake {
                    scene.delete("a");
                }
            }
            Ok(Next::Settled(_) | Next::Stuck(_) | Next::Gone) => {
                ended = true;
                break;
            }
            Ok(Next::Soon(_) | Next::BackOff(_) | Next::Failed) => {}
        }
        sleep(Duration::from_secs(3)).await;
        scene.cloud.settle();
    }
    let when = format!("{story:?}, killed at {at:?}, carried out: {done}");
    assert!(ended, "{when}: it does not settle: {:?}", scene.calls());
    if killed {
        story.check(&scene, &when).await;
    }
    killed
}

/// Returns whether it came to that write. A write that is refused may be refused again, `times` in all.
async fn refused(story: Story, write: usize, code: u16, times: usize, restarts: bool) -> bool {
    let mut scene = story.begin().await;
    *scene.objects.refuse.lock().unwrap() = Some(Refusals { after: write, times, code });
    let when = format!("{story:?}, write {write} refused {times} times with {code}, restarts: {restarts}");
    let left = |scene: &Scene| scene.objects.refuse.lock().unwrap().map_or(0, |left| left.times);
    let mut ended = false;
    for look in 0..40 {
        if look == 3 && story == Story::Forsake {
            scene.delete("a");
        }
        let before = left(&scene);
        let next = scene.look().await;
        assert!(scene.live().len() <= 1, "{when}: {:?}", scene.calls());
        ended =
            matches!(next, Next::Settled(_) | Next::Stuck(_) | Next::Gone) && (story != Story::Forsake || look >= 3);
        if ended {
            break;
        }
        if restarts && left(&scene) < before {
            scene.restart();
        }
        sleep(Duration::from_secs(3)).await;
        scene.cloud.settle();
    }
    assert!(ended, "{when}: it does not settle: {:?}", scene.calls());
    let came = left(&scene) < times;
    if came {
        story.check(&scene, &when).await;
    }
    came
}

#[tokio::test(start_paused = true)]
async fn whatever_write_is_refused_the_end_is_the_same() {
    for story in STORIES {
        for code in REFUSALS {
            for (times, restarts) in [(1, false), (5, false), (2, true)] {
                let mut writes = 0;
                while refused(story, writes, code, times, restarts).await {
                    writes += 1;
                }
                assert!(writes > 0, "{story:?}: {writes} writes were refused");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wherever_a_process_is_killed_the_next_one_comes_to_the_same_end() {
    for story in STORIES {
        for kind in [At::Call, At::Write] {
            let mut points = 0;
            while killed(story, kind(points), true).await && killed(story, kind(points), false).await {
                points += 1;
            }
            assert!(points > 0, "{story:?} was not killed");
        }
    }
}
