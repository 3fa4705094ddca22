//! What the engine calls of an action, for each node on which it runs. Each action is a module with the same functions.

use std::time::Duration;

use api::TaskReason;
use api::node_task::TaskVerb;
use tokio::time::timeout;

use super::action::{Next, STARTED, StepInput, TaskContext};
use super::{capture, operation, reboot};

/// The deadline of one call. Longer work is a step that is observed.
const LIMIT: Duration = Duration::from_secs(45);

/// Observes a node, and decides the next step; `None` if the observation failed or timed out.
pub(crate) async fn advance(context: &TaskContext, input: &StepInput) -> Option<Next> {
    let is_started = input.running.step == STARTED;
    if is_started && let Some(version) = input.agent.version_without_tasks() {
        return Some(Next::Skipped(
            TaskReason::Unsupported,
            format!("its agent has version {version}, which lacks the action"),
        ));
    }
    let deciding = async {
        match input.verb() {
            Some(TaskVerb::RestartUnit | TaskVerb::GrowRootDisk) => operation::advance(context, input).await,
            Some(TaskVerb::Reboot) => Some(reboot::advance(context, input).await),
            Some(TaskVerb::Capture) => capture::advance(context, input).await,
            None => Some(Next::Failed(
                TaskReason::Unsupported,
                "this version of the controller does not support the action".to_owned(),
            )),
        }
    };
    timeout(LIMIT, deciding).await.ok().flatten()
}

/// Carries out the step that is written. A new leader, and each retry, repeats it.
///
/// # Errors
/// When the effect is uncertain.
pub(crate) async fn apply(context: &TaskContext, input: &StepInput) -> Result<(), String> {
    let applying = async {
        match input.verb() {
            Some(TaskVerb::RestartUnit | TaskVerb::GrowRootDisk) => operation::apply(context, input).await,
            Some(TaskVerb::Capture) => capture::apply(context, input).await,
            _ => Ok(()),
        }
    };
    timeout(LIMIT, applying).await.unwrap_or_else(|_| Err(format!("no answer within {LIMIT:?}")))
}

/// Removes what the action left on a node. Returns whether nothing is left.
///
/// # Errors
/// When it could not find out.
pub(crate) async fn undo(context: &TaskContext, input: &StepInput) -> Result<bool, String> {
    let undoing = async {
        match input.verb() {
            Some(TaskVerb::RestartUnit | TaskVerb::GrowRootDisk) => operation::undo(context, input).await,
            Some(TaskVerb::Capture) => capture::undo(context, input).await,
            Some(TaskVerb::Reboot) => reboot::undo(context, input).await,
            // An action of a later version. Only reboots have an instance.
            None if !input.running.instance.is_empty() => reboot::undo(context, input).await,
            None => Ok(operation::undo(context, input).await? && capture::undo(context, input).await?),
        }
    };
    timeout(LIMIT, undoing).await.unwrap_or_else(|_| Err(format!("no answer within {LIMIT:?}")))
}
