//! Installs our CNI binaries and CNI configuration on the node, if the cluster uses VCN-native pod networking. On a Flannel
//! cluster, or in doubt, it leaves the pod network alone and reports which signal decided.
//!
//! ```text
//!   cli ─▶ settings ─▶ decide ◀─ signals, CNI configurations
//!                        │
//!                        ▼
//!   apply: binaries ─▶ our configuration, or what is left of it ─▶ copy for vnic-attach ─▶ report
//!     reads files and versions, writes files (atomic) and the record
//!
//!   uninstall: refusals ─▶ configurations ─▶ binaries ─▶ kernel ─▶ state
//! ```
//!
//! [`reconcile`] is blocking and idempotent: the agent calls it at start, whenever an address becomes usable, and on a
//! timer. Binaries go first and at once. The configuration follows when every binary is in place and an address is usable,
//! because a runtime reports a node ready as soon as it finds one. A restart removes nothing. Plugins that other programs add
//! to our configuration stay; another program's is copied for `vnic-attach` if a setting says so, and never written.
//! [`uninstall`] removes everything, and [`on_delete`] decides whether a shutdown means that.

mod apply;
mod args;
mod cli;
mod decide;
mod error;
mod files;
mod foreign_network;
pub mod host_files;
mod libcni;
mod note;
mod observed;
mod reconcile;
mod record;
mod report;
mod settings;
mod signals;
mod uninstall;
mod versions;

pub use args::{Args, Command, Directories, Options, StateDirectories, UninstallArgs, VnicAttach};
pub use cli::run;
pub use decide::{Decision, pods};
pub use error::Error;
pub use files::Snapshot;
pub use foreign_network::{AddressUse, ForeignNetwork, ForeignPlugin, foreign_network};
pub use note::{Note, NoteKind};
pub use observed::ProvidedNetwork;
pub use reconcile::{decision, dry_run, reconcile};
pub use report::{ConflistState, Report, Status};
pub use settings::{Settings, SettingsError};
pub use signals::{METADATA_KEY, OKE_DAEMONSET, PodNetwork, Presence, Signal, SignalOptions, Signals};
pub use uninstall::{
    KernelRoots, PolicyMark, PolicySetting, Removal, RemovalStatus, SettingChange, Uninstall, forget_policy_settings,
    note_policy_settings, note_settings, on_delete, policy_settings, read_link_option, uninstall, write_link_option,
};
