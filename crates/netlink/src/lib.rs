//! The kernel's network configuration, synchronously: links, addresses, routes, rules, neighbours, sysctls, nf_tables,
//! conntrack, network namespaces. The CNI plugins and the node agent share it.
//!
//! ```text
//!   netns      Netns ──run(closure)──▶ a thread in that namespace
//!                │
//!             open_in                        stays in the namespace where it was opened
//!                ▼
//!   routing    Socket ──links()──▶ Vec<Link>          lists that the kernel filters; read again when interrupted
//!                     ──add_route()──▶ ()             one request, one acknowledgement, one Error
//!              Monitor ──drain()──▶ Vec<Event>        hints to reconcile
//!   nft        nft::NftSocket ──replace_tables()──▶ ()   one transaction
//!   conntrack  conntrack::ConntrackSocket ──delete_by_addresses()──▶ count
//!   devlink    health_reporters() ──▶ Vec<HealthReporter>
//!   ethtool    ethtool::EthtoolSocket ──rings()──▶ Rings     and channels, offloads
//!                │
//!   wire         └─ Transport: requests, deadlines, acknowledgements, attributes
//!
//!   sysctl     /proc/sys          announce   gratuitous ARP, unsolicited neighbour advertisements
//!   tap        packets as links carry them
//! ```
//!
//! Requests are built from the typed messages of `netlink-packet-route`. Answers are read attribute by attribute, and only the
//! attributes that we use. An attribute that a typed decoder cannot read must not hide a link, and the plugins stay small.
//!
//! It decides nothing: `datapath` computes what must exist.

mod announce;
pub mod conntrack;
pub mod devlink;
mod error;
pub mod ethtool;
mod netns;
pub mod nft;
mod routing;
mod sysctl;
mod tap;
mod wire;

pub use announce::Announcer;
pub use error::{Cause, Error, Refusal, Result};
pub use netns::{Home, Netns, NetnsId};
pub use nix::errno::Errno;
pub use routing::address::Address;
pub use routing::link::{Link, LinkChange, LinkKind, NewLink, Peer};
pub use routing::monitor::{Change, Event, Monitor};
pub use routing::neighbour::{Neighbour, NeighbourFilter};
pub use routing::route::{Route, RouteFilter, RouteKind, RoutedPacket};
pub use routing::rule::{Rule, RuleAction};
pub use routing::saved::SavedNetwork;
pub use routing::socket::Socket;
pub use sysctl::Sysctls;
pub use tap::{CaptureTap, CapturedPacket, PacketFilter, PacketProtocol, PacketTap, SeenPacket, forbid_fragments};
