//! The files of rules that override the shipped ones. They are read in a thread of its own: a disk that hangs delays no
//! collector.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::worker;
use crate::collector::Value;
use crate::host;
use crate::rules::{Rules, RulesText};
use crate::signal::Gap;
use crate::verdict::Severity;

/// How often the files are read. The kubelet takes about a minute to update one, too.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

/// How long a read may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// Files of rules that override the shipped ones; none need be there.
#[derive(Clone, Debug, Default)]
pub struct RulesFiles {
    /// What the controller sent.
    pub controller: PathBuf,
    /// The agent's own, which override the controller's.
    pub own: PathBuf,
}

/// A file: its text, none where it is missing, or why it cannot be read.
type FileRead = Result<Option<String>, String>;

pub(super) struct Overrides {
    files: RulesFiles,
    read: fn(&Path) -> FileRead,
    /// A read that has not ended.
    reading: Option<Receiver<[FileRead; 2]>>,
    /// The last texts that could be read.
    texts: [Option<String>; 2],
    /// The texts of the rules in force, once read.
    in_force: Option<[Option<String>; 2]>,
    pub(super) due: Instant,
}

/// What a read found.
pub(super) struct OverridesRead {
    /// Other rules than before.
    pub(super) rules: Option<Rules>,
    /// Of the signal about invalid rules.
    pub(super) reading: Result<Value, Gap>,
}

impl Overrides {
    pub(super) fn new(files: RulesFiles, due: Instant) -> Self {
        Self { files, read: read_file, reading: None, texts: [None, None], in_force: None, due }
    }

    /// The controller's text in force, once the files were read.
    pub(super) fn controller_text(&self) -> Option<Option<&str>> {
        self.in_force.as_ref().map(|[text, _]| text.as_deref())
    }

    /// Reads the files. Those that cannot be read keep their last text.
    pub(super) fn update(&mut self, now: Instant) -> OverridesRead {
        self.due = now + INTERVAL;
        let files = match self.read_within_deadline() {
            Ok(files) => files,
            Err(gap) => return OverridesRead { rules: None, reading: Err(gap) },
        };
        let mut unreadable = Vec::new();
        for (text, file) in self.texts.iter_mut().zip(files) {
            match file {
                Ok(read) => *text = read,
                Err(problem) => unreadable.push(problem),
            }
        }
        let sources = ["the controller's HEALTH_RULES", "HEALTH_RULES"].iter().zip(&self.texts);
        let given: Vec<RulesText<'_>> =
            sources.filter_map(|(source, text)| Some(RulesText { source, text: text.as_deref()? })).collect();
        let mut rules = Rules::read(&given);
        rules.problems.extend(unreadable);
        let value = Value {
            number: u32::try_from(rules.problems.len()).ok().map(f64::from),
            detail: rules.problems.join("; "),
            at_most: Severity::Critical,
            devices: Vec::new(),
            not_measured: None,
        };
        let is_new = self.in_force.as_ref() != Some(&self.texts);
        if is_new {
            self.in_force = Some(self.texts.clone());
        }
        OverridesRead { rules: is_new.then_some(rules), reading: Ok(value) }
    }

    fn read_within_deadline(&mut self) -> Result<[FileRead; 2], Gap> {
        let (reading, limit) = match self.reading.take() {
            Some(reading) => (reading, Duration::ZERO),
            None => (self.start()?, DEADLINE),
        };
        reading.recv_timeout(limit).map_err(|error| {
            let files = format!("{} or {}", self.files.controller.display(), self.files.own.display());
            match error {
                RecvTimeoutError::Timeout => {
                    self.reading = Some(reading);
                    Gap::unknown(format!("the disk of {files} hangs"))
                }
                // Its thread panicked. The next update starts another one.
                RecvTimeoutError::Disconnected => {
                    Gap::unknown(format!("the reader of {files} failed; it is started again"))
                }
            }
        })
    }

    fn start(&self) -> Result<Receiver<[FileRead; 2]>, Gap> {
        let (done, reading) = channel();
        let (RulesFiles { controller, own }, read) = (self.files.clone(), self.read);
        // The engine may be gone.
        let work = move || drop(done.send([read(&controller), read(&own)]));
        let started = worker::spawn("health rules".to_owned(), work);
        started.map(|()| reading).map_err(|error| Gap::unknown(format!("start a thread: {error}")))
    }
}

fn read_file(path: &Path) -> FileRead {
    match host::read_regular(path) {
        Ok(bytes) => {
            String::from_utf8(bytes).map(Some).map_err(|_| format!("{}: the file is not text", path.display()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    static GATE_OPEN: AtomicBool = AtomicBool::new(false);
    static STARTED: AtomicUsize = AtomicUsize::new(0);

    fn hangs(_: &Path) -> FileRead {
        STARTED.fetch_add(1, Ordering::SeqCst);
        while !GATE_OPEN.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(None)
    }

    static FAILS: AtomicBool = AtomicBool::new(true);

    fn panics_once(_: &Path) -> FileRead {
        assert!(!FAILS.swap(false, Ordering::SeqCst), "as by a bug");
        Ok(Some("[]".to_owned()))
    }

    #[test]
    fn reader_that_panics_is_reported_and_started_again() {
        let now = Instant::now();
        let mut overrides = Overrides { read: panics_once, ..Overrides::new(RulesFiles::default(), now) };
        let reading = overrides.update(now).reading;
        assert!(reading.is_err_and(|gap| gap.to_string().contains("failed")));
        assert!(overrides.update(now).reading.is_ok());
        assert_eq!(overrides.controller_text(), Some(Some("[]")));
    }

    #[test]
    fn files_whose_disk_hangs_are_unknown_and_read_once() {
        let now = Instant::now();
        let mut overrides = Overrides { read: hangs, ..Overrides::new(RulesFiles::default(), now) };
        for _ in 0..3 {
            let OverridesRead { rules, reading } = overrides.update(now);
            assert!(rules.is_none() && reading.is_err_and(|gap| gap.to_string().ends_with("hangs")));
        }
        assert_eq!(STARTED.load(Ordering::SeqCst), 1, "no other thread while one hangs");
        GATE_OPEN.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while overrides.update(now).reading.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(180));
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(overrides.controller_text(), Some(None));
    }
}
