//! The plugin under strace: which system calls a verb makes, and the same verb with one of them failing or deadly.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Output};
use std::time::SystemTime;

use serde_json::Value;

use crate::faults::scene::Scene;
use crate::node::{Node, PLUGIN};

/// One verb, as a runtime calls it.
pub(crate) struct Run<'a> {
    pub(crate) node: &'a Node,
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) conf: Value,
}

/// One system call of a run: the `nth` of that name, among those that `below` does not leave out.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    nth: usize,
    /// Only calls about this path count. So the calls of the thread that visits the pod are distinguished from the main thread's.
    below: Option<&'static str>,
    /// As strace shows it, cut short.
    pub(crate) line: String,
}

/// What befalls a call, which is then not carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Error(&'static str),
    /// This call and all later ones of its name.
    ErrorFromThen(&'static str),
    Kill,
}

pub(crate) struct Outcome {
    pub(crate) output: Output,
    /// Whether the run came to the call at all: which calls are made depends on what others do at the same time.
    pub(crate) hit: bool,
    /// How many calls of that name there were.
    made: usize,
    /// The call that failed, as strace shows it: the same number of another call where the run went another way.
    pub(crate) struck: String,
    /// Not to answer is excused where the answer itself could not be written, and where the thread could not come home
    /// from the pod's namespace.
    pub(crate) may_die: bool,
}

impl Run<'_> {
    /// Without strace.
    pub(crate) fn plain(&self) -> Output {
        self.by(Command::new(PLUGIN))
    }

    /// Every call the program makes from its first line on; a dynamic loader's before that do not count.
    pub(crate) fn calls(&self, below: Option<&'static str>) -> Vec<Call> {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut strace = strace(log.path(), below);
        strace.arg(PLUGIN);
        let output = self.by(strace);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
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
                calls.push(Call { name: name.to_owned(), nth: *nth, below, line });
            }
        }
        calls
    }

    /// The same with the first call of a name being deadly, which only a child of the program makes: hit when it made none
    /// after it.
    pub(crate) fn with_a_child_killed_at(&self, name: &str) -> Outcome {
        let call = Call { name: name.to_owned(), nth: 1, below: None, line: name.to_owned() };
        let outcome = self.with(&call, Fault::Kill);
        Outcome { hit: outcome.made == 1, ..outcome }
    }

    /// The same with the second call of a name late by some seconds, which only a child of the program makes. Answers when all
    /// have ended.
    pub(crate) fn with_a_child_late_at_its_second(&self, name: &str, seconds: u32) -> Output {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut strace = strace(log.path(), None);
        strace.arg(format!("--trace={name}"));
        strace.arg(format!("--inject={name}:delay_enter={seconds}000000:when=2"));
        strace.arg(PLUGIN);
        self.by(strace)
    }

    /// The same with one call failing, or deadly.
    pub(crate) fn with(&self, call: &Call, fault: Fault) -> Outcome {
        let log = tempfile::NamedTempFile::new().unwrap();
        let nth = call.nth;
        let effect = match fault {
            Fault::Error(number) => format!("error={number}:when={nth}"),
            Fault::ErrorFromThen(number) => format!("error={number}:when={nth}+"),
            Fault::Kill => format!("signal=SIGKILL:when={nth}"),
        };
        let mut strace = strace(log.path(), call.below);
        strace.arg(format!("--trace={}", call.name));
        strace.arg(format!("--inject={}:{effect}", call.name));
        strace.arg(PLUGIN);
        let output = self.by(strace);
        let text = fs::read_to_string(&log).unwrap();
        let injected = || text.lines().filter(|line| line.contains("(INJECTED)"));
        let hit = match fault {
            Fault::Error(_) | Fault::ErrorFromThen(_) => injected().next().is_some(),
            // strace ends as its tracee did.
            Fault::Kill => output.status.signal() == Some(libc::SIGKILL),
        };
        let may_die = injected().any(|line| line.contains(" write(1, ") || line.contains(" setns("));
        let made = text.matches(&format!("{}(", call.name)).count();
        let struck = injected().next().unwrap_or_default().to_owned();
        Outcome { output, hit, made, struck, may_die }
    }

    fn by(&self, program: Command) -> Output {
        let environment: Vec<_> = self.environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.node.spawn(program, &environment, &self.conf).wait_with_output().unwrap()
    }
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

/// What is deleted by a request to the kernel, as strace shows it. That does not always find out that a socket is a routing
/// one, and then shows the number instead (linux/rtnetlink.h).
pub(crate) fn deletion(call: &str) -> Option<&'static str> {
    let deletions = [
        ("RTM_DELLINK", "0x11"),
        ("RTM_DELADDR", "0x15"),
        ("RTM_DELROUTE", "0x19"),
        ("RTM_DELNEIGH", "0x1d"),
        ("RTM_DELRULE", "0x21"),
    ];
    let (_, sent) = call.split_once("sendto(")?;
    let (_, kind) = sent.split_once("type=")?;
    let shown = kind.split([',', ' ']).next()?;
    deletions.iter().find(|(name, number)| [name, number].contains(&&shown)).map(|(name, _)| *name)
}

#[test]
fn deletion_is_recognized_by_name_or_number() {
    for (shown, what) in [
        ("nlmsg_type=RTM_DELRULE, ", Some("RTM_DELRULE")),
        ("nlmsg_type=0x21 /* NLMSG_??? */, ", Some("RTM_DELRULE")),
        ("nlmsg_type=RTM_NEWRULE, ", None),
        ("nlmsg_type=0x210 /* NLMSG_??? */, ", None),
    ] {
        assert_eq!(deletion(&format!("sendto(3, [{{nlmsg_len=32, {shown}nlmsg_flags=NLM_F_REQUEST")), what, "{shown}");
    }
}

/// Carries out every case, in scenes of their own, and says all of those that failed.
pub(crate) fn on_each(cases: &[(Call, &'static str)], run: impl Fn(&Scene, &(Call, &'static str), &str) -> bool) {
    let (mut missed, mut failures) = (Vec::new(), Vec::new());
    // A scene has fresh addresses for so many, each twice.
    for cases in cases.chunks(50) {
        let mut scene = Scene::new();
        for failure in cases {
            let case = format!("{} at {}", failure.1, failure.0.line);
            // Once more where the run went another way: one in ten may, and there may be only two.
            let came = || run(&scene, failure, &case) || run(&scene, failure, &case);
            match catch_unwind(AssertUnwindSafe(came)) {
                Ok(true) => {}
                Ok(false) => missed.push(case),
                Err(_) => {
                    failures.push(case);
                    scene = Scene::new();
                }
            }
        }
        scene.assert_resident_works();
    }
    let all = cases.len();
    assert!(failures.is_empty(), "{} of {all} cases: {failures:#?}", failures.len());
    assert!(
        missed.len() * 10 <= all,
        "{} of {all} runs never made the call that was to fail: {missed:#?}",
        missed.len()
    );
}

/// One in `every`, from another one on at each run, so that repeated runs come to all of them; in a soak (`SOAK=1`) all.
pub(crate) fn sample<T>(all: Vec<T>, every: usize) -> Vec<T> {
    if std::env::var_os("SOAK").is_some() {
        return all;
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let first = usize::try_from(since.as_secs()).unwrap() % every;
    all.into_iter().skip(first).step_by(every).collect()
}
