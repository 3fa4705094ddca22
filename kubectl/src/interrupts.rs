//! The signals by which a user ends the command: Ctrl-C, and SIGTERM where the system has it.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::{CtrlC, ctrl_c};

/// From its creation on, such a signal does not end the process.
#[cfg(unix)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

#[cfg(unix)]
impl Interrupts {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one. Cancel-safe, as both receivers are.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// From its creation on, Ctrl-C does not end the process.
#[cfg(windows)]
pub(crate) struct Interrupts {
    ctrl_c: CtrlC,
}

#[cfg(windows)]
impl Interrupts {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { ctrl_c: ctrl_c()? })
    }

    /// Waits for the next one. Cancel-safe, as the receiver is.
    pub(crate) async fn next(&mut self) {
        self.ctrl_c.recv().await;
    }
}
