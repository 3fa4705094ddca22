//! A listener for the plugin's records, like the agent on every node: without one, the plugin does the agent's
//! share of the work itself.

use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use telemetry::Listener;

/// Takes records in `state` for as long as this program runs.
pub(crate) fn listen(state: &Path) -> anyhow::Result<()> {
    let listener = Listener::bind(state).context("listen for records")?;
    thread::Builder::new().name("listener".into()).spawn(move || {
        loop {
            let mut waiting = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            if poll(&mut waiting, PollTimeout::NONE).is_ok() {
                while listener.recv().is_ok() {}
            }
        }
    })?;
    Ok(())
}
