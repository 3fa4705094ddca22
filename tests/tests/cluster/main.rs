//! Tests that start a real Kubernetes API server: the manifests, admission, VNICs on request and network tests from end to end,
//! the demo, `kubectl oke-node`, and the harness itself. Tests of programs that need Go to build are here, too.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]
#![expect(clippy::panic, reason = "likewise")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

mod admission;
mod callers;
mod demo;
mod harness;
mod kubectl;
mod libcni;
mod manifests;
mod network_tests;
mod vnics_on_request;

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Far beyond what a condition takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(240);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn manifests_folder() -> PathBuf {
    root().join("manifests")
}
