//! The CNI protocol, from a plugin's side: versions 0.3.1, 0.4.0, 1.0.0 and 1.1.0; ADD, DEL, CHECK, STATUS, GC, VERSION.
//! Floor 1: it knows nothing of what a plugin does, and starts no program.
//!
//! ```text
//!   runtime ──environment──▶ Call ─┐                                 ┌─▶ result in the configuration's version ─▶ stdout
//!           ──────stdin────▶ Config ├─▶ AddRequest… ─▶ Plugin (yours) ┤
//!                            + Conf ┘                                 └─▶ Error: code, message, details ─────────▶ stdout
//! ```
//!
//! A plugin implements [`Plugin`] and its `main` is [`main`]. Everything the specification leaves optional is an
//! `Option`; everything else is there and checked when the plugin gets it. Why it is our own: `docs/decisions/0001`.

mod args;
mod config;
mod environment;
mod error;
mod excerpt;
mod field;
mod identity;
mod input;
mod netns;
mod output;
mod panic;
mod plugin;
mod prev_result;
mod refusal;
mod request;
mod result;
mod run;
mod runtime_config;
mod trace;
mod verb;
mod version;

pub use args::Args;
pub use config::Config;
pub use environment::{Environment, ProcessEnvironment};
pub use error::{Error, ErrorCode};
pub use identity::{AttachmentKey, ContainerId, IdentityError, NetworkName};
pub use netns::ContainerNetns;
pub use plugin::{Plugin, main};
pub use prev_result::PrevResult;
pub use refusal::Refusal;
pub use request::{AddRequest, CheckRequest, DelRequest, GcRequest, StatusRequest};
pub use result::{AddResult, Dns, Interface, Ip, Route, Success};
pub use run::{Exit, run};
pub use runtime_config::RuntimeConfig;
pub use trace::{ParentSpan, TraceContext};
pub use verb::Verb;
pub use version::Version;
