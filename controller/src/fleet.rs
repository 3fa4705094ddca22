//! The fleet: the leader requests from each agent the summary of its node, keeps the latest one in memory, and writes conditions
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
//! [`bundle`] and [`capture`] relay what agents send for support, as one stream.
//!
//! Summaries are lost with the leader: the next one queries every agent within half a minute, and judges a node only after its
//! first answer.

pub(crate) mod account;
pub(crate) mod agents;
pub(crate) mod answer;
pub(crate) mod bundle;
pub(crate) mod capture;
pub(crate) mod census;
pub(crate) mod condition;
pub(crate) mod findings;
pub(crate) mod host_events;
pub(crate) mod judge;
pub(crate) mod keys;
pub(crate) mod permits;
pub(crate) mod plugin_states;
pub(crate) mod poll;
mod relay;
pub(crate) mod roster;
pub(crate) mod rules;
pub(crate) mod rules_file;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod shared;
pub(crate) mod sweep;
#[cfg(test)]
mod tests;
pub(crate) mod view;
pub(crate) mod writer;
