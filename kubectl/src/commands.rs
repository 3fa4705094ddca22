//! The commands, a file each. Each collects an answer as data; `run.rs` prints it.

pub(crate) mod bundle;
pub(crate) mod capture;
pub(crate) mod connection;
pub(crate) mod explain;
pub(crate) mod gpus;
pub(crate) mod nettest;
pub(crate) mod node;
pub(crate) mod policy;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod task;
pub(crate) mod vnics;
