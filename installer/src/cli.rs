//! The command line of `oke-cni-installer`.

mod args;
mod run;

pub(crate) use args::DATA_DIR;
pub use args::{Args, Command, Directories, ForeignPodSources, StateDirectories, Options, UninstallArgs, VnicAttach};
pub use run::run;
