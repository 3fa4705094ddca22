//! A process tree of its own, so that nothing outlives a sandbox and two never meet.
//!
//! ```text
//!   caller ── outer: waits, passes signals on, ends as the worker ended
//!               └─ init: process 1 of a new PID namespace, reaps orphans; dies with `outer` (kill -9 included)
//!                    └─ worker: everything else; what it leaves behind dies with `init`
//! ```

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getegid, geteuid, pipe};

use crate::error::{Error, ErrorContext, Result};

/// The process that works in the new namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolated {
    /// The worker's process number as seen from outside: for `nsenter` hints.
    pub outer_pid: u32,
    /// Whether a user namespace was needed, because the caller was not root.
    pub user_namespace: bool,
}

/// Moves the process into namespaces of its own: PID, mount and network, and a user namespace where the caller is not
/// root. Returns in a new process only; the calling one waits, and ends as that one does.
///
/// # Errors
/// When the process has threads already, or the kernel refuses user namespaces to this user.
pub fn isolate() -> Result<Isolated> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, |tasks| tasks.count());
    if threads > 1 {
        return Err(Error::Invalid("a process can be isolated only before it starts threads".to_owned()));
    }
    let user_namespace = !geteuid().is_root();
    if user_namespace {
        become_root()?;
    }
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID)
        .during(|| "make namespaces")?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .during(|| "make mounts private")?;
    // From here on signals are waited for, so that none is lost; the worker gets the mask back.
    let mask = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK);
    let mask = mask.during(|| "block signals")?;
    descend()?;
    descend()?;
    mask.thread_set_mask().during(|| "restore signals")?;
    // The machine's /proc is still in place: it shows the number as seen from outside.
    let outer_pid = fs::read_link("/proc/self").ok().and_then(|pid| pid.to_str()?.parse().ok()).unwrap_or(0);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    // Refused where parts of /proc are hidden (containers); the machine's works as well, with other process numbers.
    let _ = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>);
    Ok(Isolated { outer_pid, user_namespace })
}

/// Maps this user to root in a new user namespace.
fn become_root() -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER)
        .during(|| format!("make a user namespace for user {user} (not root, and the kernel must allow it)"))?;
    for (file, content) in
        [("setgroups", "deny".to_owned()), ("uid_map", format!("0 {user} 1")), ("gid_map", format!("0 {group} 1"))]
    {
        fs::write(format!("/proc/self/{file}"), content).during(|| format!("write /proc/self/{file}"))?;
    }
    Ok(())
}

/// Forks: the parent supervises and never returns, the child goes on and dies with the parent.
fn descend() -> Result<()> {
    let (watch, hold) = pipe().during(|| "make a pipe")?;
    match fork_once()? {
        ForkResult::Parent { child } => {
            drop(watch);
            supervise(child, hold)
        }
        ForkResult::Child => {
            drop(hold);
            prctl::set_pdeathsig(Signal::SIGKILL).during(|| "die with the parent")?;
            // The parent may have died before that was set: then the pipe is closed.
            let mut fds = [PollFd::new(watch.as_fd(), PollFlags::empty())];
            match poll(&mut fds, PollTimeout::ZERO) {
                Ok(0) => Ok(()),
                _ => Err(Error::Invalid("the parent process died".to_owned())),
            }
        }
    }
}

#[expect(unsafe_code, reason = "a PID namespace is entered by its first child only")]
fn fork_once() -> Result<ForkResult> {
    // SAFETY: the process has one thread (checked by `isolate`), so the child may do what the parent may.
    unsafe { fork() }.during(|| "fork")
}

/// Waits for the child, passes signals on to it, reaps orphans, and ends as it ended.
#[expect(clippy::exit, reason = "this process has nothing else to do, and must not run its caller's code twice")]
fn supervise(child: Pid, _hold: OwnedFd) -> ! {
    let signals = SigSet::all();
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {
                while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                    match status {
                        WaitStatus::Exited(pid, code) if pid == child => std::process::exit(code),
                        WaitStatus::Signaled(pid, signal, _) if pid == child => {
                            std::process::exit(128 + signal as i32);
                        }
                        WaitStatus::StillAlive => break,
                        _ => {}
                    }
                }
            }
            Ok(signal @ (Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT)) => {
                // It may just have ended; SIGCHLD will follow.
                let _ = kill(child, signal);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => std::process::exit(1),
        }
    }
}
