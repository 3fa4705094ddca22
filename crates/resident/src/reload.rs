//! The configuration of a running program: when the file changes, what is right is taken over; when it is wrong, the last
//! good one is kept and it is said what is wrong. Where things are stays as it was at the start.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::sync::watch;

use crate::config::keys::{Key, Keys};
use crate::config::{Configured, Layers, Place, Problem, Read, Values};
use crate::readable::{Readable, drain};

/// How often the file is looked at although nothing is heard of it: its directory may not have been there.
const LOOK: Duration = Duration::from_secs(60);

/// How much is told of what is wrong with a file, which may be some other program's altogether: it goes to logs, readiness and
/// status as one line. `config --check` tells all.
const TOLD: usize = 20;

/// Editors and kubelets change a file in several steps.
const SETTLED: Duration = Duration::from_millis(50);

/// What is said of a file that was there.
const GONE: &str = "it is gone; what it said holds until there is one again (an empty one says nothing), or a restart";

/// What a program goes by.
#[derive(Debug)]
pub struct Configuration<S> {
    /// The settings.
    pub settings: Arc<S>,
    /// What is wrong with what the file says now.
    pub trouble: Option<Trouble>,
}

/// What is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is wrong; the last good configuration is used.
    Invalid(String),
    /// It changes where things are.
    RestartNeeded(String),
}

/// The configuration and where it comes from.
#[derive(Debug)]
pub struct Live<S> {
    keys: Keys,
    layers: Layers,
    /// What was said at the start.
    start: Values,
    /// What was said last, be it right or wrong.
    last: (Values, Vec<String>),
    /// What was said when it was right last.
    right: Values,
    /// Whether there was a file.
    had_file: bool,
    /// The last that was right.
    current: Configuration<S>,
}

impl<S> Clone for Configuration<S> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), trouble: self.trouble.clone() }
    }
}

impl<S> Configuration<S> {
    /// Settings with which nothing is wrong.
    #[must_use]
    pub fn new(settings: Arc<S>) -> Self {
        Self { settings, trouble: None }
    }
}

impl<S: Configured> Live<S> {
    /// What a program starts with.
    #[must_use]
    pub fn new(layers: Layers, start: Values, settings: S) -> Self {
        let current = Configuration::new(Arc::new(settings));
        let had_file = start.values().any(|said| matches!(said.place, Place::File { .. }));
        Self {
            keys: Keys::of::<S::Options>(),
            layers,
            last: (start.clone(), Vec::new()),
            right: start.clone(),
            start,
            had_file,
            current,
        }
    }

    /// What to go by now.
    #[must_use]
    pub const fn current(&self) -> &Configuration<S> {
        &self.current
    }

    /// The configuration file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.layers.file
    }

    /// Reads the file again. `None` when it says what it said.
    pub fn read_again(&mut self) -> Option<&Configuration<S>> {
        let Read { mut values, mut problems, has_file } = self.layers.read(&self.keys);
        if self.had_file && !has_file && !self.layers.file_is_named {
            // A ConfigMap that was deleted by mistake, or a file that is being moved. To go by what nobody said would undo
            // whatever was set, and in silence.
            let place = Place::File { path: self.layers.file.clone(), line: 0 };
            problems.push(Problem::new(place, "", GONE));
        }
        self.had_file |= has_file;
        let said = (values.clone(), problems.iter().map(ToString::to_string).collect::<Vec<_>>());
        if said == self.last {
            return None;
        }
        self.last = said;
        let late = self.keep_places(&mut values);
        let changed = self.changed(&self.last.0);
        match (Read { values, problems, has_file }).settings(&self.keys) {
            Ok(settings) => {
                tracing::info!(event = "config.reloaded", changed, "the configuration changed");
                let trouble = (!late.is_empty()).then(|| {
                    Trouble::RestartNeeded(format!(
                        "{} changed; where things are is taken over at the start: restart it",
                        late.join(", ")
                    ))
                });
                self.right.clone_from(&self.last.0);
                self.current = Configuration { settings: Arc::new(settings), trouble };
            }
            Err(problems) => {
                let mut said: Vec<String> = problems.iter().take(TOLD).map(ToString::to_string).collect();
                if problems.len() > TOLD {
                    said.push(format!("and {} more", problems.len() - TOLD));
                }
                let message = format!("the last good configuration is used, because {}", said.join(" · "));
                self.current.trouble = Some(Trouble::Invalid(message));
            }
        }
        Some(&self.current)
    }

    /// The keys that say another thing than what is gone by. Not than what was wrong since: a file that is there again as it
    /// was changes nothing.
    fn changed(&self, values: &Values) -> String {
        let changed: BTreeSet<&str> =
            self.keys.iter().filter(|key| differ(key, &self.right, values)).map(Key::name).collect();
        changed.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// Puts back what is taken at the start only; names what was to be changed of it.
    fn keep_places(&self, values: &mut Values) -> Vec<&str> {
        let late = self.keys.iter().filter(|key| !key.is_hot() && differ(key, &self.start, values));
        let late: Vec<&str> = late.map(Key::name).collect();
        for name in &late {
            match self.start.get(*name) {
                Some(said) => drop(values.insert((*name).to_owned(), said.clone())),
                None => drop(values.remove(*name)),
            }
        }
        late
    }
}

/// Looks after the configuration for ever; whatever the file says anew is told to `heard`.
pub async fn run<S: Configured>(live: Live<S>, heard: impl Fn(&Configuration<S>)) {
    follow(live, heard, Watch::open).await;
}

/// The file's directory, as long as the system tells of changes there.
struct Watch {
    inotify: Inotify,
    readable: Readable,
}

impl Watch {
    fn open() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self { readable: Readable::new(inotify.as_fd())?, inotify })
    }

    fn arm(&self, directory: &Path) {
        let changes = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        // What is not there is not to be watched; it is looked at all the same.
        let _ = self.inotify.add_watch(directory, changes);
    }

    async fn event(watch: Option<&Self>) -> io::Result<()> {
        let Some(Self { inotify, readable }) = watch else { return std::future::pending().await };
        readable.wait(|| drain(inotify)).await
    }
}

async fn follow<S: Configured>(
    mut live: Live<S>,
    heard: impl Fn(&Configuration<S>),
    mut open: impl FnMut() -> io::Result<Watch>,
) {
    let directory = live.layers.file.parent().unwrap_or_else(|| Path::new("/")).to_owned();
    let (mut watch, mut told) = (None, false);
    loop {
        if watch.is_none() {
            match open() {
                Ok(new) => watch = Some(new),
                // Out of inotify instances, most often: no reason to end.
                Err(error) if !told => {
                    tracing::warn!(event = "config.not_watched", %error, "the file is looked at every {} s", LOOK.as_secs());
                    told = true;
                }
                Err(_) => {}
            }
        }
        // The directory and not the file: a ConfigMap's file is a link by way of `..data`, which the kubelet replaces.
        // Once more does no harm, and what was replaced as a whole is watched again.
        if let Some(watch) = &watch {
            watch.arm(&directory);
        }
        if let Some(configuration) = live.read_again() {
            heard(configuration);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            event = Watch::event(watch.as_ref()) => match event {
                Ok(()) => tokio::time::sleep(SETTLED).await,
                Err(_) => {
                    watch = None;
                    tokio::time::sleep(LOOK).await;
                }
            },
        }
    }
}

/// Waits until another configuration is there.
pub async fn changed<C>(configurations: &mut watch::Receiver<C>) {
    // Nobody changes it any more.
    if configurations.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn differ(key: &Key, one: &Values, other: &Values) -> bool {
    let value = |values: &Values| values.get(key.name()).map(|said| said.value.clone()).or_else(|| key.default());
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

    #[derive(Debug)]
    struct Word(String);

    impl Configured for Word {
        type Options = Options;
        type Error = Infallible;

        fn configured(Options { word }: Options) -> Result<Self, Infallible> {
            Ok(Self(word))
        }
    }

    #[test]
    fn a_file_that_is_gone_takes_nothing_back_until_there_is_one_again() {
        let directory = tempfile::tempdir().unwrap();
        let layers = Layers { file: directory.path().join("program.conf"), ..Layers::default() };
        let (keys, file) = (Keys::of::<Options>(), layers.file.clone());
        let start = |layers: &Layers| {
            let read = layers.read(&keys);
            Live::<Word>::new(layers.clone(), read.values.clone(), read.settings(&keys).unwrap())
        };
        let mut live = start(&layers);
        assert!(live.read_again().is_none(), "there never was one");
        let mut said = |text: Option<&str>| {
            match text {
                Some(text) => std::fs::write(&file, text).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            let now = live.read_again()?;
            let trouble = now.trouble.as_ref().map(|trouble| match trouble {
                Trouble::Invalid(message) => message.replace(&file.display().to_string(), "FILE"),
                Trouble::RestartNeeded(message) => panic!("{message}"),
            });
            Some((now.settings.0.clone(), trouble))
        };
        let gone = || Some(format!("the last good configuration is used, because FILE: {GONE}"));
        let right = |word: &str| Some((word.to_owned(), None));
        assert_eq!(said(Some("WORD=one\n")), right("one"));
        assert_eq!(said(None), Some(("one".to_owned(), gone())));
        assert_eq!(said(Some("WORD=two\n")), right("two"));
        assert!(said(Some("WORT=three\n")).is_some_and(|(word, trouble)| word == "two" && trouble.is_some()));
        assert_eq!(said(None), Some(("two".to_owned(), gone())), "what was wrong with it is no more");
        assert_eq!(said(Some("")), right("none"), "an empty one takes back");
        assert_eq!(said(None), Some(("none".to_owned(), gone())));
        assert!(start(&layers).read_again().is_none(), "a start knows of none");
    }

    #[test]
    fn a_file_that_is_there_again_as_it_was_is_said_to_change_no_key() {
        let directory = tempfile::tempdir().unwrap();
        let layers = Layers { file: directory.path().join("program.conf"), ..Layers::default() };
        let (keys, file) = (Keys::of::<Options>(), layers.file.clone());
        std::fs::write(&file, "WORD=one\n").unwrap();
        let read = layers.read(&keys);
        let mut live = Live::<Word>::new(layers.clone(), read.values.clone(), read.settings(&keys).unwrap());
        for (text, changed) in
            [(None, "WORD"), (Some("WORD=one\n"), ""), (Some("WORT=two\n"), "WORD"), (Some("WORD=two\n"), "WORD")]
        {
            match text {
                Some(text) => std::fs::write(&file, text).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            assert_eq!(live.changed(&layers.read(&keys).values), changed, "{text:?}");
            assert!(live.read_again().is_some());
        }
        assert_eq!(live.changed(&layers.read(&keys).values), "", "what is gone by");
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_can_be_watched_the_file_is_looked_at_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("program.conf");
        std::fs::write(&file, "WORD=first\n").unwrap();
        let layers = Layers { file: file.clone(), file_is_named: true, ..Layers::default() };
        let keys = Keys::of::<Options>();
        let read = layers.read(&keys);
        let live = Live::new(layers, read.values.clone(), read.settings(&keys).unwrap());
        let (words, opened) = (RefCell::new(Vec::new()), RefCell::new(0));
        let heard = |configuration: &Configuration<Word>| words.borrow_mut().push(configuration.settings.0.clone());
        let none_left = || {
            *opened.borrow_mut() += 1;
            Err(io::Error::other("none left"))
        };
        let following = async {
            tokio::time::sleep(LOOK / 2).await;
            std::fs::write(&file, "WORD=second\n").unwrap();
            tokio::time::sleep(LOOK).await;
        };
        tokio::select! {
            () = follow(live, heard, none_left) => unreachable!("it goes on for ever"),
            () = following => {}
        }
        assert_eq!(
            (words.take(), opened.take()),
            (vec!["second".to_owned()], 2),
            "what was said at the start is no news"
        );
    }
}
