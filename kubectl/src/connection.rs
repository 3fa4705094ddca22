//! Whether a connection to a Service or a Pod works: first from the objects, without a packet, then by probes.
//!
//! ```text
//!   FROM TO ─▶ ends ─▶ read (the user's own rights) ─▶ Objects ─▶ facts (pure) ─▶ findings ─┬─▶ conclusion (pure) ─▶ answer
//!                                                        └─▶ probes ─▶ NetworkTests ─▶ legs ─┘
//! ```
//!
//! A fact that proves the cause ends the test: no probe is sent. Cases are folders of `golden/nettest`.

pub(crate) mod backends;
pub(crate) mod conclusion;
pub(crate) mod facts;
#[cfg(test)]
mod golden;
pub(crate) mod objects;
pub(crate) mod policies;
pub(crate) mod probes;
pub(crate) mod read;
