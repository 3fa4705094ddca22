//! An emulated VCN on one machine: what cannot be rented for a test. Nodes are namespaces, the fabric is a program that
//! is as strict as OCI's and says why it drops, the metadata service and the resolver answer on 169.254.169.254.
//! The real programs run in it unchanged, with their default paths. Kubernetes is not emulated.
//!
//! ```text
//!   node-a (network + mount namespace)      fabric namespace           services namespace
//!     ens3  primary VNIC ──────────────────┐                        ┌── svc0  169.254.169.254
//!     ens5  secondary VNIC ────────────────┤  Fabric::handle:       │     metadata :80
//!     /run/netns/pod-1 ── (CNI's veth) ens5│  one pure function ────┘     DNS      :53
//!   node-b (bare metal)                    │  from frame to frames        time     :123
//!     ens300f0  trunk: untagged, 1, 2, … ──┘
//! ```
//!
//! [`OciApi`] adds the OCI API: core services, federation, proxymux.
//!
//! [`Vcn::builder`] makes one, [`Node`] and [`Pod`] run programs and closures inside, [`Vcn::attach_vnic`] and
//! [`Vcn::detach_vnic`] plug and unplug, [`Vcn::drops`] tells what the fabric refused. Everything is held by
//! descriptors of this process: when it ends, even by `kill -9`, the kernel removes all of it. [`Container`] is what the
//! shipped manifest makes of a program: the agent runs in one here, as it does in a cluster.
//!
//! It needs root over its own user namespace; [`isolate()`] makes that out of any user. It is never shipped.

mod addresses;
mod builder;
mod capabilities;
mod command;
mod container;
mod dns;
mod emulation;
mod error;
mod fabric;
mod identity;
mod imds;
mod inventory;
mod isolate;
mod namespaces;
mod node;
mod npn;
mod ntp;
mod oci;
mod pod;
mod probe;
mod program;
mod runtime;
mod services;
mod spec;
mod subnet;
mod suite;
mod vnic;
mod waited;
mod wire;

pub use builder::Builder;
pub use capabilities::Capabilities;
pub use command::Command;
pub use container::{Container, Image, Volume, spawn_first};
pub use dns::DOMAIN;
pub use emulation::Vcn;
pub use error::{Error, Result};
pub use fabric::{BOOT_DISK_V4, DropReason, Dropped, Fabric, Outgoing, Port, SERVICES_V4, SERVICES_V6, VnicPort};
pub use imds::{Fault, FaultKind};
pub use isolate::{Isolated, isolate};
pub use node::Node;
pub use npn::NpnShape;
pub use oci::{ApiFault, ApiFaultKind, AttachmentRecord, FakeCloud, OciApi, OciSettings, Operation, Refusal};
pub use pod::Pod;
pub use probe::Outcome;
pub use program::{copy_program, write_program};
pub use runtime::{Attachment, Runtime, RuntimeError};
pub use spec::{NodeSpec, Secondary, SubnetSpec, VnicSpec};
pub use subnet::Subnet;
pub use suite::{Agent, publish_native_pod_network};
pub use vnic::Vnic;
pub use waited::kept_waiting;
