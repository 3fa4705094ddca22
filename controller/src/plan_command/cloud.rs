//! What would be done in the cloud for each instance. Is given what can only read.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::{AttachmentReason, Reason, VnicAttachment};
use futures::{StreamExt, stream};
use oci::CloudView;
use resident::logging::chain;
use vcn::Ocid;

use super::future::Objects;
use crate::attachment::cache::Cache;
use crate::attachment::mark::Mark;
use crate::attachment::observed::{Question, read};
use crate::attachment::plan::{Wanted, plan};
use crate::attachment::step::Action;

/// Instances that are read at once.
const AT_ONCE: usize = 8;

/// What one object comes to.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    /// The instance.
    instance: String,
    /// The VnicAttachment, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    /// What is done, as metrics say it; or the reason why nothing is.
    pub(super) word: &'static str,
    /// In words.
    pub(super) text: String,
    /// Whether something would be changed.
    pub(super) changes: bool,
}

/// Reads every instance and plans.
pub(super) async fn look<C: CloudView>(cloud: &C, mark: &Mark, objects: &Objects) -> Vec<Line> {
    let cache = Cache::default();
    let lines = objects.iter().map(|(instance, objects)| of_instance(cloud, &cache, mark, instance, objects));
    let lines: Vec<Vec<Line>> = stream::iter(lines).buffered(AT_ONCE).collect().await;
    lines.into_iter().flatten().collect()
}

async fn of_instance<C: CloudView>(
    cloud: &C,
    cache: &Cache,
    mark: &Mark,
    instance: &Ocid,
    objects: &[Arc<VnicAttachment>],
) -> Vec<Line> {
    let subnets: BTreeSet<Ocid> = objects.iter().map(|object| object.spec.vnic.subnet_id.clone()).collect();
    let ipv6 = objects.iter().any(|object| object.spec.vnic.ipv6_count > 0);
    let present = objects.iter().filter_map(|object| object.metadata.uid.clone()).collect();
    let question = Question { instance, mark, subnets: &subnets, ipv6, present: &present, foreign: &HashSet::new() };
    let line = |object: Option<&str>, word, text: String, changes| Line {
        instance: instance.to_string(),
        object: object.map(str::to_owned),
        word,
        text,
        changes,
    };
    let observed = match read(cloud, cache, question).await {
        Ok(observed) => observed,
        Err(error) => {
            return vec![line(None, "Unreadable", format!("{instance} cannot be read: {}", chain(&error)), false)];
        }
    };
    // What one process remembers of others' doings, this one cannot know: it says what follows from what is there.
    let wanted = Wanted { objects, mark, remembered: &HashMap::new(), proof: Duration::ZERO };
    let planned = plan(&wanted, &observed);
    // Finalizers come and go with the rest.
    let steps = planned.steps.iter().filter(|step| !matches!(step.action, Action::AddFinalizer));
    let mut lines: Vec<Line> =
        steps.map(|step| line(Some(&step.object), step.action.kind(), step.to_string(), true)).collect();
    for (object, verdict) in &planned.verdicts {
        let said = verdict.ready.as_ref().unwrap_or(&verdict.attached);
        let is_told = planned.steps.iter().any(|step| step.object == *object && step.action != Action::AddFinalizer);
        if !is_told && !matches!(said.reason, AttachmentReason::Ready | AttachmentReason::Attached) {
            let text = format!("{object}: nothing: {}: {}", said.reason.as_str(), said.message);
            lines.push(line(Some(object), said.reason.as_str(), text, false));
        }
    }
    lines
}
