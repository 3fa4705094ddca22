//! The CNI protocol, from a plugin's side: versions 0.3.1, 0.4.0, 1.0.0 and 1.1.0; ADD, DEL, CHECK, STATUS, GC, VERSION.
//! Floor 1: it does not know what a plugin does, and starts no program.
//!
//! ```text
//!              input                     request        plugin             result, error         run
//!   runtime ──environment──▶ Call   ─┐                           ┌─▶ result in the config's ─┐
//!           ──────stdin────▶ Config  ├─▶ AddRequest… ──▶ Plugin ─┤   version                 ├──▶ stdout, exit status
//!                            + Conf ─┘                           └─▶ Error: code, message,  ─┘
//!                                                                    details
//!   identity, netns, verb, version: the nouns of both directions
//! ```
//!
//! A plugin implements [`Plugin`] and its `main` is [`main`]. What the specification leaves optional is an `Option`; everything
//! else is present and checked when the plugin gets it. Why it is not a library from the registry: `docs/decisions/0001`.

mod error;
mod identity;
mod input;
mod netns;
mod plugin;
mod request;
mod result;
mod run;
mod verb;
mod version;

pub use error::{Error, ErrorCode};
pub use identity::{AttachmentKey, ContainerId, IdentityError, NetworkName};
pub use input::args::Args;
pub use input::config::Config;
pub use input::environment::Environment;
pub use input::prev_result::PrevResult;
pub use input::requested::{RequestedAddresses, RequestedField, RequestedKind, requested_fields};
pub use netns::ContainerNetns;
pub use plugin::{Plugin, main};
pub use request::{AddRequest, CheckRequest, DelRequest, GcRequest, StatusRequest};
pub use result::{AddResult, Dns, Interface, Ip, Route, Success};
pub use run::refusal::Refusal;
pub use run::run;
pub use verb::Verb;
pub use version::Version;
