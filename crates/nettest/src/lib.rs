//! Network tests without input and output: which probes to send next, and what the evidence proves. The controller sends the
//! probes; tests replay recorded evidence.
//!
//! ```text
//!   Case ─▶ Investigation ──next()──▶ requests of one round, sent at once ──▶ agents
//!                 ▲                                                              │
//!                 └──answer()── ProbeReport ◀────────────────────────────────────┘
//!                 └─▶ Evidence ──diagnose()──▶ Verdict: label, causes, last tap, before and after, what to do
//! ```
//!
//! [`probe`] is the protocol between controller and agents: versioned JSON, read strictly and within bounds.
//!
//! A cause is named only if three things hold. The last tap that saw the probe is known, one row of the fault matrix is left,
//! and a probe with one thing changed has another result. Otherwise the verdict lists the causes that are left and what would
//! separate them (docs/network-tests.md).

mod case;
mod cause;
mod diagnose;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod golden;
mod investigation;
pub mod probe;
mod tap;
mod trials;
mod verdict;

pub use case::{AgentRequest, Case, Compared, Role};
pub use cause::{Cause, Place};
pub use diagnose::diagnose;
pub use investigation::Investigation;
pub use tap::Tap;
pub use verdict::{Label, Verdict, path, steps};
