//! Pages of NVIDIA's dcgm-exporter. Pure.

pub(crate) mod page;
pub(crate) mod pages;

pub use crate::facts::Exporter;
