//! The records of plugin runs: counted, logged, and followed by the work that a pod need not wait for. Plugins do not wait for the
//! agent: while it is down or its socket full, they write records to a file, which the agent reads later.

pub(crate) mod follow_up;
mod line;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use resident::readable::Readable;
use telemetry::{ListenError, Listener, VerbRecord};
use tokio::time::sleep_until;

use crate::lifecycle::agent::Agent;
use line::RunLog;

/// When the file is read after a record: others may have gone there because the socket's queue was full (10 by default in the
/// kernel). Without records it is not read.
const AFTER_A_RECORD: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Intake {
    agent: Arc<Agent>,
    run_log: Mutex<RunLog>,
    /// Whether the file could not be read the last time.
    unreadable: AtomicBool,
}

/// How a record arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    /// By the socket: the agent does the follow-up.
    Socket,
    /// By the file: the plugin did it.
    File,
}

/// Creates the socket in the state directory.
pub(crate) fn listen(state_dir: &Path) -> Result<Listener, ListenError> {
    Listener::bind(state_dir)
}

pub(crate) async fn run(listener: Listener, agent: Arc<Agent>) -> io::Result<()> {
    let intake = Arc::new(Intake::new(agent));
    let readable = Readable::new(listener.as_fd())?;
    // At the start: records from before.
    let mut read_at = Some(tokio::time::Instant::now());
    loop {
        let received = readable.wait(|| match listener.recv() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(None)),
            received => received.map(|record| Some(Some(record))),
        });
        // Cancel-safe: a record is read only in the poll that returns it; and a timer.
        tokio::select! {
            received = received => match received? {
                Some(record) => {
                    intake.take_in(&record, Channel::Socket);
                    read_at.get_or_insert_with(|| tokio::time::Instant::now() + AFTER_A_RECORD);
                }
                None => intake.agent.metrics.record_refused(),
            },
            () = sleep_until(read_at.unwrap_or_else(tokio::time::Instant::now)), if read_at.is_some() => {
                let intake = intake.clone();
                // Files of up to 2 MiB: not on the thread that answers health checks.
                let again = tokio::task::spawn_blocking(move || intake.take_log()).await.unwrap_or(false);
                read_at = again.then(|| tokio::time::Instant::now() + AFTER_A_RECORD);
            }
        }
    }
}

impl Intake {
    fn new(agent: Arc<Agent>) -> Self {
        Self { agent, run_log: Mutex::new(RunLog::new(Instant::now())), unreadable: AtomicBool::new(false) }
    }

    fn take_in(&self, record: &VerbRecord, channel: Channel) {
        self.agent.metrics.verb(record);
        self.agent.recent.note(record);
        self.agent.deleted.note(record);
        self.agent.plugin_ran.notify_one();
        if channel == Channel::Socket {
            self.agent.follow_ups.note(record);
        }
        let mut run_log = self.run_log.lock().unwrap_or_else(PoisonError::into_inner);
        run_log.log(record, channel == Channel::File, Instant::now());
    }

    /// Takes in the records in the file. Returns whether to read it again soon.
    fn take_log(&self) -> bool {
        match telemetry::take_log(&self.agent.settings.state_dir, |record| self.take_in(&record, Channel::File)) {
            Ok(damaged) => {
                if self.unreadable.swap(false, Ordering::Relaxed) {
                    tracing::info!(event = "cni.log_readable");
                }
                (0..damaged).for_each(|_| self.agent.metrics.record_refused());
                false
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) => {
                if !self.unreadable.swap(true, Ordering::Relaxed) {
                    tracing::warn!(event = "cni.log_unreadable", %error, "records in the file are delayed");
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_log_is_reported_when_it_begins_and_ends() {
        let directory = tempfile::tempdir().unwrap();
        let log = telemetry::log_path(directory.path());
        let intake = Intake::new(crate::fixture::agent(&["--state-dir", directory.path().to_str().unwrap()]));
        let lines = tempfile::NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt().with_writer(Arc::new(lines.reopen().unwrap())).finish();
        tracing::subscriber::with_default(subscriber, || {
            for readable in [true, false, false, false, true, true, false] {
                if readable {
                    let left = std::fs::read_dir(directory.path()).unwrap();
                    left.for_each(|it| std::fs::remove_dir(it.unwrap().path()).unwrap());
                } else {
                    // A directory in its place.
                    let _ = std::fs::create_dir(&log);
                }
                assert!(!intake.take_log());
            }
        });
        let lines = std::fs::read_to_string(lines.path()).unwrap();
        let word =
            |line: &str| line.split_once("event=\"").and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()));
        let words: Vec<_> = lines.lines().filter_map(word).collect();
        assert_eq!(words, ["cni.log_unreadable", "cni.log_readable", "cni.log_unreadable"], "{lines}");
    }
}
