//! A demo that stays up: a process of its own in the background, found again by a file that names it. The file may be in /tmp,
//! so no link is followed, and another user's file is refused.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use ipam::write_atomically;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, geteuid, pipe, setsid};

use crate::cli::vcn::block_signals;

/// Runs the same command again in a session of its own, shows its output, and returns once it is up.
pub(crate) fn in_background() -> Result<ExitCode> {
    let (output, input) = pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    // Its output goes through this process: if it inherited this one, a pipe there would stay open as long as the demo.
    command.args(std::env::args_os().skip(1)).arg("--in-background");
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    // Ctrl-C at the terminal is not for it.
    own_session(&mut command);
    let mut child = command.spawn().context("cannot start the demo in the background")?;
    drop(command);
    for line in BufReader::new(File::from(output)).lines() {
        match line? {
            line if line == READY => {
                let (file, pid) = (record(), Pid::from_raw(i32::try_from(child.id())?));
                if let Err(error) = write_atomically(&file, pid.to_string().as_bytes()) {
                    // It would not be found again.
                    kill(pid, Signal::SIGTERM)?;
                    return Err(error).with_context(|| {
                        format!(
                            "cannot write {}; remove it, or set XDG_RUNTIME_DIR to a directory of yours",
                            file.display()
                        )
                    });
                }
                return Ok(ExitCode::SUCCESS);
            }
            line => println!("{line}"),
        }
    }
    let status = child.wait()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reports that the demo is up, and waits for a signal.
pub(crate) fn hold() -> Result<()> {
    let signals = block_signals(&[])?;
    println!("{READY}");
    signals.wait()?;
    Ok(())
}

/// Ends the demo that was left up.
pub(crate) fn down() -> Result<ExitCode> {
    let file = record();
    let Some(pid) = read(&file, geteuid()).with_context(|| format!("cannot read {}", file.display()))? else {
        println!("no demo is up");
        return Ok(ExitCode::SUCCESS);
    };
    // The number may have been given to another process by now.
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim() == "oke-sandbox" {
        match kill(pid, Signal::SIGTERM) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => bail!("cannot end process {pid}: {errno}"),
        }
    }
    fs::remove_file(&file)?;
    println!("the demo is down");
    Ok(ExitCode::SUCCESS)
}

/// The line that reports that the demo is up; it is not shown.
const READY: &str = "@up";

/// The longest process id, in bytes.
const LONGEST: u64 = 20;

fn record() -> PathBuf {
    let directory = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    directory.join(format!("oke-sandbox-demo-{}.pid", geteuid()))
}

/// The process that the file names, which must be a file of `owner`; `None` where there is none.
fn read(file: &Path, owner: Uid) -> Result<Option<Pid>> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = match File::options().read(true).custom_flags(flags.bits()).open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let found = opened.metadata()?;
    if !found.is_file() || found.uid() != owner.as_raw() {
        bail!("it is not a regular file of user {owner}; remove it");
    }
    let mut text = String::new();
    opened.take(LONGEST).read_to_string(&mut text)?;
    let pid = text.trim().parse::<i32>().ok().filter(|pid| *pid > 1).context("it names no process")?;
    Ok(Some(Pid::from_raw(pid)))
}

#[expect(unsafe_code, reason = "the standard library starts no session by itself")]
fn own_session(command: &mut Command) {
    // SAFETY: setsid is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| setsid().map(|_| ()).map_err(std::io::Error::from));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn record_is_written_through_no_link_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let (file, outside) = (directory.path().join("demo.pid"), directory.path().join("outside"));
        fs::write(&outside, "kept").unwrap();
        for to in [&outside, &directory.path().join("nothing")] {
            symlink(to, &file).unwrap();
            assert!(read(&file, geteuid()).is_err(), "a link is refused");
            write_atomically(&file, b"4711").unwrap();
            assert_eq!(file.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(read(&file, geteuid()).unwrap(), Some(Pid::from_raw(4711)));
            fs::remove_file(&file).unwrap();
        }
        assert_eq!(fs::read_to_string(&outside).unwrap(), "kept");
        assert!(!directory.path().join("nothing").exists());
        assert_eq!(read(&file, geteuid()).unwrap(), None);
    }

    #[test]
    fn record_of_another_user_or_of_no_process_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("demo.pid");
        write_atomically(&file, b"4711").unwrap();
        let other = Uid::from_raw(geteuid().as_raw() + 1);
        assert!(read(&file, other).unwrap_err().to_string().contains("it is not a regular file of user"));
        for text in ["", "0", "-1", "1", "x", "47114711471147114711"] {
            fs::write(&file, text).unwrap();
            assert_eq!(read(&file, geteuid()).unwrap_err().to_string(), "it names no process", "{text}");
        }
        fs::remove_file(&file).unwrap();
        mkfifo(&file, Mode::S_IRWXU).unwrap();
        assert!(read(&file, geteuid()).is_err());
    }
}
