//! The process is killed at each call to OCI and each write, before and after it is carried out, and another one finishes the
//! work. Or a write is refused, and the same process or another one finishes.

use std::time::Duration;

use api::{OnDelete, RELEASED_TAG};
use tokio::time::{sleep, timeout};
use vcn::Family;

use super::objects::Refusals;
use super::scene::Scene;
use crate::work::NextReconcile;

/// The work at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// A VNIC and its addresses are created.
    Attach,
    /// The same, and the object is deleted before another process takes over.
    AttachAndDelete,
    /// They are created again, because they were detached.
    AttachAgain,
    Detach,
    Leave,
}

const STORIES: [Story; 5] = [Story::Attach, Story::AttachAndDelete, Story::AttachAgain, Story::Detach, Story::Leave];

/// Answers of the API server: a conflict, and one of all the others, which are treated alike.
const REFUSALS: [u16; 2] = [409, 500];

/// The place of the kill.
#[derive(Clone, Copy, Debug)]
enum KillPoint {
    Call(usize),
    Write(usize),
}

impl Story {
    /// The calls before it.
    async fn begin(self) -> Scene {
        let scene = Scene::with(4);
        scene.cloud.lag_lists(1);
        scene.wants("a");
        scene.change("a", |object| {
            object.spec.vnic.ipv4_count = 3;
            if self == Self::Leave {
                object.spec.vnic.on_delete = OnDelete::Orphan;
                object.spec.vnic.freeform_tags = [("team".to_owned(), "x".to_owned())].into();
            }
        });
        if !matches!(self, Self::Attach | Self::AttachAndDelete) {
            scene.settle().await;
        }
        match self {
            Self::Attach | Self::AttachAndDelete => {}
            Self::AttachAgain => scene.cloud.detach_behind(&scene.live()[0].id),
            Self::Detach | Self::Leave => scene.delete("a"),
        }
        scene
    }

    /// Which of its calls to OCI change something, or in a soak (`SOAK=1`) all of them. A kill before a read leaves what a kill
    /// after the last change left.
    async fn changes(self) -> Vec<usize> {
        let scene = self.begin().await;
        let before = scene.cloud.calls().len();
        scene.settle().await;
        let calls = scene.cloud.calls().into_iter().skip(before).enumerate();
        let is_change = |operation: &str| !operation.starts_with("Get") && !operation.starts_with("List");
        let is_soak = std::env::var_os("SOAK").is_some();
        calls.filter(|(_, (operation, _))| is_soak || is_change(operation)).map(|(number, _)| number).collect()
    }

    async fn check(self, scene: &Scene, when: &str) {
        let live = scene.live();
        match self {
            Self::Attach | Self::AttachAgain => {
                assert_eq!((live.len(), &*scene.ready("a")), (1, "True Ready"), "{when}");
                assert_eq!(scene.extra_addresses(Family::Ipv4).await.len(), 3, "{when}");
            }
            Self::Detach | Self::AttachAndDelete => assert_eq!((live.len(), scene.exists("a")), (0, false), "{when}"),
            Self::Leave => {
                assert_eq!((live.len(), scene.exists("a"), scene.count("DetachVnic")), (1, false, 0), "{when}");
                let left =
                    [("team", "x"), (RELEASED_TAG, "uid-a")].map(|(key, value)| (key.to_owned(), value.to_owned()));
                assert_eq!(scene.vnic().await.freeform_tags, left.into(), "{when}");
            }
        }
    }
}

/// Returns whether this point was reached.
async fn killed(story: Story, at: KillPoint, done: bool) -> bool {
    let mut scene = story.begin().await;
    match at {
        KillPoint::Call(number) => scene.cloud.halt(number, done),
        KillPoint::Write(number) => *scene.objects.halt.lock().unwrap() = Some((number, done)),
    }
    let mut killed = false;
    let mut ended = false;
    for _ in 0..30 {
        match timeout(Duration::from_mins(1), scene.reconcile()).await {
            Err(_) => {
                killed = true;
                scene.restart();
                if story == Story::AttachAndDelete {
                    scene.delete("a");
                }
            }
            Ok(NextReconcile::Settled(_) | NextReconcile::Stuck(_) | NextReconcile::Gone) => {
                ended = true;
                break;
            }
            Ok(NextReconcile::Soon(_) | NextReconcile::BackOff(_) | NextReconcile::Failed) => {}
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

/// Returns whether this write was reached. It is refused `times` times.
async fn refused(story: Story, write: usize, code: u16, times: usize, restarts: bool) -> bool {
    let mut scene = story.begin().await;
    *scene.objects.refuse.lock().unwrap() = Some(Refusals { after: write, times, code });
    let when = format!("{story:?}, write {write} refused {times} times with {code}, restarts: {restarts}");
    let left = |scene: &Scene| scene.objects.refuse.lock().unwrap().map_or(0, |left| left.times);
    let mut ended = false;
    for look in 0..40 {
        if look == 3 && story == Story::AttachAndDelete {
            scene.delete("a");
        }
        let before = left(&scene);
        let next = scene.reconcile().await;
        assert!(scene.live().len() <= 1, "{when}: {:?}", scene.calls());
        ended = matches!(next, NextReconcile::Settled(_) | NextReconcile::Stuck(_) | NextReconcile::Gone)
            && (story != Story::AttachAndDelete || look >= 3);
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
async fn any_refused_write_leads_to_the_same_end() {
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
async fn any_kill_leads_to_the_same_end() {
    for story in STORIES {
        let changes = story.changes().await;
        assert!(!changes.is_empty(), "{story:?} changes nothing");
        for at in changes.into_iter().map(KillPoint::Call) {
            assert!(
                killed(story, at, true).await && killed(story, at, false).await,
                "{story:?} was not killed at {at:?}"
            );
        }
        let mut writes = 0;
        while killed(story, KillPoint::Write(writes), true).await
            && killed(story, KillPoint::Write(writes), false).await
        {
            writes += 1;
        }
        assert!(writes > 0, "{story:?} was not killed");
    }
}
