//! Network tests on an emulated VCN: each fault is injected, and the investigation must name it. The agents' probes run in the
//! container of the shipped manifest.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail by panicking")]

mod hosts;
mod lab;
mod network;
mod no_fault;
mod pod;
mod refused;
mod services;
mod tables;
mod throughput;
