//! A demo that stays up: a process of its own in the background, found again by a file that names it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, geteuid, pipe, setsid};

/// Runs the same command again in a session of its own, shows what it says, and returns once it is up.
pub(crate) fn in_background() -> Result<ExitCode> {
    let (ours, theirs) = pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    // Its output goes through this process: were it ours, a pipe behind us would stay open as long as the demo.
    command.args(std::env::args_os().skip(1)).arg("--in-background");
    command.stdin(Stdio::null()).stdout(theirs.try_clone()?).stderr(theirs);
    // Ctrl-C at the terminal is not for it.
    own_session(&mut command);
    let mut child = command.spawn().context("cannot start the demo in the background")?;
    drop(command);
    for line in BufReader::new(File::from(ours)).lines() {
        match line? {
            line if line == READY => {
                let file = record()?;
                fs::write(&file, child.id().to_string()).with_context(|| format!("cannot write {}", file.display()))?;
                return Ok(ExitCode::SUCCESS);
            }
            line => println!("{line}"),
        }
    }
    let status = child.wait()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says that the demo is up, and waits until it is told to end.
pub(crate) fn hold() -> Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    println!("{READY}");
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

/// The line by which the demo says that it is up; it is not shown.
const READY: &str = "@up";

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
