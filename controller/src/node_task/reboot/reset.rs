//! The request to OCI: it is sent with one retry token per task, so that OCI carries it out once.

use oci::{CloudView, Error, Instance, InstanceState, Kind, Oci, RetryToken};
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
    let stopped =
        [InstanceState::Stopping, InstanceState::Stopped, InstanceState::Terminating, InstanceState::Terminated];
    match found.lifecycle_state {
        InstanceState::Running if found.node_pool.is_none() => check_address(cloud, &found, node).await,
        InstanceState::Running => InstanceCheck::Sound,
        state if stopped.contains(&state) => InstanceCheck::Wrong(format!("the instance is {state:?}, not running")),
        other => InstanceCheck::Unknown(format!("the instance is {other:?}, not running")),
    }
}

/// Without a node pool of OKE, the instance's own address must be the Node's.
async fn check_address(cloud: &CloudView, instance: &Instance, node: &NodeView) -> InstanceCheck {
    let attachments = match cloud.vnic_attachments(&instance.compartment_id, Some(&instance.id)).await {
        Ok(attachments) => attachments,
        Err(error) => return InstanceCheck::Unknown(words(&error)),
    };
    for id in attachments.iter().filter_map(|attachment| attachment.vnic_id.as_ref()) {
        match cloud.vnic(id).await {
            Ok(read) if read.value.is_primary => {
                let addresses = read.value.private_ip.into_iter().chain(read.value.ipv6_addresses);
                return match addresses.into_iter().any(|address| node.addresses.contains(&address)) {
                    true => InstanceCheck::Sound,
                    false => InstanceCheck::Wrong("the instance has another address than the Node".to_owned()),
                };
            }
            Ok(_) => {}
            // A VNIC that was detached meanwhile is not the primary one.
            Err(error) if error.is_not_found_or_forbidden() => {}
            Err(error) => return InstanceCheck::Unknown(words(&error)),
        }
    }
    InstanceCheck::Wrong("the instance has no primary VNIC that can be read".to_owned())
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
