//! The kernel's network configuration, synchronously: links, addresses, routes, rules, neighbours, sysctls, nf_tables,
//! network namespaces. The one library that the CNI plugins and the node agent share.
//!
//! ```text
//!   Netns ──open_in──▶ Socket ──links()──────▶ Vec<Link>      kernel-filtered lists, read again when interrupted
//!     │                  │    ──add_route()──▶ ()             one request, one acknowledgement, one Error
//!     └──run(closure)    └─ stays in the namespace where it was opened
//!   Monitor ──drain()──▶ Vec<Event>                           hints to look again
//!   nft::Socket ──replace_tables()─▶ ()                       one transaction
//! ```
//!
//! Requests are built from `netlink-packet-route`'s typed messages. Answers are read attribute by attribute, and only
//! those we use: what a typed decoder cannot read must not make a link vanish from a list, and the plugins stay small.
//!
//! It decides nothing: what ought to be there is `datapath`'s business.

mod address;
mod announce;
mod attributes;
pub mod conntrack;
#[cfg(test)]
mod decoding_tests;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod link;
mod monitor;
mod neighbour;
mod netns;
pub mod nft;
mod route;
mod rule;
mod setting;
mod socket;
mod sysctl;
mod transport;

pub use address::{Address, Scope};
pub use announce::Announcer;
pub use error::{Cause, Error, Refusal, Result};
pub use link::{IpvlanMode, Link, LinkChange, LinkKind, MacvlanMode, NewLink, Peer};
pub use monitor::{Change, Event, Groups, Monitor};
pub use neighbour::{Neighbour, NeighbourFilter, Reach};
pub use netns::{Home, Netns, NetnsId};
pub use nix::errno::Errno;
pub use route::{Arriving, Route, RouteFilter, RouteKind};
pub use rule::Rule;
pub use setting::{Setting, SettingKey, SettingOf};
pub use socket::Socket;
pub use sysctl::Sysctls;
pub use transport::{DEADLINE, DUMP_ATTEMPTS};
