//! The command line of `oke-cni-installer`.

mod run;

pub use run::run;
