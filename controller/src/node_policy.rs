//! NodePolicies: each agent gets one document with all settings of its node, a canary first, and the leader takes back what fails.
//! Agents write nothing to the API server; the leader writes statuses, at rest none.
//!
//! ```text
//!   NodePolicies ─watch─▶ run ─▶ engine (pure step): select ─▶ rollout (pure, per policy) ─▶ render ─▶ documents
//!   roster (summaries) ───────────▲                                  │                                    │
//!   ConfigMap, key stop ──────────┘                                  ▼                                    ▼
//!                                              statuses, finalizers, Events, views          agents, by the channel
//!   answers about files ─▶ files (pure) ─▶ Pods that apply them
//! ```

mod agents;
mod clocks;
mod engine;
mod events;
mod facts;
pub(crate) mod files;
mod node_input;
mod render;
mod rollout;
pub(crate) mod run;
mod select;
mod status;
mod status_clock;
#[cfg(test)]
mod tests;
