//! Programs inside a node or a pod.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};

use crate::container::{Confinement, spawn_first};
use crate::error::{Error, ErrorContext, Result};
use crate::node::Namespaces;

type Job = Box<dyn FnOnce() + Send>;

/// The thread that starts every program. "Kill me when my parent dies" (PR_SET_PDEATHSIG) means the *thread* that
/// forked, so that must live as long as the sandbox, and end with it.
#[derive(Debug)]
pub(crate) struct Spawner {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Spawner {
    pub(crate) fn start() -> Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("sandbox-spawner".to_owned())
            .spawn(move || queue.into_iter().for_each(|job| job()))
            .during(|| "start the spawning thread")?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    /// Kills every program that it started, and starts no more.
    pub(crate) fn stop(&self) {
        if let Ok(mut jobs) = self.jobs.lock() {
            *jobs = None;
        }
        if let Some(thread) = self.thread.lock().ok().and_then(|mut thread| thread.take()) {
            let _ = thread.join();
        }
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let ended = || io::Error::other("the sandbox has ended");
        let (done, result) = channel();
        {
            let jobs = self.jobs.lock().map_err(|_| ended())?;
            jobs.as_ref().ok_or_else(ended)?.send(Box::new(move || drop(done.send(work())))).map_err(|_| ended())?;
        }
        result.recv().map_err(|_| ended())
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A program to be started inside a node or a pod; as [`std::process::Command`], but every call takes and returns it.
///
/// It sees the node's files and network, inherits the environment, and is killed when the sandbox ends.
#[must_use]
#[derive(Debug)]
pub struct Command {
    inner: std::process::Command,
    program: OsString,
    namespaces: Namespaces,
    spawner: std::sync::Arc<Spawner>,
    confinement: Option<Confinement>,
}

impl Command {
    pub(crate) fn new(program: &OsStr, namespaces: Namespaces, spawner: std::sync::Arc<Spawner>) -> Self {
        Self {
            inner: std::process::Command::new(program),
            program: program.to_owned(),
            namespaces,
            spawner,
            confinement: None,
        }
    }

    /// A program in a container on the node.
    pub(crate) fn contained(
        inner: std::process::Command,
        confinement: Confinement,
        namespaces: Namespaces,
        spawner: std::sync::Arc<Spawner>,
    ) -> Self {
        let program = inner.get_program().to_owned();
        Self { inner, program, namespaces, spawner, confinement: Some(confinement) }
    }

    /// Adds an argument to the command line.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.inner.arg(argument);
        self
    }

    /// Adds arguments to the command line.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.inner.args(arguments);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.inner.env(key, value);
        self
    }

    /// Starts it with an empty environment.
    pub fn env_clear(mut self) -> Self {
        self.inner.env_clear();
        self
    }

    /// Sets the standard input.
    pub fn stdin(mut self, stdio: impl Into<Stdio>) -> Self {
        self.inner.stdin(stdio);
        self
    }

    /// Sets the standard output.
    pub fn stdout(mut self, stdio: impl Into<Stdio>) -> Self {
        self.inner.stdout(stdio);
        self
    }

    /// Sets its error output.
    pub fn stderr(mut self, stdio: impl Into<Stdio>) -> Self {
        self.inner.stderr(stdio);
        self
    }

    /// Starts the program, and does not wait.
    pub fn spawn(self) -> Result<Child> {
        let Self { mut inner, program, namespaces, spawner, confinement } = self;
        let contained = confinement.is_some();
        enter_before_exec(&mut inner, namespaces, confinement);
        let spawn = move || if contained { spawn_first(&mut inner) } else { inner.spawn() };
        let started = spawner.run(spawn).and_then(|result| result);
        started.during(|| format!("start {}", program.display()))
    }

    /// Runs it to its end and captures its output.
    pub fn output(self) -> Result<Output> {
        let program = self.program.clone();
        let child = self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.wait_with_output().during(|| format!("wait for {}", program.display()))
    }

    /// Runs it to its end with this input and captures its output.
    pub fn output_of_input(self, input: &[u8]) -> Result<Output> {
        let program = self.program.clone();
        let mut child = self.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        std::thread::scope(|scope| {
            // On a thread of its own: a program that fills its output before it reads would block both.
            let writer = scope.spawn(|| {
                // A program may end without reading its input.
                stdin.map(|mut stdin| io::Write::write_all(&mut stdin, input))
            });
            let output = child.wait_with_output().during(|| format!("wait for {}", program.display()));
            writer.join().map_err(|_| Error::Panicked("writing to a program")).and(output)
        })
    }
}

#[expect(unsafe_code, reason = "pre_exec runs between fork and exec")]
fn enter_before_exec(command: &mut std::process::Command, namespaces: Namespaces, confinement: Option<Confinement>) {
    let enter = move || {
        namespaces.enter()?;
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if let Some(confinement) = &confinement {
            confinement.apply()?;
        }
        // The sandbox may be waiting for signals; a program starts with none blocked.
        SigSet::empty().thread_set_mask()?;
        Ok(())
    };
    // SAFETY: `enter` makes system calls only; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(enter) };
}
