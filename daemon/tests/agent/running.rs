//! The agent's program while it runs: what it says, how it is stopped, and waiting for what it does.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use host_harness::before_next_look;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use sandbox::kept_waiting;
use serde_json::Value;

/// Far beyond what anything here takes, even where four programs want each processor and each stands still now and then.
const PATIENCE: Duration = Duration::from_secs(180);

/// What the agent promises of repairs.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How often what is promised is tried.
const TRIES: usize = 5;

/// The real program, running on a node. Killed when dropped.
pub(crate) struct Agent {
    child: Mutex<Child>,
    id: u32,
    log: PathBuf,
}

impl Agent {
    pub(crate) fn new(child: Child, log: PathBuf) -> Self {
        Self { id: child.id(), child: Mutex::new(child), log }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The log lines with this event.
    pub(crate) fn events(&self, event: &str) -> Vec<Value> {
        let lines = self.log();
        let parsed = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        parsed.filter(|line| line["event"] == event).collect()
    }

    /// Waits until it says that it made a change that begins so. It says it after the pass that made it: what the kernel or
    /// the disk shows comes first. When it appears, the counts and the report of a reconcile are there, too.
    pub(crate) fn wait_said(&self, event: &str, change: &str) -> Value {
        let found = || {
            let mut lines = self.events(event).into_iter();
            lines.find(|line| line["change"].as_str().is_some_and(|said| said.starts_with(change)))
        };
        wait_for(&format!("{event}: {change}"), || found().is_some(), || self.log());
        found().unwrap()
    }

    pub(crate) const fn id(&self) -> u32 {
        self.id
    }

    /// Sends it a signal. After SIGSTOP it stands still: the signal comes to one thread, which stops the others when it
    /// runs.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.id.try_into().unwrap());
        kill(id, signal).unwrap();
        if signal == Signal::SIGSTOP {
            let stands = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            waitid(Id::Pid(id), stands).unwrap();
        }
    }

    /// SIGTERM; how it ended and after which time.
    pub(crate) fn stop(&self) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        self.signal(Signal::SIGTERM);
        (self.child.lock().unwrap().wait().unwrap(), begun.elapsed())
    }

    /// How long something takes, less what the agent's threads and this one waited for a processor meanwhile: that is the
    /// machine's doing.
    pub(crate) fn timed(&self, work: impl FnOnce() -> Duration) -> Duration {
        let before = kept_waiting(self.id());
        let took = work();
        took.saturating_sub(kept_waiting(self.id()).saturating_sub(before))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Something is done in time at the first try or at one of a few more. Locks of the kernel's and disks are shared with all
/// that runs next to a test, so once may be late; what is slow by itself is late each time.
pub(crate) fn in_time(bound: Duration, what: &str, mut attempt: impl FnMut() -> Duration) {
    let mut late = Vec::new();
    while late.len() < TRIES {
        let took = attempt();
        if took < bound {
            println!("{what}: {took:?}");
            return;
        }
        late.push(took);
    }
    panic!("{what}: not within {bound:?}, but after {late:?}");
}

/// Runs all cases of a table at the same time: each has its own node, and most of its time is waiting.
pub(crate) fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    thread::scope(|scope| cases.into_iter().for_each(|case| drop(scope.spawn(|| run(case)))));
}

/// Waits for a condition; says how long it took. Fails with what `otherwise` tells.
pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool, otherwise: impl FnOnce() -> String) -> Duration {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > PATIENCE {
            panic!("waited {PATIENCE:?} for {what}: {}", otherwise());
        }
        thread::sleep(before_next_look(begun));
    }
    begun.elapsed()
}
