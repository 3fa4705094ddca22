//! A node in namespaces: a host with two VNIC links, whose far ends are routers. Each VNIC has a table of its own.

use std::path::Path;

use host_harness::{Families, VnicHost, vnic_pool};
use ipam::{BootId, Pools, VnicPool};
use netlink::Netns;
use vcn::Family;

pub(crate) struct Node {
    pub(crate) host: Netns,
    /// The state of all contenders, in memory: none pays for a disk.
    pub(crate) state: tempfile::TempDir,
    /// The far ends of the VNIC links live as long as their namespaces.
    _routers: Vec<Netns>,
}

impl Node {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let VnicHost { host, routers } = VnicHost::new();
        let state = tempfile::Builder::new().prefix("pod-path-bench-").tempdir_in(memory())?;
        Ok(Self { host, state, _routers: routers })
    }
}

/// Writes the pools that our plugin reads: 126 addresses on each VNIC, so that a burst of 110 pods fits.
pub(crate) fn write_pools(state: &Path, families: &[Family]) -> anyhow::Result<()> {
    let families = match families {
        [Family::Ipv4] => Families::V4,
        [Family::Ipv6] => Families::V6,
        _ => Families::Dual,
    };
    let vnics = (0..2).map(|number| {
        let vnic_id = format!("ocid1.vnic.oc1.iad.{}{number}", "a".repeat(59)).parse()?;
        Ok(VnicPool { vnic_id, ..vnic_pool(number, families, ["10.0.N.128/25", "2001:db8:N::80/121"]) })
    });
    Pools::new(BootId::current()?, vnics.collect::<anyhow::Result<_>>()?, None).write(state)?;
    Ok(())
}

/// A directory in memory: /run is fresh where tests/runner started us.
fn memory() -> &'static Path {
    Path::new(if std::env::var_os("OKE_TEST_ISOLATED").is_some() { "/run" } else { "/dev/shm" })
}
