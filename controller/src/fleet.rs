//! The fleet: the leader asks each agent for the summary of its node, keeps the latest one in memory, and writes conditions
//! of Nodes when a state changes. While nothing changes, it writes nothing (P3).
//!
//! ```text
//!   Pods of agents ─watch─▶ agents ─┐               ┌─▶ view (loopback, for `kubectl oke-node`), metrics
//!                                   ├──▶ roster ◀───┤
//!   agents on nodes ◀─channel─ sweep ┘      │       └─▶ judge (pure) ─▶ writer ─▶ conditions of Nodes
//!   Nodes ───────────store─────────────────┴────────────▲
//! ```
//!
//! The sweep also sends the rules of health signals ([`rules`]) to agents that have others, and [`plugin_states`] adds to the
//! roster what only the OCI API knows.
//!
//! Summaries are lost with the leader: the next one asks every agent within half a minute, and judges a node only after its
//! first answer.

pub mod agents;
pub mod answer;
pub mod census;
pub mod condition;
pub mod judge;
pub mod keys;
pub mod permits;
pub mod plugin_states;
pub mod roster;
pub mod rules;
pub mod run;
pub mod schedule;
pub mod shared;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod view;
pub mod writer;
