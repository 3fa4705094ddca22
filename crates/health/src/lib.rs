//! Health signals of a node. Collectors measure, rules judge; nothing here changes the node, starts a program or talks to
//! Kubernetes. [`repair`] plans what the agent may raise where a rule says so.
//!
//! ```text
//!   /proc, /sys, host files ─┐                   rules.json, overrides ─┐
//!   kernel calls, loopback ──┼─▶ collectors ──readings──▶ engine ──▶ judge ──▶ Report
//!   Facts (from the agent) ──┘   (a thread each,          (deadlines, spread over time)
//!                                 abandoned when it hangs)
//! ```
//!
//! An agent's [`Summary`] of its node goes to the controller, whose [`Fleet`] is what `kubectl oke-node` shows.
//!
//! A new signal is one file in `collectors` with a [`Kind`], a line in its list, and usually a rule in `rules.json`.
//! It is measured on folders of recorded files in `tests/recorded`.

pub mod collector;
pub mod collectors;
pub mod controller_signals;
pub mod engine;
pub mod facts;
pub mod fleet;
pub mod hardware;
pub mod host;
mod judge;
pub mod kernel_log;
mod open;
pub mod reason;
pub mod repair;
pub mod report;
pub mod rules;
pub mod signal;
pub mod summary;
pub mod system;
pub mod verdict;

pub use collector::{Kind, Sample};
pub use engine::Engine;
pub use facts::{Facts, mebibytes};
pub use fleet::Fleet;
pub use hardware::shapes::has_rdma_network;
pub use host::Host;
pub use reason::Reason;
pub use report::{Report, SignalState};
pub use signal::{Area, Gap, Signal, Unit};
pub use summary::Summary;
pub use verdict::Verdict;
