//! What a plugin run tells the agent: which verb, for whom, how it ended and where the time went. Floor 1.
//!
//! ```text
//!   plugin ─ Phases ─▶ VerbRecord ─▶ Sink ──datagram──▶ Listener (agent: metrics, health, slow pods)
//!                                      └─no agent──────▶ verbs.log, verbs.log.1 ──take_log──▶ agent, once it is there
//! ```
//!
//! The plugin's side is synchronous and small, never waits and fails no verb: a record that can go nowhere is lost.

mod listener;
mod log;
mod phases;
mod record;
mod sink;

pub use listener::{ListenError, Listener, SOCKET};
pub use log::{LOG_LIMIT, log_path, read_log, take_log};
pub use phases::{Phase, Phases};
pub use record::{LINE_LIMIT, VerbRecord};
pub use sink::{Delivery, Sink};
