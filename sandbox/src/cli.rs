//! The subcommands of `oke-sandbox`.

pub(crate) mod args;
pub(crate) mod cluster;
pub(crate) mod demo;
pub(crate) mod fault;
mod vcn;
