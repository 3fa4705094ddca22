//! Rollouts in a simulated world: agents that take documents, an API server that keeps statuses, and leaders that die.

mod canary;
mod files;
mod fleet;
mod growth;
mod node_files;
mod several;
mod world;
