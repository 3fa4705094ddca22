//! NetworkTests: selects pairs, lets agents probe them, and writes what was found. Nothing runs and nothing is written while
//! there is no NetworkTest.
//!
//! ```text
//!   NetworkTest ─watch─▶ tasks ─▶ life (schedule, deadline, TTL) ────────▶ pair ─▶ nettest::Investigation
//!                                   │                 ▲              │        └─▶ agents (the channel), or probe_pods
//!                                   └─▶ status        └── summary ◀──┘
//! ```
//!
//! A deleted test stops at once: its tasks are dropped, and an agent's probe ends within its own bound of 30 s.

pub(crate) mod agents;
pub(crate) mod channel_agents;
mod http_url;
mod life;
mod pair;
mod pair_error;
mod pairs;
mod pods;
pub(crate) mod probe_pods;
mod send;
mod shared;
mod summary;
mod tasks;

pub(crate) use shared::NetworkTests;
pub(crate) use tasks::AT_ONCE;
