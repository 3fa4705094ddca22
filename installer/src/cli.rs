//! The command line of `oke-cni-installer`.

mod args;
mod run;

pub use args::{Args, Command, Directories, Options, StateDirectories, UninstallArgs, VnicAttach};
pub use run::run;
