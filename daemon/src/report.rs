//! What the agent reports: one reconcile report feeds logs, metrics, readiness, Events and the subcommands.

pub mod attachments;
pub mod condition;
#[cfg(test)]
mod documents;
pub mod metrics;
pub mod node_events;
pub mod notices;
pub(crate) mod port;
pub mod reconcile_report;
pub mod signals;
pub mod status;
pub mod status_server;
pub mod transitions;
pub mod vnic_reports;
