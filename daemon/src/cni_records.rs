//! The records that plugins send of their runs: counted, logged, and followed by what may come late. Nobody waits for us;
//! what we cannot keep up with, or miss while we are down, the plugins write to a file, and we take it from there.

pub mod follow_up;
mod line;
mod recent;

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use resident::readable::Readable;
use telemetry::{ListenError, Listener, VerbRecord};
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::cni_records::follow_up::Duties;
use crate::report::metrics::Metrics;
use line::Lines;
pub use recent::Recent;

/// How long after a record it is looked whether others went to the file, because our queue (10 on a kernel as it comes)
/// was full. Without records there is no look.
const AFTER_A_RECORD: Duration = Duration::from_secs(1);

/// Where records go.
#[derive(Debug)]
pub struct Intake {
    state_dir: PathBuf,
    metrics: Arc<Metrics>,
    duties: Arc<Duties>,
    lines: Mutex<Lines>,
    recent: Arc<Recent>,
    recorded: Arc<Notify>,
    unreadable: Trouble,
}

/// Something that goes on for some time, and is told when it begins and when it ends.
#[derive(Debug, Default)]
struct Trouble(AtomicBool);

/// How a record came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the socket: the plugin leaves what may come late to us.
    Socket,
    /// By the file: the plugin has done it itself.
    File,
}

/// Listens in the state directory.
///
/// # Errors
/// When the socket cannot be made.
pub fn listen(state_dir: &Path) -> Result<Listener, ListenError> {
    Listener::bind(state_dir)
}

/// Takes records in for ever.
///
/// # Errors
/// When the socket is broken.
pub async fn run(listener: Listener, intake: Arc<Intake>) -> io::Result<()> {
    let readable = Readable::new(listener.as_fd())?;
    // At the start: what was written while nobody listened.
    let mut look = Some(tokio::time::Instant::now());
    loop {
        let received = readable.wait(|| match listener.recv() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(None)),
            received => received.map(|record| Some(Some(record))),
        });
        tokio::select! {
            received = received => match received? {
                Some(record) => {
                    intake.take_in(&record, Way::Socket);
                    look.get_or_insert_with(|| tokio::time::Instant::now() + AFTER_A_RECORD);
                }
                None => intake.metrics.record_refused(),
            },
            () = sleep_until(look.unwrap_or_else(tokio::time::Instant::now)), if look.is_some() => {
                let intake = intake.clone();
                // Files of up to 2 MiB: not on the thread that answers health checks.
                let again = tokio::task::spawn_blocking(move || intake.take_log()).await.unwrap_or(false);
                look = again.then(|| tokio::time::Instant::now() + AFTER_A_RECORD);
            }
        }
    }
}

impl Intake {
    /// Takes the file from `state_dir`; hands on to `metrics`, `duties` and `recent`, and notifies `recorded`.
    #[must_use]
    pub fn new(
        state_dir: &Path,
        metrics: Arc<Metrics>,
        duties: Arc<Duties>,
        recent: Arc<Recent>,
        recorded: Arc<Notify>,
    ) -> Self {
        let (state_dir, lines) = (state_dir.to_owned(), Mutex::new(Lines::new(Instant::now())));
        Self { state_dir, metrics, duties, lines, recent, recorded, unreadable: Trouble::default() }
    }

    fn take_in(&self, record: &VerbRecord, way: Way) {
        self.metrics.verb(record);
        self.recent.note(record);
        self.recorded.notify_one();
        match way {
            Way::Socket => self.duties.note(record),
            Way::File => self.metrics.record_late(),
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if !lines.log(record, way == Way::File, Instant::now()) {
            self.metrics.line_dropped();
        }
    }

    /// Takes in what plugins wrote to the file. Says whether it is worth another look.
    fn take_log(&self) -> bool {
        match telemetry::take_log(&self.state_dir, |record| self.take_in(&record, Way::File)) {
            Ok(damaged) => {
                if self.unreadable.ended() {
                    tracing::info!(event = "cni.log_readable");
                }
                (0..damaged).for_each(|_| self.metrics.record_refused());
                false
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) => {
                if self.unreadable.began() {
                    tracing::warn!(event = "cni.log_unreadable", %error, "reading what plugins logged");
                }
                false
            }
        }
    }
}

impl Trouble {
    /// Notes that it is there; says whether that is new.
    fn began(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// Notes that it is not there; says whether that is new.
    fn ended(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_cannot_be_read_is_told_when_that_begins_and_when_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let log = telemetry::log_path(directory.path());
        let intake = Intake::new(directory.path(), Arc::default(), Arc::default(), Arc::default(), Arc::default());
        let lines = tempfile::NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt().with_writer(Arc::new(lines.reopen().unwrap())).finish();
        tracing::subscriber::with_default(subscriber, || {
            for readable in [true, false, false, false, true, true, false] {
                if readable {
                    let left = std::fs::read_dir(directory.path()).unwrap();
                    left.for_each(|it| std::fs::remove_dir(it.unwrap().path()).unwrap());
                } else {
                    // A directory is no file.
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
