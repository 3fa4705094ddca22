//! One run of a program: fed its document, timed from before its start until its end was seen.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::errno::Errno;
use nix::sys::prctl;
use serde_json::Value;

/// What one run took and said.
#[derive(Debug)]
pub(crate) struct Run {
    /// From before the process was made until its end was known.
    pub(crate) wall: Duration,
    /// User and system time of the process and of all that it started, what outlived it included.
    pub(crate) cpu: Duration,
    /// What it wrote to stdout.
    pub(crate) output: Vec<u8>,
}

impl Run {
    /// The result of an ADD: it must be JSON and have an address.
    pub(crate) fn added(self) -> anyhow::Result<Value> {
        let text = String::from_utf8_lossy(&self.output);
        let result: Value = serde_json::from_str(&text).with_context(|| format!("ADD answered no JSON: {text}"))?;
        let address = result.pointer("/ips/0/address").and_then(Value::as_str);
        ensure!(address.is_some(), "ADD answered no address: {text}");
        Ok(result)
    }
}

/// Runs `command` with `document` on its stdin.
pub(crate) fn run(command: &mut Command, document: &[u8]) -> anyhow::Result<Run> {
    // Written beforehand: a document is far smaller than a pipe, so the program finds all of it and its end at once.
    let (stdin, mut feed) = std::io::pipe()?;
    feed.write_all(document)?;
    drop(feed);
    let (mut answer, stdout) = std::io::pipe()?;
    command.stdin(Stdio::from(OwnedFd::from(stdin))).stdout(Stdio::from(OwnedFd::from(stdout)));

    // What it leaves behind comes to us.
    prctl::set_child_subreaper(true)?;
    command.process_group(0);

    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("start {command:?}"))?;
    let group = libc::pid_t::try_from(child.id())?;
    let (status, mut cpu) = wait(group).with_context(|| format!("wait for {command:?}"))?;
    let wall = start.elapsed();

    loop {
        match wait(-group) {
            Ok((_, more)) => cpu += more,
            Err(error) if error.downcast_ref() == Some(&Errno::ECHILD) => break,
            Err(error) => return Err(error.context(format!("wait for what {command:?} has left"))),
        }
    }

    // Our own copy of the writing end, or the answer would have no end.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut output = Vec::new();
    answer.read_to_end(&mut output)?;
    if !(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0) {
        bail!("{command:?} ended with wait status {status:#x}: {}", String::from_utf8_lossy(&output));
    }
    Ok(Run { wall, cpu, output })
}

/// How long a program's file is, in bytes.
pub(crate) fn size_of(program: &Path) -> anyhow::Result<u64> {
    Ok(std::fs::metadata(program).with_context(|| format!("look at {}", program.display()))?.len())
}

#[expect(unsafe_code, reason = "no crate wraps wait4, which alone gives one child's resource usage")]
fn wait(pid: libc::pid_t) -> anyhow::Result<(libc::c_int, Duration)> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid: it is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers lead to locals that outlive the call.
        match Errno::result(unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) }) {
            Err(Errno::EINTR) => {}
            other => {
                other?;
                break;
            }
        }
    }
    Ok((status, duration(usage.ru_utime)? + duration(usage.ru_stime)?))
}

fn duration(time: libc::timeval) -> anyhow::Result<Duration> {
    Ok(Duration::from_secs(time.tv_sec.try_into()?) + Duration::from_micros(time.tv_usec.try_into()?))
}
