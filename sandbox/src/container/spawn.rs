//! The first process of a container.

use std::fs;
use std::io;
use std::process::{Child, Command};

use nix::sched::{CloneFlags, setns, unshare};

/// Starts a command as process 1 of a PID namespace of its own, which is what a container's first process is. The number
/// of the child is the caller's.
pub fn spawn_first(command: &mut Command) -> io::Result<Child> {
    let own = fs::File::open("/proc/thread-self/ns/pid")?;
    // Of this thread: the next child is the first process of the new namespace.
    unshare(CloneFlags::CLONE_NEWPID)?;
    let child = command.spawn();
    setns(own, CloneFlags::CLONE_NEWPID)?;
    child
}
