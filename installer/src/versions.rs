//! Asking a plugin binary for the CNI versions that it speaks: a configuration may only promise what every binary of
//! the chain can do, because runtimes pick the highest version promised without asking.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde_json::Value;

/// VERSION is one process start; a plugin that takes longer is broken, and the caller has other things to do.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// Between looks at a process that closed its output but has not ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The longest answer read.
const LONGEST: usize = 64 << 10;

const NO_INTERPRETER: &str = "it does not start: its program interpreter is missing here (the dynamic loader of a binary \
                              that is not static, or what a script names after #!)";

/// A CNI version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

/// What came of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is no such binary.
    Missing,
    /// The versions that it speaks.
    Speaks(BTreeSet<Version>),
    /// It did not answer as it should.
    Refused(String),
    /// It is being asked, and nothing is known of before.
    Awaited,
}

impl Version {
    /// The version that our configuration is written in: the newest that every runtime in the field knows.
    pub(crate) const CONFIGURATION: Self = Self(1, 0, 0);
}

/// Asks a binary.
pub(crate) fn ask(path: &Path) -> Answer {
    ask_within(path, DEADLINE)
}

fn ask_within(path: &Path, deadline: Duration) -> Answer {
    let end = Instant::now() + deadline;
    let mut child = match start(path, end) {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => return Answer::Missing,
        // The kernel says of a file that is there that it is not, when it means the program that is to run it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Answer::Refused(NO_INTERPRETER.to_owned()),
        Err(error) => return Answer::Refused(format!("it does not start: {error}")),
    };
    let said = converse(&mut child, end);
    let ended = end_it(&mut child);
    said.and_then(|text| understood(&text, ended)).unwrap_or_else(Answer::Refused)
}

/// The text is busy (ETXTBSY) as long as any process, forked by chance while somebody wrote the file, holds it open.
fn start(path: &Path, end: Instant) -> io::Result<Child> {
    loop {
        let started = Command::new(path)
            .env_clear()
            .env("CNI_COMMAND", "VERSION")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        match started {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                thread::sleep(LOOK_EVERY);
            }
            other => return other,
        }
    }
}

/// What it says, once it has ended.
fn converse(child: &mut Child, end: Instant) -> Result<Vec<u8>, String> {
    if let Some(mut stdin) = child.stdin.take() {
        // Old plugins read it; one that does not may have closed it already.
        let _ = stdin.write_all(br#"{"cniVersion":"1.0.0"}"#);
    }
    let mut stdout = child.stdout.take().ok_or("its output is not ours to read")?;
    let late = || format!("no answer within {DEADLINE:?}");
    let text =
        read(&mut stdout, end).map_err(|error| format!("its output cannot be read: {error}"))?.ok_or_else(late)?;
    loop {
        match has_ended(child).map_err(|error| format!("waiting for it failed: {error}"))? {
            true => return Ok(text),
            false if Instant::now() >= end => return Err(late()),
            false => thread::sleep(LOOK_EVERY),
        }
    }
}

fn understood(text: &[u8], ended: io::Result<ExitStatus>) -> Result<Answer, String> {
    let status = ended.map_err(|error| format!("waiting for it failed: {error}"))?;
    if !status.success() {
        return Err(format!("it ended with {status}: {}", shown(text)));
    }
    parse(text).ok_or_else(|| format!("its answer is {}, without supportedVersions", shown(text)))
}

/// Without reaping it, which would make its number somebody else's.
fn has_ended(child: &Child) -> io::Result<bool> {
    let id = i32::try_from(child.id()).map_err(io::Error::other)?;
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Ok(waitid(Id::Pid(Pid::from_raw(id)), look)? != WaitStatus::StillAlive)
}

/// All that it says, or nothing if it does not come to an end: a descendant of the plugin may hold the output open for ever.
fn read(stdout: &mut ChildStdout, end: Instant) -> io::Result<Option<Vec<u8>>> {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut waited = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
        // A millisecond more than too little: zero would be no wait at all.
        let patience = PollTimeout::try_from(left + LOOK_EVERY).unwrap_or(PollTimeout::MAX);
        match poll(&mut waited, patience) {
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(0) => return Ok(None),
            Ok(_) => {}
        }
        let length = stdout.read(&mut piece)?;
        text.extend_from_slice(piece.get(..length).unwrap_or_default());
        if length == 0 || text.len() >= LONGEST {
            return Ok(Some(text));
        }
        if left.is_zero() {
            return Ok(None);
        }
    }
}

fn parse(text: &[u8]) -> Option<Answer> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let versions = value.get("supportedVersions")?.as_array()?;
    Some(Answer::Speaks(versions.iter().filter_map(|version| version.as_str()?.parse().ok()).collect()))
}

/// Ends whatever a process has started and left behind, and the process itself if it has not ended. It is reaped last:
/// until then its number is nobody else's.
fn end_it(child: &mut Child) -> io::Result<ExitStatus> {
    if let Ok(group) = i32::try_from(child.id()) {
        // Fails only where all of them have ended.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    child.wait()
}

fn shown(text: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(text).chars().take(120).collect::<String>())
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl FromStr for Version {
    type Err = ();

    /// Anything else than three numbers (a pre-release) is nothing to promise.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('.').map(|part| part.parse().map_err(|_| ()));
        let mut next = || parts.next().ok_or(())?;
        let version = Self(next()?, next()?, next()?);
        if parts.next().is_some() { Err(()) } else { Ok(version) }
    }
}
