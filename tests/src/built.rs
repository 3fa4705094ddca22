//! The programs that cargo built next to a test.

use std::path::PathBuf;

/// The folder of the workspace's programs: two folders above the test program.
///
/// # Panics
/// When a program is missing: `cargo test` alone does not build the programs of other packages.
#[must_use]
pub fn bin_dir() -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let directory = test.ancestors().nth(2).map(PathBuf::from).unwrap_or_default();
    let programs = [
        "oke-node-agent",
        "oke-node-controller",
        "oke-cni-installer",
        "oke-sandbox",
        "kubectl-oke_node",
        "vcn-native",
        "vnic-attach",
    ];
    for program in programs {
        assert!(directory.join(program).is_file(), "{program} is not built: cargo build --workspace --bins");
    }
    directory
}
