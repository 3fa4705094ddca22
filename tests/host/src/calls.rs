//! A program under strace: which system calls a run makes, and the same run with one of them failing or deadly.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::SystemTime;

use crate::plugin::assert_success;

/// One system call of a run: the `nth` of that name, among those that `below` does not leave out.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name of the system call.
    pub name: String,
    /// Its number among the calls of that name, from 1.
    pub nth: usize,
    /// Only calls about this path count. So the calls of the thread that visits the pod are distinguished from the main thread's.
    pub below: Option<&'static str>,
    /// As strace shows it, cut short.
    pub line: String,
}

/// What befalls a call, which is then not carried out.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// It fails with this error.
    Error(&'static str),
    /// This call and all later ones of its name.
    ErrorFromThen(&'static str),
    /// The program dies of it.
    Kill,
    /// It is late by so many seconds.
    Late(u32),
}

/// A run that something befell.
#[derive(Debug)]
pub struct Traced {
    /// The status and the output of the program.
    pub output: Output,
    /// Whether the run came to the call at all: which calls are made depends on what others do at the same time.
    pub hit: bool,
    /// How many calls of that name there were.
    pub made: usize,
    /// The calls that failed, as strace shows them: the same number is another call where the run went another way.
    pub injected: Vec<String>,
}

impl Call {
    /// Every call of a program that succeeds, from its first line on; a dynamic loader's before that do not count. `run` runs it.
    pub fn all(program: &str, below: Option<&'static str>, run: impl FnOnce(Command) -> Output) -> Vec<Self> {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut strace = strace(log.path(), below);
        strace.arg(program);
        assert_success(&run(strace));
        let text = fs::read_to_string(&log).unwrap();
        let mut made: HashMap<(&str, &str), usize> = HashMap::new();
        let mut calls = Vec::new();
        let mut begun = below.is_some();
        let main = text.split(' ').next();
        for line in text.lines() {
            let Some((thread, call)) = line.split_once(' ') else { continue };
            let call = call.trim_start();
            // A write to a sysctl that finds the kernel's network lock taken is restarted, as often as that happens.
            if call.contains("= ? ERESTART") {
                continue;
            }
            let Some((name, _)) = call.split_once('(').filter(|(name, _)| !name.contains([' ', '+', '-'])) else {
                continue;
            };
            let nth = made.entry((thread, name)).or_default();
            *nth += 1;
            begun |= call.starts_with("fcntl(0, F_GETFD");
            if begun && name != "exit_group" && (Some(thread) == main || below.is_some()) {
                let line = call.chars().take(120).collect();
                calls.push(Self { name: name.to_owned(), nth: *nth, below, line });
            }
        }
        calls
    }

    /// A program with this call failing, or deadly.
    pub fn inject(&self, fault: Fault, program: &str, run: impl FnOnce(Command) -> Output) -> Traced {
        let log = tempfile::NamedTempFile::new().unwrap();
        let Self { name, nth, .. } = self;
        let effect = match fault {
            Fault::Error(number) => format!("error={number}:when={nth}"),
            Fault::ErrorFromThen(number) => format!("error={number}:when={nth}+"),
            Fault::Kill => format!("signal=SIGKILL:when={nth}"),
            Fault::Late(seconds) => format!("delay_enter={seconds}000000:when={nth}"),
        };
        let mut strace = strace(log.path(), self.below);
        strace.arg(format!("--trace={name}")).arg(format!("--inject={name}:{effect}")).arg(program);
        let output = run(strace);
        let text = fs::read_to_string(&log).unwrap();
        let injected: Vec<_> = text.lines().filter(|line| line.contains("(INJECTED)")).map(str::to_owned).collect();
        let hit = match fault {
            // strace ends as its tracee did.
            Fault::Kill => output.status.signal() == Some(nix::libc::SIGKILL),
            _ => !injected.is_empty(),
        };
        Traced { output, hit, made: text.matches(&format!("{name}(")).count(), injected }
    }
}

/// One in `every`, from another one on at each run, so that repeated runs come to all of them; in a soak (`SOAK=1`) all.
pub fn sample<T>(all: Vec<T>, every: usize) -> Vec<T> {
    if std::env::var_os("SOAK").is_some() {
        return all;
    }
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let first = usize::try_from(since.as_secs()).unwrap() % every;
    all.into_iter().skip(first).step_by(every).collect()
}

/// strace that writes to a file what it sees of calls, about a path or of all.
fn strace(log: &Path, below: Option<&str>) -> Command {
    let found = Command::new("strace").arg("--version").output();
    assert!(
        !found.is_err_and(|error| error.kind() == ErrorKind::NotFound),
        "strace is missing, and without it nothing can be made to fail: run 'make setup' (see packages.txt)"
    );
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", "--quiet=all", "--output"]).arg(log);
    strace.args(below.iter().flat_map(|path| ["--trace-path", path]));
    strace
}
