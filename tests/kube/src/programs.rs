//! One server's programs: started, watched until they are ready, and killed with their [`ApiServer`](crate::ApiServer).

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kube::Client;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::arguments::{self, Listen};
use crate::assets::Assets;
use anyhow::{Context, Result, anyhow};

/// It takes 3 to 4 s; a loaded machine is slow.
const READY_WITHIN: Duration = Duration::from_secs(120);
const ONE_LOOK: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const LOG_END: usize = 4000;

const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";

/// What the programs of one server need.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) assets: Assets,
    pub(crate) folder: PathBuf,
    pub(crate) listen: Listen,
    pub(crate) config: kube::Config,
}

/// A server's programs, which are killed when this goes. Those of a test that was killed end with the PID namespace of
/// `tests/runner`.
#[derive(Debug)]
pub(crate) struct Programs {
    site: Site,
    etcd: Running,
    api_server: Option<Running>,
}

impl Programs {
    /// Starts etcd and kube-apiserver in the caller's namespaces, and waits until they are ready.
    pub(crate) fn start(site: Site) -> Result<Self> {
        let etcd = Running::start(&site, ETCD, &arguments::etcd(&site.folder, &site.listen))?;
        let mut programs = Self { site, etcd, api_server: None };
        programs.start_api_server()?;
        Ok(programs)
    }

    /// Kills kube-apiserver; etcd stays.
    pub(crate) fn stop_api_server(&mut self) {
        self.api_server = None;
    }

    /// Sends kube-apiserver a signal.
    pub(crate) fn signal_api_server(&self, signal: Signal) -> Result<()> {
        self.api_server.as_ref().ok_or_else(|| anyhow!("it does not run"))?.signal(signal)
    }

    /// Starts kube-apiserver, unless it runs, and waits until it is ready.
    pub(crate) fn start_api_server(&mut self) -> Result<()> {
        let Self { site, etcd, api_server } = self;
        if api_server.is_some() {
            return Ok(());
        }
        let mut starting = Running::start(site, API_SERVER, &arguments::kube_apiserver(&site.folder, &site.listen))?;
        let deadline = Instant::now() + READY_WITHIN;
        while !is_ready(&site.config)? {
            etcd.must_run()?;
            starting.must_run()?;
            if Instant::now() > deadline {
                return Err(starting.failed(&format!("is not ready after {} s", READY_WITHIN.as_secs())));
            }
            thread::sleep(POLL_INTERVAL);
        }
        *api_server = Some(starting);
        Ok(())
    }
}

/// Whether all of it works: its answer waits for the roles and priority levels that every API server makes at its start.
fn is_ready(config: &kube::Config) -> Result<bool> {
    let answer = async {
        let client = Client::try_from(config.clone()).ok()?;
        let request = hyper::Request::get("/readyz").body(Vec::new()).ok()?;
        client.request_text(request).await.ok()
    };
    let is_ready =
        async { tokio::time::timeout(ONE_LOOK, answer).await.is_ok_and(|answer| answer.as_deref() == Some("ok")) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    // On a thread of its own, which the runtime ends with too, because the caller's may have one.
    thread::scope(|scope| scope.spawn(move || runtime.block_on(is_ready)).join())
        .map_err(|_| anyhow!("the thread of the request panicked"))
}

/// A program that is killed when this goes.
#[derive(Debug)]
struct Running {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(site: &Site, name: &'static str, arguments: &[String]) -> Result<Self> {
        let path = site.folder.join(format!("{name}.log"));
        let doing = || format!("write {}", path.display());
        let log = File::options().create(true).append(true).open(&path).with_context(doing)?;
        let copy = log.try_clone().with_context(doing)?;
        let child = Command::new(site.assets.program(name))
            .args(arguments)
            .current_dir(&site.folder)
            .stdin(Stdio::null())
            .stdout(copy)
            .stderr(log)
            // Its own: Ctrl-C at a test is for the test to handle.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { name, child, log: path })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let doing = || format!("send {signal} to {}", self.name);
        let pid = i32::try_from(self.child.id()).map_err(|_| anyhow!("an impossible process number"))?;
        let pid = Pid::from_raw(pid);
        let stands = |()| if signal == Signal::SIGSTOP { stopped(pid) } else { Ok(()) };
        kill(pid, signal).and_then(stands).map_err(std::io::Error::from).with_context(doing)
    }

    fn must_run(&mut self) -> Result<()> {
        let ended = self.child.try_wait().with_context(|| format!("look after {}", self.name))?;
        ended.map_or(Ok(()), |status| Err(self.failed(&format!("ended ({status})"))))
    }

    fn failed(&self, what: &str) -> anyhow::Error {
        anyhow!("{} {what}; the end of its log:\n{}", self.name, end_of(&self.log))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until all threads of a child stand still: the signal comes to one, which stops the others when it runs.
fn stopped(pid: Pid) -> nix::Result<()> {
    waitid(Id::Pid(pid), WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).map(drop)
}

fn end_of(log: &Path) -> String {
    let log = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let mut from = log.len().saturating_sub(LOG_END);
    while !log.is_char_boundary(from) {
        from += 1;
    }
    log.get(from..).unwrap_or_default().to_owned()
}
