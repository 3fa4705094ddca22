//! Threads that read files: of collectors, and of the rules.

use std::io;
use std::thread;

/// Their stack in bytes: they read files into buffers on the heap.
const STACK_SIZE: usize = 256 << 10;

/// Starts one. Nothing waits for its end.
pub(super) fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).stack_size(STACK_SIZE).spawn(work).map(drop)
}
