//! The node agent: it reads which VNICs and pod addresses this node has, configures the host for them, publishes the
//! addresses for the CNI plugins and installs the plugins. Pods never wait for it: while it is down, plugins use its files.
//!
//! ```text
//!   metadata service ─┐ sources                   reconcile     ┌─▶ host network (links, routes, rules, nft)
//!   NativePodNetwork ─┴─▶ NodeFacts ─┐            (its stages)  ├─▶ pools.json ──▶ plugins
//!                                    ├─▶ triggers ─▶ decide ────┼─▶ running pods' host side; the end of dead ones
//!   kernel events, file changes ─────┘                          ├─▶ interference: what else configures this host
//!                                                               ├─▶ installer ──▶ CNI binaries, conflist
//!                                                               └─▶ ReconcileReport ──▶ logs, metrics, readiness, status
//!   records of plugins ──▶ cni_records ──▶ log lines, metrics ──▶ follow_up (announcements, connections)
//!   controller ──▶ probes ──▶ packets of network tests
//!   controller ──▶ captures ──▶ state, packets and logs in a private folder, sent as one tar
//!   controller ──▶ node_policy ──▶ kernel settings and links of NodePolicies
//!   Pod of a NodeTask ──▶ operation ──▶ systemd (never in the agent's own Pod)
//!   ReconcileReport ──▶ node_events ──▶ Kubernetes Events about the Node
//!   controller ──TLS──▶ controller_channel ──▶ summary of health signals and conditions
//!   SIGTERM ──▶ uninstall on delete: the next agent starts, or everything is uninstalled
//! ```
//!
//! The nouns that all folders share are in `facts`. Everything in `decide` is pure; only `reconcile` changes the node's
//! configuration, and only `cni_records` sends packets for pods.

pub mod args;
pub mod captures;
mod cli;
mod cni_records;
mod controller_channel;
mod decide;
pub mod facts;
#[cfg(test)]
mod fixture;
mod lifecycle;
pub mod metrics;
mod node_policy;
mod operation;
pub mod probes;
pub mod reconcile;
pub mod redaction;
mod report;
mod run;
pub mod settings;
pub mod sources;
pub mod triggers;

pub use args::Args;
pub use cli::exit::Exit;
pub use run::run;
