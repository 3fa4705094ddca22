//! What a command that takes long is doing, for people: a line to standard error every two seconds.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::sleep;
use vcn::printable;

const INTERVAL: Duration = Duration::from_secs(2);

/// The step that is in progress.
#[derive(Debug, Default)]
pub(crate) struct Progress(RefCell<String>);

impl Progress {
    pub(crate) fn set(&self, step: String) {
        self.0.replace(step);
    }

    /// Prints the step, again and again; never returns.
    pub(crate) async fn print(&self) {
        loop {
            sleep(INTERVAL).await;
            eprintln!("kubectl oke-node: {}", printable(&self.0.borrow()));
        }
    }
}

/// A number of bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}
