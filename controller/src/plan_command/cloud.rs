//! The plan in OCI for each instance. Its client can only read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::{AttachmentReason, Reason, VnicAttachment};
use backoff::Backoff;
use futures::{StreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use oci::CloudView;
use resident::logging::chain;
use tokio::time::{Instant, timeout_at};
use vcn::Ocid;

use super::future::Objects;
use crate::attachment::mark::Mark;
use crate::attachment::observe::cache::Cache;
use crate::attachment::observe::pod_network::{KubePodNetworks, PodNetwork};
use crate::attachment::observe::read::{Question, read};
use crate::attachment::plan::{PlanInput, Progress, plan};
use crate::attachment::step::Action;

/// Instances that are read at once.
const AT_ONCE: usize = 8;

#[derive(Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    instance: String,
    /// The VnicAttachment, if the line is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    /// The step's name as in metrics; or the reason why there is none.
    pub(super) word: &'static str,
    pub(super) text: String,
    /// Whether the step changes something.
    pub(super) changes: bool,
}

/// What was read in time.
#[derive(Debug, Default)]
pub(super) struct CloudPlan {
    /// In the order of the instances' OCIDs.
    pub(super) lines: Vec<Line>,
    /// How many instances were not read in time.
    pub(super) unread: usize,
}

/// Reads every instance and plans, until the deadline.
pub(super) async fn look(
    cloud: &CloudView,
    pod_networks: &KubePodNetworks,
    mark: &Mark,
    objects: &Objects,
    until: Instant,
) -> CloudPlan {
    let reader = InstanceReader { cloud, pod_networks, mark, cache: Cache::default() };
    let questions = objects.iter().map(|(instance, objects)| {
        let lines = reader.lines(instance, objects);
        async move { (instance, lines.await) }
    });
    let lines = within(questions, until).await;
    CloudPlan { unread: objects.len() - lines.len(), lines: lines.into_values().flatten().collect() }
}

/// The answers that come in time, by key.
pub(super) async fn within<K: Ord, A>(
    questions: impl Iterator<Item: Future<Output = (K, A)>>,
    until: Instant,
) -> BTreeMap<K, A> {
    let mut answers = BTreeMap::new();
    let mut stream = pin!(stream::iter(questions).buffer_unordered(AT_ONCE));
    while let Ok(Some((question, answer))) = timeout_at(until, stream.next()).await {
        answers.insert(question, answer);
    }
    answers
}

/// Reads instances, for the plan of each.
struct InstanceReader<'a> {
    cloud: &'a CloudView,
    pod_networks: &'a KubePodNetworks,
    mark: &'a Mark,
    cache: Cache,
}

impl InstanceReader<'_> {
    async fn lines(&self, instance: &Ocid, objects: &[Arc<VnicAttachment>]) -> Vec<Line> {
        let Self { cloud, pod_networks, mark, cache } = self;
        // Only the controller knows its recent requests; a detach that lists show is followed all the same.
        let question = Question { instance, mark, objects, detaching: &BTreeSet::new() };
        let line = |object: Option<&str>, word, text: String, changes| Line {
            instance: instance.to_string(),
            object: object.map(str::to_owned),
            word,
            text,
            changes,
        };
        let mut observed = match read(cloud, cache, question).await {
            Ok(observed) => observed,
            Err(error) => {
                return vec![line(None, "Unreadable", format!("{instance} cannot be read: {}", chain(&error)), false)];
            }
        };
        // The controller remembers earlier attempts; this process knows only what is visible now.
        let (unreadable, retry_states) = (BTreeSet::new(), HashMap::new());
        let input = PlanInput {
            objects,
            mark,
            unreadable: &unreadable,
            retry_states: &retry_states,
            progress: &Progress::default(),
            read_at: Instant::now(),
            pauses: Backoff { first: Duration::ZERO, cap: Duration::ZERO },
            proof: Duration::ZERO,
            now: Timestamp::now(),
        };
        let mut planned = plan(&input, &observed);
        if planned.needs_pod_network {
            let pod_network = pod_networks.pod_network(instance).await;
            observed.pod_network = Some(pod_network.unwrap_or_else(|why| PodNetwork::Unreadable(why.words)));
            planned = plan(&input, &observed);
        }
        // Finalizers are set together with the other steps.
        let steps = planned.steps.iter().filter(|step| !matches!(step.action, Action::AddFinalizer));
        let mut lines: Vec<Line> =
            steps.map(|step| line(Some(&step.object), step.action.kind(), step.to_string(), true)).collect();
        for (object, planned_status) in &planned.statuses {
            let said = planned_status.ready.as_ref().unwrap_or(&planned_status.attached);
            let has_step =
                planned.steps.iter().any(|step| step.object == *object && step.action != Action::AddFinalizer);
            if !has_step && !matches!(said.reason, AttachmentReason::Ready | AttachmentReason::Attached) {
                let text = format!("{object}: nothing: {}: {}", said.reason.as_str(), said.message);
                lines.push(line(Some(object), said.reason.as_str(), text, false));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_in_time_are_kept() {
        let second = Duration::from_secs(1);
        let questions = |count: usize| {
            (0..count).rev().map(async |number| {
                sleep(second).await;
                (number, number * 2)
            })
        };
        let answers = within(questions(20), Instant::now() + second * 3 / 2).await;
        let last: BTreeMap<usize, usize> = (20 - AT_ONCE..20).map(|number| (number, number * 2)).collect();
        assert_eq!(answers, last);
        assert_eq!(within(questions(20), Instant::now() + second * 4).await.len(), 20);
    }
}
