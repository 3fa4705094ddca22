//! Rollouts in a simulated world: agents that take documents, an API server that keeps statuses, and leaders that die.

mod canary;
mod fleet;
mod several;
mod world;
