//! The roles of manifests/base/controller.yaml and probe-pods.yaml: with only its own account's token, the controller does all
//! its work; without any one verb on any one resource, it does not. Its only test takes longest of all, and starts first by its
//! name.

mod cluster;
mod process;
mod roles;
mod story;

use std::time::Duration;

use cluster::Cluster;
use roles::{Rights, each_right};
use story::{Outcome, play};

/// Many times the duration of a part of the story on a busy machine.
const PATIENT: Duration = Duration::from_secs(180);

/// The attempts: a short Lease is lost while the machine stands still, and the test does not restart the controller.
const TRIES: usize = 3;

/// The story, repeated if the machine stood still.
async fn outcome_of(cluster: &Cluster) -> Outcome {
    let mut outcome = play(cluster, PATIENT).await;
    for _ in 1..TRIES {
        if outcome.missing.is_none() || !outcome.log.contains("the Lease is lost") {
            break;
        }
        outcome = play(cluster, PATIENT).await;
    }
    outcome
}

/// The story with all rights; the duration of its slowest part.
async fn whole(cluster: &Cluster) -> Duration {
    let whole = outcome_of(cluster).await;
    assert_eq!(whole.missing, None, "with all rights\n{}", whole.log);
    let refusals: Vec<&str> = whole.log.lines().filter(|line| line.contains("is forbidden")).collect();
    assert_eq!(refusals, [""; 0], "with all rights");
    whole.slowest
}

#[tokio::test]
async fn the_roles_suffice_and_every_right_is_needed() {
    let cluster = Cluster::new().await;
    let all = Rights::of_the_manifest();
    cluster.grant(&all).await;
    // Without NativePodNetworks the right to read them is not needed, and nothing is refused.
    let before = whole(&cluster).await;
    cluster.serve_pod_networks().await;
    let slowest = before.max(whole(&cluster).await);
    let impatient = (slowest * 3 / 2).max(Duration::from_secs(2));
    for right in each_right(&all) {
        cluster.grant(&all.without(&right)).await;
        let refused = right.refusal();
        let mut outcome = play(&cluster, impatient).await;
        // The machine was busier than before.
        if outcome.missing.is_some() && !outcome.log.contains(&refused) {
            outcome = outcome_of(&cluster).await;
        }
        let Some(missing) = outcome.missing else { panic!("nothing is missed without: {right}") };
        // Because of this right, not by chance.
        assert!(outcome.log.contains(&refused), "without {right}, not {missing}; no {refused:?} in\n{}", outcome.log);
        println!("without {right}: not {missing}");
    }
}
