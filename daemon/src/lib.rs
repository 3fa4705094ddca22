//! The node agent: it knows which VNICs and pod addresses this node has, configures the host for them, publishes the
//! addresses for the CNI plugins and puts the plugins in place. Pods never wait for it: while it is down, plugins work from
//! the files it left.
//!
//! ```text
//!   metadata service ─┐            ┌─▶ slots ─▶ desired ─▶ host (links, routes, rules, nft)
//!   NativePodNetwork ─┼─▶ world ───┤
//!   kernel events ────┤  (gather)  ├─▶ pools ──▶ pools.json ──▶ plugins
//!   file changes ─────┘  (wake)    ├─▶ running pods' host side, as their records say; the end of dead ones
//!                                  ├─▶ installer ──▶ CNI binaries, conflist
//!                                  └─▶ interference: who else configures this host
//!                          └────────── reconcile ──▶ Pass ──▶ logs, metrics, readiness, status
//!   plugins' records ──▶ verbs ──▶ lines, metrics ──▶ aftercare (announcements, connections)
//!   Pass ──▶ recorder ──▶ events of Kubernetes about the Node
//!   SIGTERM ──▶ departure: another of us comes, or the node becomes what it was before us
//! ```
//!
//! Everything that decides (`world`, `refused`, `slots`, `desired`, `pools`, `suspects`, `usage`) is pure; `reconcile` is the only one
//! that changes the node's configuration, and `aftercare` the only one that speaks for pods.

pub mod advice;
pub mod aftercare;
pub mod args;
pub mod ask;
pub mod attachments;
pub mod backoff;
pub mod board;
pub mod bundle;
pub mod command_line;
pub mod condition;
#[cfg(test)]
mod configuration;
pub mod container_runtime;
pub mod departure;
pub mod desired;
pub mod devices;
pub mod directories;
#[cfg(test)]
mod documents;
pub mod events;
pub mod exit;
pub mod files;
#[cfg(test)]
mod fixture;
pub mod gather;
pub mod host;
pub mod interference;
mod listening;
pub mod metrics;
pub mod npn;
pub mod oke_cni;
pub mod pass;
pub mod pools;
mod port;
pub mod reconcile;
pub mod recorder;
pub mod refused;
pub mod reload;
mod routers;
pub mod run;
pub mod settings;
pub mod show;
pub mod since;
pub mod slots;
pub mod status;
pub mod suspects;
pub mod transitions;
pub mod usage;
pub mod verbs;
pub mod vnics_seen;
pub mod wake;
pub mod world;

pub use args::Args;
pub use exit::Exit;
pub use run::run;
