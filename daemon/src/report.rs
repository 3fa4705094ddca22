//! What the agent reports: one reconcile report feeds logs, metrics, readiness, Events and the subcommands.

pub(crate) mod attachments;
#[cfg(test)]
mod documents;
pub(crate) mod node_events;
pub(crate) mod notices;
pub(crate) mod port;
pub(crate) mod signals;
pub(crate) mod status;
pub(crate) mod status_server;
pub(crate) mod transitions;
pub(crate) mod vnic_reports;
