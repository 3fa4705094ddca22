//! A demo that stays up: a process of its own in the background, found again by a file that names it.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, geteuid, pipe, setsid};

/// Runs the same command again in a session of its own, and returns once that says by the pipe that it is up.
pub(crate) fn in_background() -> Result<ExitCode> {
    let (ours, theirs) = pipe()?;
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).arg("--ready-fd").arg(theirs.as_raw_fd().to_string());
    // Ctrl-C at the terminal is not for it.
    own_session(&mut command);
    let mut child = command.spawn().context("cannot start the demo in the background")?;
    drop(theirs);
    let mut word = String::new();
    File::from(ours).read_to_string(&mut word)?;
    if word != READY {
        let status = child.wait()?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let file = record()?;
    fs::write(&file, child.id().to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Says that the demo is up, and waits until it is told to end.
pub(crate) fn hold(ready: Option<RawFd>) -> Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    if let Some(fd) = ready {
        use std::io::Write;
        let mut pipe = File::from(adopt(fd));
        pipe.write_all(READY.as_bytes()).context("cannot say that the demo is up")?;
    }
    signals.wait()?;
    Ok(())
}

/// Ends the demo that was left up.
pub(crate) fn down() -> Result<ExitCode> {
    let file = record()?;
    let pid = match fs::read_to_string(&file) {
        Ok(text) => text.trim().parse::<i32>().with_context(|| format!("{} names no process", file.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("no demo is up");
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    // The number may have been given to another process by now.
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim() == "oke-sandbox" {
        match kill(Pid::from_raw(pid), Signal::SIGTERM) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => bail!("cannot end process {pid}: {errno}"),
        }
    }
    fs::remove_file(&file)?;
    println!("the demo is down");
    Ok(ExitCode::SUCCESS)
}

const READY: &str = "up";

fn record() -> Result<PathBuf> {
    let directory = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    Ok(directory.join(format!("oke-sandbox-demo-{}.pid", geteuid())))
}

#[expect(unsafe_code, reason = "the standard library starts no session by itself")]
fn own_session(command: &mut Command) {
    // SAFETY: setsid is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| setsid().map(|_| ()).map_err(std::io::Error::from));
    }
}

#[expect(unsafe_code, reason = "a descriptor handed over by number can be adopted no other way")]
fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: `in_background` made it for this process, and nobody else here knows the number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
