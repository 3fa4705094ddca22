//! NodeTasks that a command creates and watches. The task goes on when the command ends.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use api::node_task::TaskVerb;
use api::{CREATED_BY_ANNOTATION, NodeTask, NodeTaskSpec, NodeTaskStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use tokio::time::sleep;
use vcn::printable;

use crate::args::task::TaskRequest;
use crate::cluster::Cluster;

/// Between two reads of the status.
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// How long a controller may take to write the first status.
const FIRST_STATUS: Duration = Duration::from_secs(60);
/// The least and the most time between two lines of progress.
const PROGRESS_MIN: Duration = Duration::from_secs(2);
const PROGRESS_MAX: Duration = Duration::from_secs(30);
/// A finished task stays for so many seconds.
const TTL_SECONDS: u32 = 86_400;

/// Creates the task, and waits for its end unless the command does not.
///
/// # Errors
/// When it could not be created or read, or no controller adopted it.
pub(crate) async fn run(cluster: &Cluster, request: &TaskRequest) -> anyhow::Result<NodeTask> {
    let api: Api<NodeTask> = Api::all(cluster.client().await?);
    let task = task(request, &cluster.user().await)?;
    let created = api.create(&PostParams::default(), &task).await.context("creating a NodeTask")?;
    if request.nodes.no_wait {
        return Ok(created);
    }
    wait(&api, &created.name_any()).await
}

/// What was printed last, and when: standard error has a line after two seconds, at each change, and twice a minute.
struct Progress {
    shown: String,
    at: Instant,
}

impl Progress {
    fn show(&mut self, text: String) {
        let elapsed = self.at.elapsed();
        let is_due = text != self.shown && elapsed >= PROGRESS_MIN || elapsed >= PROGRESS_MAX;
        if is_due {
            eprintln!("kubectl oke-node: {}", printable(&text));
            *self = Self { shown: text, at: Instant::now() };
        }
    }
}

async fn wait(api: &Api<NodeTask>, name: &str) -> anyhow::Result<NodeTask> {
    let began = Instant::now();
    let mut progress = Progress { shown: String::new(), at: began };
    loop {
        let found = api.get_opt(name).await.with_context(|| format!("reading NodeTask {name}"))?;
        let task = found.with_context(|| format!("NodeTask {name} was deleted before it ended"))?;
        let status = task.status.clone().unwrap_or_default();
        if status.is_final() {
            return Ok(task);
        }
        if status.state.is_none() && began.elapsed() > FIRST_STATUS {
            bail!(
                "no controller started NodeTask {name}, which stays: check that a controller runs, with a version that supports NodeTasks"
            );
        }
        progress.show(format!("NodeTask {name}: {}", words(&status)));
        sleep(READ_INTERVAL).await;
    }
}

fn words(status: &NodeTaskStatus) -> String {
    match (status.state, status.message.as_str()) {
        (None, _) => "waiting for the controller".to_owned(),
        (Some(state), "") => state.as_str().to_owned(),
        (Some(state), message) => format!("{state}, {message}"),
    }
}

fn task(request: &TaskRequest, user: &str) -> anyhow::Result<NodeTask> {
    let TaskRequest { action, node, nodes } = request;
    let spec = NodeTaskSpec {
        node: node.clone(),
        node_selector: nodes.labels.as_deref().map(selector).transpose()?,
        action: action.clone(),
        concurrency: nodes.concurrency,
        max_failures: nodes.max_failures,
        deadline_minutes: None,
        // The record of a reboot stays as long as its cordon may.
        ttl_seconds_after_finished: action.reboot.is_none().then_some(TTL_SECONDS),
    };
    let prefix = match action.verb() {
        Some(TaskVerb::RestartUnit) => "restart-",
        Some(TaskVerb::GrowRootDisk) => "grow-",
        Some(TaskVerb::Reboot) => "reboot-",
        Some(TaskVerb::Capture) | None => "task-",
    };
    let mut task = NodeTask::new("", spec);
    task.metadata.name = None;
    task.metadata.generate_name = Some(prefix.to_owned());
    Ok(created_by(task, user))
}

/// The task with its creator's name, if that is known.
pub(crate) fn created_by(mut task: NodeTask, user: &str) -> NodeTask {
    if !user.is_empty() {
        task.metadata.annotations = Some([(CREATED_BY_ANNOTATION.to_owned(), user.to_owned())].into());
    }
    task
}

/// Labels with their values, commas between them; a key alone is a label with any value.
fn selector(text: &str) -> anyhow::Result<LabelSelector> {
    let (mut labels, mut expressions) = (BTreeMap::new(), Vec::new());
    for part in text.split(',').map(str::trim) {
        match part.split_once('=') {
            Some((key, value)) if !key.is_empty() && !key.ends_with('!') => {
                labels.insert(key.to_owned(), value.trim_start_matches('=').to_owned());
            }
            None if !part.is_empty() && !part.contains(['!', ' ', '(']) => expressions.push(LabelSelectorRequirement {
                key: part.to_owned(),
                operator: "Exists".to_owned(),
                values: None,
            }),
            _ => bail!("-l {text}: expected KEY=VALUE or KEY, with commas between them"),
        }
    }
    let labels = Some(labels).filter(|labels| !labels.is_empty());
    let expressions = Some(expressions).filter(|expressions| !expressions.is_empty());
    Ok(LabelSelector { match_labels: labels, match_expressions: expressions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_has_labels_and_keys() {
        let found = selector("pool=web,zone==a,gpu").unwrap();
        let labels: Vec<(String, String)> = found.match_labels.unwrap().into_iter().collect();
        assert_eq!(labels, [("pool".to_owned(), "web".to_owned()), ("zone".to_owned(), "a".to_owned())]);
        assert_eq!(found.match_expressions.unwrap()[0].key, "gpu");
        for wrong in ["", "a!=b", "!a", "a in (b)", "=b", "a=b,,c=d"] {
            assert!(selector(wrong).is_err(), "{wrong}");
        }
    }
}
