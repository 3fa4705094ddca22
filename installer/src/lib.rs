//! Puts our CNI binaries and CNI configuration on the node, only where the cluster uses VCN-native pod networking; on a
//! Flannel cluster, or in doubt, it touches nothing of the pod network and says which signal decided.
//!
//! ```text
//!   args ─▶ settings ─┐                         document, merge (others' texts)
//!   signals ──────────┼─▶ decision ─▶ plan (pure) ─▶ apply ─▶ report
//!   disk ─▶ observed ─┤                                │
//!   answers (VERSION) ┤                                │
//!   record ───────────┘◀──── what we did ──────────────┴─▶ place (atomic files)
//! ```
//!
//! [`reconcile`] is blocking and idempotent: the agent calls it at start, whenever an address becomes usable, and on a
//! timer. Binaries go first and at once; the configuration follows when every binary is in place and the caller says
//! that an address is usable, because the runtime calls a node ready as soon as it finds one. Nothing is removed on
//! restart. What others put into our configuration stays; of others' files only that one is written which a setting names
//! for `vnic-attach` to be chained into. [`uninstall`] takes everything back, and [`departure`] says when that is meant.

mod answers;
mod apply;
mod args;
mod conf_json;
mod conflist;
mod decision;
pub mod departure;
mod digest;
mod directory;
mod document;
pub mod drop_ins;
mod entry;
mod error;
mod exclusive;
#[cfg(test)]
mod fixture;
mod identity;
mod kept;
mod merge;
mod observed;
mod occupants;
mod place;
mod plan;
mod pods;
mod reconcile;
mod record;
mod removal;
mod report;
mod run;
mod settings;
mod settings_before;
mod signals;
mod uninstall;
mod versions;

pub use answers::Answers;
pub use args::{Args, Command, DATA_DIR, Directories, Keeping, Options, SignalArgs, UninstallArgs, Witnesses};
pub use decision::{Decision, Here, decide};
pub use digest::Digest;
pub use entry::{Entry, EntryError};
pub use error::Error;
pub use identity::{Identity, Snapshot};
use observed::Observed;
pub use observed::{ConfFile, Contents, Gives};
pub use occupants::Occupants;
pub use plan::{Leaving, Note, Purpose, Replaced, Step, Taken, Writing};
pub use pods::pods;
pub use reconcile::{decision, dry_run, reconcile};
pub use removal::{Removal, Removed};
pub use report::{Conflist, Report, Status};
pub use run::run;
pub use settings::{Settings, SettingsError};
pub use settings_before::{SettingChange, note_settings};
pub use signals::{
    FLANNEL_DAEMONSET, METADATA_KEY, NODE_LABEL, OKE_CONFLIST, OKE_DAEMONSET, PodNetwork, Seen, Signal, Signals,
};
pub use uninstall::{Uninstall, uninstall};
