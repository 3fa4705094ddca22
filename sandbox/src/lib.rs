//! An emulated VCN on one machine: what cannot be rented for a test. Nodes are namespaces, the fabric is a program that
//! is as strict as OCI's and reports why it drops, the metadata service and the resolver answer on 169.254.169.254.
//! The real programs run in it unchanged, with their default paths. Kubernetes is not emulated.
//!
//! ```text
//!   node-a (network + mount namespace)      fabric namespace           services namespace
//!     ens3  primary VNIC ──────────────────┐                        ┌── svc0  169.254.169.254
//!     ens5  secondary VNIC ────────────────┤  Fabric::handle:       │     metadata :80
//!     /run/netns/pod-1 ── (CNI's veth) ens5│  one pure function ────┘     DNS      :53
//!   node-b (bare metal)                    │  from frame to frames        time     :123
//!     ens300f0  trunk: untagged, 1, 2, … ──┘
//!
//!   network    subnets, instances, VNICs, addresses (Vcn) ◀── oci      the OCI API: over HTTP, or in the same process
//!      ├─▶ fabric     frames and wires                        harness  the agent, a CNI runtime, probes
//!      ├─▶ node       namespaces, files, programs; container  what a shipped manifest makes of a program
//!      └─▶ services   metadata, DNS, time                     isolate  a process tree of its own
//! ```
//!
//! [`Vcn::builder`] builds one, [`Node`] and [`Pod`] run programs and closures inside, [`Vcn::attach_vnic`] and
//! [`Vcn::detach_vnic`] plug and unplug, [`Vcn::drops`] lists what the fabric refused. [`OciApi`] adds the OCI API;
//! [`FakeCloud`] is the same API without a network, for unit tests. Everything is held by descriptors of this process: when
//! it ends, even by `kill -9`, the kernel removes all of it.
//!
//! It needs root over its own user namespace; [`isolate()`] gives that to any user. It is never shipped.

mod background;
mod container;
mod error;
mod fabric;
mod harness;
mod isolate;
mod network;
mod node;
mod oci;
mod services;

pub use container::{Container, Image, Volume, spawn_first};
pub use error::{Error, Result};
pub use fabric::{
    BOOT_DISK_V4, DeniedAt, DeniedTraffic, DropReason, Dropped, Fabric, Noise, Outgoing, PathMtu, Policy, Port,
    SERVICES_V4, SERVICES_V6, Traffic, VnicPort,
};
pub use harness::{
    Agent, Attachment, NpnShape, Outcome, Runtime, copy_program, kept_waiting, publish_native_pod_network,
    write_program,
};
pub use isolate::{Isolated, isolate};
pub use network::{Builder, NodeSpec, Subnet, SubnetSpec, Vcn, Vnic, VnicSpec};
pub use node::{Capabilities, Command, Node, Pod};
pub use oci::{ApiFault, ApiFaultKind, AttachmentRecord, FakeCloud, OciApi, OciSettings, Operation, Refusal};
pub use services::{DOMAIN, MetadataFault};
