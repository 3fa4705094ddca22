//! Files and directories of the host, and how this crate reads and replaces them.

mod atomic_file;
mod contents;
mod identity;
mod lock;
mod state_file;

pub(crate) use atomic_file::{Owner, copy, is_temporary, write, write_if};
pub(crate) use contents::{irregular, is_our_plugin, open_file, same_contents};
pub(crate) use identity::Identity;
pub use identity::Snapshot;
pub(crate) use lock::InstallerLock;
pub(crate) use state_file::{read_document, remove, write_document};
