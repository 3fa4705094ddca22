//! The configuration file of a running program. A program reads its configuration once, when it starts. When the file changes and
//! is valid, the program ends its work and executes itself again; while it is invalid, that is reported and nothing changes.
//!
//! ```text
//!   changed file ──▶ invalid: reported        the same values: nothing
//!                └─▶ valid: accepted ──jitter──▶ still valid ──▶ the program stops ──▶ restart: execve of itself
//! ```

use std::collections::BTreeSet;
use std::io;
use std::marker::PhantomData;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

use crate::config::keys::{Key, Keys};
use crate::config::{Layers, Place, Problem, ProgramSettings, Read, Values, file};

/// How often the file is checked; the kubelet takes about a minute to update it.
const POLL: Duration = Duration::from_secs(5);

/// The most problems that are reported: logs, readiness and status show them as one line. `config --check` lists all.
const REPORTED: usize = 20;

/// Reported of a file that existed.
const GONE: &str =
    "it is gone; its last values apply until it exists again (an empty file sets nothing), or until a restart";

/// The configuration that a program started with, and where it comes from.
#[derive(Debug)]
pub struct RunningConfiguration<S> {
    keys: Keys,
    layers: Layers,
    values: Values,
    had_file: bool,
    /// The file's text at the last check.
    seen: Result<String, io::ErrorKind>,
    settings: PhantomData<fn() -> S>,
}

/// What the file says now.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileState {
    /// The values that the program runs with.
    Same,
    /// Other values: the names of their keys.
    Changed(String),
    /// No configuration, and why.
    Invalid(String),
}

impl<S: ProgramSettings> RunningConfiguration<S> {
    /// Reads the configuration that a program starts with.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn start(keys: Keys, layers: Layers) -> Result<(S, Self), Vec<Problem>> {
        let read = layers.read(&keys);
        let (values, had_file) = (read.values.clone(), read.has_file);
        let settings = read.settings(&keys)?;
        // The first check reads again: the file may have been read here while it was being written.
        let seen = Err(io::ErrorKind::Interrupted);
        Ok((settings, Self { keys, layers, values, had_file, seen, settings: PhantomData }))
    }

    /// Where the configuration comes from.
    pub const fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The path of the configuration file.
    pub fn file(&self) -> &Path {
        &self.layers.file
    }

    /// Waits until the file holds other values that are valid, and then for `jitter`; `report` gets what is wrong with the file,
    /// and `None` when nothing is any more. The program should then stop its work and call [`restart`]. Cancel-safe: only a timer
    /// waits.
    pub async fn changed(mut self, jitter: Duration, report: impl Fn(Option<&str>)) {
        let (mut last, mut due) = (FileState::Same, None);
        loop {
            // One that is invalid may have become readable.
            let is_invalid = matches!(last, FileState::Invalid(_));
            let found = if self.is_unread() || is_invalid { self.read() } else { last.clone() };
            let now = Instant::now();
            if found != last {
                report(if let FileState::Invalid(message) = &found { Some(message) } else { None });
                if let FileState::Changed(changed) = &found {
                    tracing::info!(
                        event = "config.accepted",
                        changed,
                        seconds = jitter.as_secs_f64(),
                        "restarting soon"
                    );
                }
            }
            due = matches!(found, FileState::Changed(_)).then(|| due.unwrap_or(now + jitter));
            last = found;
            if due.is_some_and(|due| due <= now) {
                return;
            }
            tokio::time::sleep_until(due.map_or(now + POLL, |due| due.min(now + POLL))).await;
        }
    }

    /// Whether the file may have changed since it was read.
    fn is_unread(&mut self) -> bool {
        let now = text(&self.layers.file);
        let is_unread = self.seen != now;
        self.seen = now;
        is_unread
    }

    fn read(&mut self) -> FileState {
        let Read { values, mut problems, has_file } = self.layers.read(&self.keys);
        if self.had_file && !has_file && !self.layers.file_is_named {
            // A ConfigMap that was deleted by mistake, or a file that is being moved: without this, defaults would silently replace
            // everything that was set.
            problems.push(Problem::new(Place::File { path: self.layers.file.clone(), line: 0 }, "", GONE));
        }
        self.had_file |= has_file;
        let changed: BTreeSet<&str> =
            self.keys.iter().filter(|key| differ(key, &self.values, &values)).map(Key::name).collect();
        let changed = changed.into_iter().collect::<Vec<_>>().join(", ");
        match (Read { values, problems, has_file }).settings::<S>(&self.keys) {
            Ok(_) if changed.is_empty() => FileState::Same,
            Ok(_) => FileState::Changed(changed),
            Err(problems) => FileState::Invalid(message(&problems)),
        }
    }
}

/// Executes this program again in this process, with the same arguments and environment: to Kubernetes the container goes on. Every
/// descriptor but the standard ones must be close-on-exec. Signal handlers end with the old program, and the new one begins with
/// no signal blocked; a signal that arrives in between acts as on any program that starts. Returns only when it failed.
pub fn restart() -> io::Error {
    tracing::info!(event = "config.restarting", "executing the program again with the changed configuration");
    this_program().exec()
}

/// The same for a process with a thread that no signal ends, because it waits in the kernel for a driver or a file system.
/// `execve` would wait for that thread, so the program runs in a child. This process passes signals on to the child and ends as
/// the child ends. Returns only if it fails.
#[expect(clippy::exit, reason = "this process has nothing left to do and ends as its child")]
pub fn restart_in_child() -> io::Error {
    tracing::warn!(event = "config.restarting", "a thread does not end: executing the program again as a child");
    let signals = passed_on();
    match signals.thread_block().map_err(io::Error::from).and_then(|()| follow_child(&signals)) {
        Ok(code) => std::process::exit(code),
        Err(error) => error,
    }
}

/// A program that [`restart_in_child`] started inherits what that blocked. Called before the first thread starts.
///
/// # Errors
/// The kernel's.
pub fn unblock_signals() -> io::Result<()> {
    Ok(passed_on().thread_unblock()?)
}

/// The signals that a process passes on to its child, and the one of the child's end.
fn passed_on() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD].into_iter().collect()
}

fn follow_child(signals: &SigSet) -> io::Result<i32> {
    let mut child = this_program().spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    loop {
        match signals.wait()? {
            Signal::SIGCHLD => {
                if let Some(status) = child.try_wait()? {
                    return Ok(status.code().unwrap_or(1));
                }
            }
            signal => kill(pid, signal)?,
        }
    }
}

/// With the arguments and the environment that it was started with.
fn this_program() -> Command {
    let mut arguments = std::env::args_os();
    // By its path: started as /proc/self/exe, it would be called "exe" by ps and by the kernel's log.
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments);
    command
}

fn text(path: &Path) -> Result<String, io::ErrorKind> {
    file::read(path).map_err(|error| error.kind())
}

fn message(problems: &[Problem]) -> String {
    let mut listed: Vec<String> = problems.iter().take(REPORTED).map(ToString::to_string).collect();
    if problems.len() > REPORTED {
        listed.push(format!("and {} more", problems.len() - REPORTED));
    }
    format!("the last good configuration is used, because {}", listed.join(" · "))
}

fn differ(key: &Key, one: &Values, other: &Values) -> bool {
    let value = |values: &Values| values.get(key.name()).map(|given| given.value.clone()).or_else(|| key.default());
    value(one) != value(other)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;

    use clap::Args;

    use super::*;

    #[derive(Args, Clone, Debug)]
    struct Options {
        /// A word
        #[arg(long, env = "WORD", default_value = "none")]
        word: String,
    }

    struct Word;

    impl ProgramSettings for Word {
        type Options = Options;
        type Error = Infallible;

        fn from_options(_: Options) -> Result<Self, Infallible> {
            Ok(Self)
        }
    }

    /// The folder of a program's configuration file.
    struct Scene(tempfile::TempDir);

    impl Scene {
        fn new(text: Option<&str>) -> (Self, RunningConfiguration<Word>) {
            let scene = Self(tempfile::tempdir().unwrap());
            scene.write(text);
            let layers = Layers { file: scene.0.path().join("program.conf"), ..Layers::default() };
            let (_, live) = RunningConfiguration::start(Keys::of::<Options>(), layers).unwrap();
            (scene, live)
        }

        fn write(&self, text: Option<&str>) {
            let file = self.0.path().join("program.conf");
            match text {
                Some(text) => std::fs::write(file, text).unwrap(),
                None => drop(std::fs::remove_file(file)),
            }
        }
    }

    fn changed(key: &str) -> FileState {
        FileState::Changed(key.to_owned())
    }

    #[test]
    fn file_differs_only_by_valid_values() {
        let (scene, mut live) = Scene::new(Some("WORD=one\n"));
        let mut read = |text| {
            scene.write(text);
            match live.read() {
                FileState::Invalid(message) => {
                    FileState::Invalid(message.rsplit(": ").next().unwrap_or_default().to_owned())
                }
                found => found,
            }
        };
        assert_eq!(read(Some("# a comment\nWORD = one\n")), FileState::Same);
        assert_eq!(read(Some("WORD=two\n")), changed("WORD"));
        assert_eq!(read(Some("")), changed("WORD"), "its default");
        assert_eq!(read(None), FileState::Invalid(GONE.to_owned()));
        assert!(
            matches!(read(Some("WORT=two\n")), FileState::Invalid(message) if message.contains("WORT is not a key"))
        );
        assert_eq!(read(Some("WORD=one\n")), FileState::Same);
    }

    #[test]
    fn missing_file_is_valid_until_one_existed() {
        let (scene, mut live) = Scene::new(None);
        assert_eq!(live.read(), FileState::Same);
        scene.write(Some(""));
        assert_eq!(live.read(), FileState::Same);
        scene.write(None);
        assert!(matches!(live.read(), FileState::Invalid(message) if message.ends_with(GONE)));
    }

    #[test]
    fn report_on_a_long_invalid_file_is_short() {
        let (scene, mut live) = Scene::new(Some(""));
        let text =
            "{\"key\": \"no line of ours\"}\n".repeat(500) + &"A".repeat(100_000) + "=1\n" + &"B=1\n".repeat(100_000);
        scene.write(Some(&text));
        let FileState::Invalid(message) = live.read() else { panic!("it is invalid") };
        assert!(message.ends_with("and 981 more") && message.len() < 8192, "{} bytes", message.len());
    }

    #[tokio::test(start_paused = true)]
    async fn change_ends_the_wait_after_jitter_unless_it_became_invalid() {
        let (scene, live) = Scene::new(Some("WORD=one\n"));
        let reports = RefCell::new(Vec::new());
        let steps = async {
            for text in ["WORD=two\n", "WORT=two\n", "WORD=one\n", "WORD=three\n"] {
                scene.write(Some(text));
                tokio::time::sleep(POLL).await;
            }
            std::future::pending::<()>().await;
        };
        let (begun, jitter) = (Instant::now(), POLL + POLL / 2);
        let follow = live.changed(jitter, |report| reports.borrow_mut().push(report.is_some()));
        tokio::select! {
            biased;
            () = steps => {}
            () = follow => {}
        }
        // "two" is invalid before its jitter is over; "three" was read after three polls.
        assert_eq!(begun.elapsed(), POLL * 3 + jitter);
        assert_eq!(reports.take(), vec![false, true, false, false]);
    }
}
