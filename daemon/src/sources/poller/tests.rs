//! A start while the metadata service is silent, with and without a cached copy.

use installer::Presence;
use ipam::BootId;
use vcn::{ATTACHMENTS_COPY_FILE, Instance, VNICS_COPY_FILE};

use super::*;
use crate::fixture::{instance, vm_vnics};
use crate::sources::cached_copy::CachedCopy;
use crate::sources::machine_copy::Machine;

/// How long the metadata service is silent until that is an error.
const DEADLINE: Duration = Duration::from_secs(30);

/// A metadata service that fails after the deadline, or answers at once.
struct Answers {
    is_silent: bool,
}

impl Answers {
    async fn give<T>(&self, answer: T) -> Result<T, imds::Error> {
        if !self.is_silent {
            return Ok(answer);
        }
        sleep(DEADLINE).await;
        Err(imds::Imds::check("silent").unwrap_err())
    }
}

impl Metadata for Answers {
    async fn instance(&self) -> Result<Instance, imds::Error> {
        self.give(instance()).await
    }

    async fn vnics(&self) -> Result<VnicList, imds::Error> {
        self.give(vm_vnics().into()).await
    }
}

/// Leaves the cached copy of an agent of this instance, of that boot.
fn leave_copy(data_dir: &std::path::Path, boot_id: &BootId) {
    let value = Machine { instance: Some(instance()), vnics: vm_vnics() };
    let copy = serde_json::json!({ "version": 1, "asOfUnixMillis": 0, "bootId": boot_id, "value": value });
    std::fs::write(data_dir.join(VNICS_COPY_FILE), copy.to_string()).unwrap();
}

/// When the facts were published, in milliseconds, and what they say of OKE's DaemonSet, if the answer that it is there comes
/// after `delay`.
async fn published_with_copy(delay: Duration) -> Vec<(u128, Presence)> {
    let folder = tempfile::tempdir().unwrap();
    leave_copy(folder.path(), &BootId::current().unwrap());
    published_by(Answers { is_silent: true }, folder.path(), delay).await
}

/// The same with this metadata service and this data directory.
async fn published_by(metadata: impl Metadata, folder: &std::path::Path, delay: Duration) -> Vec<(u128, Presence)> {
    let agent = crate::fixture::agent(&["--data-dir", folder.to_str().unwrap()]);
    let (answer, oke_cni) = watch::channel(None);
    let (facts, mut published) = watch::channel(NodeFacts::default());
    let begun = tokio::time::Instant::now();
    let watched = async {
        let mut times = Vec::new();
        while begun.elapsed() < DEADLINE && published.changed().await.is_ok() {
            times.push((begun.elapsed().as_millis(), published.borrow_and_update().oke_daemonset));
        }
        times
    };
    let answered = async {
        sleep(delay).await;
        answer.send_replace(Some(Presence::Present));
        std::future::pending::<Infallible>().await
    };
    let npn = NpnSource::File(folder.join("nativepodnetwork.json"));
    let attachments = AttachmentSource::Cache(CachedCopy::new(folder, ATTACHMENTS_COPY_FILE));
    tokio::select! {
        times = watched => times,
        () = run(metadata, ClusterSources { npn, attachments }, &agent, facts, oke_cni) => panic!("it ended"),
        never = answered => match never {},
    }
}

/// The timer counts whole milliseconds.
fn rounded(times: Vec<(u128, Presence)>) -> Vec<(u128, Presence)> {
    times.into_iter().map(|(at, seen)| (at / 10 * 10, seen)).collect()
}

#[test]
fn silence_is_an_error_within_fifty_seconds() {
    let resync = crate::fixture::settings(&[]).resync;
    assert!(resync + imds::POLICY.deadline <= Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn cached_copy_waits_for_the_answer_about_okes_cni() {
    for (delay, first) in [(100, 300), (700, 700)] {
        let times = rounded(published_with_copy(Duration::from_millis(delay)).await);
        assert_eq!(times, [(first, Presence::Present), (30_000, Presence::Present)], "{delay}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_answer_about_okes_cni_is_published_during_metadata_silence() {
    let times = rounded(published_with_copy(Duration::from_secs(5)).await);
    assert_eq!(times, [(1_000, Presence::Unknown), (5_000, Presence::Present), (30_000, Presence::Present)]);
}

#[tokio::test(start_paused = true)]
async fn new_node_waits_for_the_answer_about_okes_cni() {
    let folder = tempfile::tempdir().unwrap();
    assert_awaits_oke_cni(folder.path()).await;
}

#[tokio::test(start_paused = true)]
async fn copy_of_another_machine_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    leave_copy(folder.path(), &BootId::from_text("another"));
    assert_awaits_oke_cni(folder.path()).await;
}

/// Each time with the present content of the folder.
async fn assert_awaits_oke_cni(folder: &std::path::Path) {
    let path = folder.join(VNICS_COPY_FILE);
    let kept = std::fs::read(&path).ok();
    for (delay, seen) in [(100, Presence::Present), (9_000, Presence::Present), (20_000, Presence::Unknown)] {
        let times = rounded(published_by(Answers { is_silent: false }, folder, Duration::from_millis(delay)).await);
        let at = u128::from(delay).min(FIRST_ON_A_NODE.as_millis());
        assert_eq!(times.first(), Some(&(at, seen)), "{delay}");
        match &kept {
            Some(kept) => std::fs::write(&path, kept).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn new_node_learns_of_okes_cni_during_metadata_silence() {
    let (present, unknown) = (Presence::Present, Presence::Unknown);
    for (delay, expected) in [
        (100, vec![(2_200, present), (30_000, present)]),
        (9_000, vec![(9_200, present), (30_000, present)]),
        (20_000, vec![(11_200, unknown), (20_000, present), (30_000, present)]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let times =
            rounded(published_by(Answers { is_silent: true }, folder.path(), Duration::from_millis(delay)).await);
        assert_eq!(times, expected, "{delay}");
        assert!(times[0].0 < PUBLISHED.as_millis(), "the first reconcile would not wait for it");
    }
}
