//! The CNI versions that plugin binaries speak, by their answers to VERSION. A configuration may only promise what every
//! binary of the chain speaks, because a runtime uses the highest promised version without a check.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

/// VERSION is one process start, some milliseconds; a plugin that takes longer is broken.
const DEADLINE: Duration = Duration::from_secs(2);

/// Between checks of a process.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// How long a killed process may take to end.
const KILL: Duration = Duration::from_millis(500);

const NO_INTERPRETER: &str = "it does not start: its program interpreter is missing here (the dynamic loader of a \
                                         binary that is not static, or what a script names after #!)";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

/// A binary's answer to VERSION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Missing,
    Speaks(BTreeSet<Version>),
    /// It did not answer, or not as the specification says.
    Failed(String),
}

impl Version {
    /// The version that our configuration is written in: the newest that every runtime in the field knows.
    pub(crate) const CONFIGURATION: Self = Self(1, 0, 0);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl FromStr for Version {
    type Err = ();

    /// A pre-release is refused: it cannot be promised.
    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
        match parts.as_deref() {
            Ok([major, minor, patch]) => Ok(Self(*major, *minor, *patch)),
            _ => Err(()),
        }
    }
}

/// A binary's answer to VERSION.
pub(crate) fn query(path: &Path) -> Answer {
    query_within(path, DEADLINE).unwrap_or_else(Answer::Failed)
}

/// One VERSION question to one binary: a process in a group of its own, killed at the deadline with all that it started.
fn query_within(path: &Path, deadline: Duration) -> Result<Answer, String> {
    let end = Instant::now() + deadline;
    let mut command = Command::new(path);
    command.env_clear().env("CNI_COMMAND", "VERSION").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = loop {
        match command.spawn() {
            Ok(child) => break child,
            // Some process, forked while another wrote the file, still has it open.
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                thread::sleep(POLL_EVERY);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => return Ok(Answer::Missing),
            // The kernel reports a file that is there as missing if its interpreter is.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NO_INTERPRETER.to_owned()),
            Err(error) => return Err(format!("it does not start: {error}")),
        }
    };
    if let Some(mut stdin) = child.stdin.take() {
        // Old plugins read it; one that does not may have closed it already.
        let _ = stdin.write_all(br#"{"cniVersion":"1.0.0"}"#);
    }
    let ended = wait(&mut child, end);
    if let Ok(group) = i32::try_from(child.id()) {
        // It, or what it left behind in its group. Fails only if all of them have ended.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let Some(status) = ended.map_err(|error| format!("waiting for it: {error}"))? else {
        // One that the kernel does not end must not stop the installer.
        let _ = wait(&mut child, Instant::now() + KILL);
        return Err(format!("no answer within {deadline:?}"));
    };
    // A pipe holds more than any answer, so nothing is read before the end. A process that left the group may hold it open
    // without end, so reading does not block.
    let mut text = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        let _ = fcntl(&stdout, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        let _ = stdout.read_to_end(&mut text);
    }
    parse(&text, status)
}

/// Waits until a process ends, but no longer than until `end`.
fn wait(child: &mut Child, end: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            None if Instant::now() < end => thread::sleep(POLL_EVERY),
            ended => return Ok(ended),
        }
    }
}

fn parse(text: &[u8], status: ExitStatus) -> Result<Answer, String> {
    let shown = || format!("{:?}", String::from_utf8_lossy(text).chars().take(120).collect::<String>());
    if !status.success() {
        return Err(format!("it ended with {status}: {}", shown()));
    }
    let document: Option<Value> = serde_json::from_slice(text).ok();
    let versions = document.as_ref().and_then(|document| document.get("supportedVersions")?.as_array());
    let versions = versions.ok_or_else(|| format!("its answer is {}, without supportedVersions", shown()))?;
    Ok(Answer::Speaks(versions.iter().filter_map(|version| version.as_str()?.parse().ok()).collect()))
}
