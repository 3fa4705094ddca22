//! Files and directories of the host, and how this crate reads and replaces them.

mod atomic_file;
mod contents;
mod directory;
mod identity;
mod lock;
mod state_file;

pub(crate) use atomic_file::{Owner, copy, is_temporary, write, write_if};
pub(crate) use contents::{is_our_plugin, same_contents};
pub(crate) use directory::{check_links, create_directory, irregular, open_file, set_mode};
pub(crate) use identity::Identity;
pub use identity::Snapshot;
pub(crate) use lock::InstallerLock;
pub(crate) use state_file::{read_document, remove, write_document};
