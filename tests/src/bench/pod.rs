//! A pod's namespace, empty but for its loopback link.

use std::process::Command;

use anyhow::ensure;
use netlink::{LinkChange, Netns, Socket};

/// A pod to be.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) netns: Netns,
    pub(crate) id: String,
}

impl Pod {
    pub(crate) fn new(id: String) -> anyhow::Result<Self> {
        let netns = Netns::create()?;
        netns.run(|| -> anyhow::Result<()> {
            let mut socket = Socket::open()?;
            let lo = socket.index_of(&vcn::IfName::new("lo")?)?;
            Ok(socket.change_link(lo, &[LinkChange::Up])?)
        })??;
        Ok(Self { netns, id })
    }

    /// The path that its processes would be reached by: it lives as long as this does.
    pub(crate) fn path(&self) -> String {
        host_harness::path_of(&self.netns).display().to_string()
    }

    /// Fails unless `target` answers an echo request of this pod. The first may be lost: a busy kernel begins to send by a link
    /// some time after it was raised.
    pub(crate) fn must_reach(&self, target: &str) -> anyhow::Result<()> {
        let ping = || Command::new("ping").args(["-n", "-c", "5", "-i", "0.2", "-w", "5", target]).output();
        let output = self.netns.run(ping)??;
        ensure!(output.status.success(), "{target} cannot be reached: {}", String::from_utf8_lossy(&output.stdout));
        Ok(())
    }
}
