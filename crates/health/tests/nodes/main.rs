//! Collectors, rules and the engine on recorded nodes, and on this machine.

mod engine;
mod faults;
mod node;
