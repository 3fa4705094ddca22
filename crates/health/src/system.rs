//! What collectors read from the kernel and from loopback other than files, behind one trait. It has a real implementation, and one
//! for recorded nodes in tests.

#[cfg(target_os = "linux")]
mod machine;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use vcn::{ConntrackCounts, HealthReporter};

#[cfg(target_os = "linux")]
pub use machine::Machine;

/// Kernel calls and local requests.
pub trait System: Send + Sync {
    /// The state of the kernel's clock.
    ///
    /// # Errors
    /// As the kernel answers.
    fn clock(&self) -> io::Result<Clock>;

    /// The newest part of the kernel's log, a line for each message: `<6>[   12.345678] text`.
    ///
    /// # Errors
    /// `PermissionDenied` without SYSLOG.
    fn kernel_log(&self) -> io::Result<String>;

    /// The counts of connection tracking on all CPUs, where /proc does not show them.
    ///
    /// # Errors
    /// As the kernel answers.
    fn conntrack_counts(&self) -> io::Result<ConntrackCounts>;

    /// What drivers report about the health of their devices.
    ///
    /// # Errors
    /// As the kernel answers.
    fn health_reporters(&self) -> io::Result<Vec<HealthReporter>>;

    /// The room of the file system that holds a path. It hangs while a network file system does.
    ///
    /// # Errors
    /// As the kernel answers.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// An HTTP GET of a local service.
    ///
    /// # Errors
    /// Also when the answer is late or is not HTTP.
    fn get(&self, address: SocketAddr, path: &str, deadline: Duration) -> io::Result<Answer>;

    /// The same for a page of metrics.
    ///
    /// # Errors
    /// Also when the page is late, too long or not HTTP.
    fn page(&self, address: SocketAddr, path: &str, deadline: Duration) -> io::Result<Answer>;
}

/// The clocks of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Whether a time service disciplines it.
    pub synchronized: bool,
    /// The kernel's estimate of the error, in microseconds.
    pub estimated_error_micros: i64,
}

/// A file system's room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Its size in bytes.
    pub bytes: u64,
    /// What programs without root's reserve may still write.
    pub available: u64,
    /// How many files it can hold; 0 where there is no bound.
    pub files: u64,
    /// How many more it can hold.
    pub files_free: u64,
}

/// The answer of an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status of HTTP, such as 200.
    pub status: u16,
    /// The body, as far as it was read.
    pub body: String,
    /// The time from connecting to the end of the answer.
    pub took: Duration,
}
