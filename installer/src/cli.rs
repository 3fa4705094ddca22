//! The command line of `oke-cni-installer`.

mod args;
mod run;

pub use args::{Args, Command, DATA_DIR, Directories, ForeignPodSources, Keeping, Options, UninstallArgs};
pub use run::run;
