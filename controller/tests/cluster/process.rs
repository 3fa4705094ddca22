//! A controller process: started, killed, queried for its metrics.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, SystemTime};

use nix::sys::wait::{Id, WaitPidFlag, waitid};

/// The deadline of one answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running controller; killed when dropped.
pub(crate) struct Controller {
    child: Child,
    pub(crate) listen: SocketAddr,
    view: SocketAddr,
    log: PathBuf,
}

impl Controller {
    /// Starts one. Its log goes to a file that is printed after a failure.
    pub(crate) fn start(environment: &[(String, String)], log: PathBuf) -> Self {
        // `make scale` measures the shipped program.
        let program =
            std::env::var_os("CONTROLLER").unwrap_or_else(|| env!("CARGO_BIN_EXE_oke-node-controller").into());
        let mut command = Command::new(program);
        command.env_clear().envs(environment.iter().cloned());
        Self::spawn(command, log)
    }

    /// Starts this command, which runs one.
    pub(crate) fn spawn(mut command: Command, log: PathBuf) -> Self {
        // Its own address: a free port of 127.0.0.1 may be in use when it is bound.
        static STARTED: AtomicU16 = AtomicU16::new(0);
        let [high, low] = STARTED.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let listen = SocketAddr::from(([127, 1, high, low], 9809));
        let view = SocketAddr::new(listen.ip(), 9811);
        let output = File::options().create(true).append(true).open(&log).unwrap();
        command.env("LISTEN", listen.to_string()).env("VIEW_LISTEN", view.to_string());
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        // It ends with the thread that started it, whatever the test does.
        command.process_group(0);
        let child = command.spawn().unwrap();
        Self { child, listen, view, log }
    }

    /// As the kernel or a failing node would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Signals it to stop, as a kubelet does.
    pub(crate) fn send_sigterm(&self) {
        let pid = i32::try_from(self.child.id()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM).unwrap();
    }

    /// Signals it to stop, and waits.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.send_sigterm();
        self.child.wait().unwrap()
    }

    /// Freezes it, or lets it continue.
    pub(crate) fn freeze(&self, frozen: bool) {
        use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, if frozen { SIGSTOP } else { SIGCONT }).unwrap();
        if frozen {
            // The signal reaches one thread, which stops the others when it runs.
            let stands = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            waitid(Id::Pid(pid), stands).unwrap();
        }
    }

    /// Its exit status, if it has exited.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Status and body of a GET; `None` without an answer.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        get(self.listen, path)
    }

    /// The same of the view.
    pub(crate) fn view(&self, path: &str) -> Option<(u16, String)> {
        get(self.view, path)
    }

    /// Where the view listens.
    pub(crate) const fn view_address(&self) -> SocketAddr {
        self.view
    }

    /// The value of a metric, by the beginning of its line.
    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics")?;
        let mut values = text.lines().filter(|other| other.starts_with(line));
        values.next()?.rsplit(' ').next()?.parse().ok()
    }

    pub(crate) fn leads(&self) -> bool {
        self.get("/readyz").is_some_and(|(_, body)| body == "leader\n")
    }

    /// Its resident memory in KiB.
    pub(crate) fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Its highest resident memory.
    pub(crate) fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(what)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// When it last wrote to its log.
    pub(crate) fn spoke(&self) -> SystemTime {
        std::fs::metadata(&self.log).unwrap().modified().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

fn get(from: SocketAddr, path: &str) -> Option<(u16, String)> {
    // An exited process refuses at once.
    let mut stream = TcpStream::connect_timeout(&from, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(6000);
            println!("the end of the controller's log:\n{}", log.get(log.floor_char_boundary(from)..).unwrap_or(&log));
        }
    }
}
