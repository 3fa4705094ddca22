//! The request to OCI: it is sent with one retry token per task, so that OCI carries it out once.

use oci::{CloudView, Error, InstanceState, Kind, Oci, RetryToken};
use vcn::{Ocid, excerpt, printable};

use super::facts::{Refusal, ResetState};
use crate::cluster::store::NodeView;

/// OCI's answer to a token whose request was carried out long ago.
const SPENT: &str = "InvalidatedRetryToken";
/// The longest message, in characters.
const MESSAGE_MAX: usize = 120;

/// Whether an instance can be reset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InstanceCheck {
    Sound,
    /// It is not the machine of the Node, or is not running.
    Wrong(String),
    Unknown(String),
}

/// Sends the reset. Returns what is known of it now.
pub(crate) async fn reset(cloud: &Oci, instance: &Ocid, task: &str, known: &ResetState) -> ResetState {
    let token = RetryToken::derive(&["NodeTask", task, "SOFTRESET", instance.as_str()]);
    match cloud.soft_reset(instance, &token).await {
        Ok(_) => ResetState::Accepted,
        Err(error) if error.code() == Some(SPENT) => ResetState::Accepted,
        Err(error) => {
            tracing::warn!(
                event = "reboot.reset",
                error = resident::logging::chain(&error),
                "OCI did not accept the reset"
            );
            after(known, &error)
        }
    }
}

/// What is known after a failed request.
fn after(known: &ResetState, error: &Error) -> ResetState {
    let is_refused = error.refusal().is_some_and(|refusal| (400..500).contains(&refusal.status));
    let is_transient = !matches!(
        error.kind(),
        Kind::NotFoundOrForbidden | Kind::RelatedNotFoundOrForbidden | Kind::Forbidden | Kind::Invalid | Kind::Limit
    );
    let refusal = Refusal { message: words(error), is_transient };
    match known {
        ResetState::Unsent { .. } if !error.may_have_been_done() => ResetState::Unsent { refusal: Some(refusal) },
        ResetState::Uncertain { refusal: before } if !is_refused => ResetState::Uncertain { refusal: before.clone() },
        _ => ResetState::Uncertain { refusal: is_refused.then_some(refusal) },
    }
}

/// Compares the instance with the Node, whose kubelet may name any.
pub(crate) async fn check(cloud: &CloudView, instance: &Ocid, node: &NodeView) -> InstanceCheck {
    let found = match cloud.instance(instance).await {
        Ok(found) => found,
        Err(error) if error.is_not_found_or_forbidden() => return InstanceCheck::Wrong(words(&error)),
        Err(error) => return InstanceCheck::Unknown(words(&error)),
    };
    if found.node_pool != node.node_pool {
        return InstanceCheck::Wrong(
            "the instance's metadata and the Node's annotation name different node pools".to_owned(),
        );
    }
    match found.lifecycle_state {
        InstanceState::Running => InstanceCheck::Sound,
        other => InstanceCheck::Unknown(format!("the instance is {other:?}, not running")),
    }
}

/// OCI's words with the number for Oracle's support.
fn words(error: &Error) -> String {
    let id = error.request_id().unwrap_or("none");
    let text = match error.refusal() {
        Some(refusal) => format!("OCI: {} {} (opc-request-id {id})", refusal.status, refusal.code),
        None => format!("OCI did not answer (opc-request-id {id})"),
    };
    excerpt(&printable(&text), MESSAGE_MAX).into_owned()
}
