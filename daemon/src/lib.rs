//! The node agent: it knows which VNICs and pod addresses this node has, configures the host for them, publishes the
//! addresses for the CNI plugins and puts the plugins in place. Pods never wait for it: while it is down, plugins work from
//! the files it left.
//!
//! ```text
//!   metadata service ─┐            ┌─▶ slots ─▶ desired ─▶ host (links, routes, rules, nft)
//!   NativePodNetwork ─┼─▶ world ───┤
//!   kernel events ────┤  (poller)  ├─▶ pools ──▶ pools.json ──▶ plugins
//!   file changes ─────┘  (reconcile_loop)    ├─▶ running pods' host side, as their records say; the end of dead ones
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

pub mod args;
pub mod cli;
pub mod cni_records;
pub mod decide;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod fixture;
pub mod lifecycle;
pub mod reconcile;
pub mod report;
pub mod run;
pub mod settings;
pub mod sources;
pub mod triggers;

pub use args::Args;
pub use cli::exit::Exit;
pub use run::run;
