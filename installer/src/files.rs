//! Files and directories of the host, and how this crate reads and replaces them.

mod atomic_file;
mod contents;
mod identity;
mod lock;
mod state_file;

pub(crate) use atomic_file::{is_temporary, replace};
pub(crate) use contents::{irregular, is_our_plugin, open_file, same_contents};
pub(crate) use identity::Identity;
pub use identity::Snapshot;
pub(crate) use lock::lock_out_installers;
pub(crate) use state_file::{read_document, remove, write_document};
