//! `kubectl oke-node`: what is wrong on which node, since when, why, and what to do. It reads only, but for `nettest` and
//! `stop`.
//!
//! ```text
//!   leader ──▶ pod of the Lease, port-forward ──▶ fleet, one node ─┐
//!                          (not reachable: nodes, from the API) ───┼─▶ commands ─▶ table, JSON or YAML
//!   cluster ─▶ API server: Nodes, VnicAttachments, NodePolicies ───┘
//!   bundle ─▶ objects that the user may read, and the leader's stream with bundles of nodes ─▶ commands/bundle
//!   connection ─▶ objects that the user may read, and NetworkTests ─▶ commands/connection
//!   catalog ─▶ what this program knows offline: signals, rules, codes, reasons ─▶ commands/explain
//! ```
//!
//! A new command is a file in `commands`, a variant in `args.rs` and a line in `run.rs`.

pub mod answer;
mod args;
mod bundle;
mod catalog;
mod causes;
mod cluster;
mod commands;
mod connection;
mod ends;
mod failure;
#[cfg(test)]
mod golden;
mod interrupts;
mod kubeconfig;
mod leader;
mod nodes;
mod probe_spec;
mod proxy;
pub mod run;
mod selection;
mod table;
mod task_runs;
mod test_runs;
