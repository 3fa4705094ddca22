//! The configuration of a running agent: when the file changes, what is right is taken over; when it is wrong, the last
//! good one is kept and a condition says what is wrong. Where things are stays as it was at the start.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::sync::watch;

use crate::condition::{Condition, Reason};
use crate::config::keys::{Key, Keys};
use crate::config::{Layers, Read, Values};
use crate::files::drain;
use crate::logging;
use crate::metrics::Metrics;
use crate::readable::Readable;
use crate::settings::Settings;

/// How often the file is looked at although nothing is heard of it: its directory may not have been there.
const LOOK: Duration = Duration::from_secs(60);

/// Editors and kubelets change a file in several steps.
const SETTLED: Duration = Duration::from_millis(50);

/// What the agent goes by.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The settings.
    pub settings: Arc<Settings>,
    /// What is wrong with what the file says now.
    pub conditions: Vec<Condition>,
}

/// The configuration and where it comes from.
#[derive(Debug)]
pub struct Live {
    keys: Keys,
    layers: Layers,
    /// What was said at the start.
    start: Values,
    /// What was said last, be it right or wrong.
    last: (Values, Vec<String>),
    /// The last that was right.
    current: Configuration,
}

impl Live {
    /// What an agent starts with.
    #[must_use]
    pub fn new(layers: Layers, start: Values, settings: Settings) -> Self {
        let current = Configuration { settings: Arc::new(settings), conditions: Vec::new() };
        Self { keys: Keys::default(), layers, last: (start.clone(), Vec::new()), start, current }
    }

    /// What to go by now.
    #[must_use]
    pub const fn current(&self) -> &Configuration {
        &self.current
    }

    /// Reads the file again. `None` when it says what it said.
    pub fn read_again(&mut self) -> Option<&Configuration> {
        let Read { mut values, problems } = self.layers.read(&self.keys);
        let said = (values.clone(), problems.iter().map(ToString::to_string).collect::<Vec<_>>());
        if said == self.last {
            return None;
        }
        let before = std::mem::replace(&mut self.last, said).0;
        let late = self.keep_places(&mut values);
        let changed: BTreeSet<&str> =
            self.keys.iter().filter(|key| differ(key, &before, &self.last.0)).map(Key::name).collect();
        let changed = changed.into_iter().collect::<Vec<_>>().join(", ");
        let file = self.layers.file.display();
        match (Read { values, problems }).settings(&self.keys) {
            Ok(settings) => {
                tracing::info!(event = "config.reloaded", changed, "the configuration changed");
                let condition = |late: Vec<&str>| {
                    let message = format!(
                        "{} changed; the agent takes over where things are at its start: restart it",
                        late.join(", ")
                    );
                    Condition::degraded(Reason::RestartNeeded, message).about(&file)
                };
                let conditions = (!late.is_empty()).then(|| condition(late)).into_iter().collect();
                self.current = Configuration { settings: Arc::new(settings), conditions };
            }
            Err(problems) => {
                let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
                let message = format!("the last good configuration is used, because {}", said.join(" · "));
                self.current.conditions = vec![Condition::degraded(Reason::ConfigurationInvalid, message).about(&file)];
            }
        }
        Some(&self.current)
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

/// Looks after the configuration for ever.
///
/// # Errors
/// When the system has no watches left.
pub async fn run(
    mut live: Live,
    configurations: watch::Sender<Configuration>,
    metrics: Arc<Metrics>,
) -> io::Result<()> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    let readable = Readable::new(inotify.as_fd())?;
    let directory = live.layers.file.parent().unwrap_or_else(|| Path::new("/")).to_owned();
    let changes = AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF;
    loop {
        // The directory and not the file: a ConfigMap's file is a link by way of `..data`, which the kubelet replaces.
        // Once more does no harm, and what was replaced as a whole is watched again.
        let _ = inotify.add_watch(&directory, changes);
        if let Some(configuration) = live.read_again() {
            metrics.configuration_read(
                configuration.conditions.iter().all(|it| it.reason != Reason::ConfigurationInvalid),
            );
            logging::set(configuration.settings.log_level);
            configurations.send_replace(configuration.clone());
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            heard = readable.wait(|| drain(&inotify)) => {
                heard?;
                tokio::time::sleep(SETTLED).await;
            }
        }
    }
}

/// Waits until another configuration is there.
pub async fn changed(configurations: &mut watch::Receiver<Configuration>) {
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
    use super::*;

    fn write(directory: &tempfile::TempDir, text: &str) {
        std::fs::write(directory.path().join("agent.conf"), text).unwrap();
    }

    fn live(directory: &tempfile::TempDir) -> Live {
        let layers = Layers { file: directory.path().join("agent.conf"), file_is_named: true, ..Layers::default() };
        let keys = Keys::default();
        let read = layers.read(&keys);
        let values = read.values.clone();
        Live::new(layers, values, read.settings(&keys).unwrap())
    }

    #[test]
    fn what_is_right_is_taken_over_and_what_is_wrong_leaves_the_last_good() {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "RESYNC_SECONDS=5\n");
        let mut live = live(&directory);
        assert!(live.read_again().is_none());
        write(&directory, "RESYNC_SECONDS=6\n");
        assert_eq!(live.read_again().unwrap().settings.resync.as_secs(), 6);
        write(&directory, "RESYNC_SECONDS=7\nRESYNK=1\nLOG_LEVEL=loud\n");
        let now = live.read_again().unwrap();
        assert_eq!(now.settings.resync.as_secs(), 6);
        assert_eq!(now.conditions[0].reason, Reason::ConfigurationInvalid);
        let message = &now.conditions[0].message;
        assert!(message.contains("line 2: RESYNK is no key") && message.contains("line 3: LOG_LEVEL"), "{message}");
        write(&directory, "RESYNC_SECONDS=7\n");
        let now = live.read_again().unwrap();
        assert_eq!((now.settings.resync.as_secs(), now.conditions.len()), (7, 0));
    }

    #[test]
    fn where_things_are_stays_and_the_rest_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "DATA_DIR=/var/lib/one\n");
        let mut live = live(&directory);
        write(&directory, "DATA_DIR=/var/lib/other\nSTATE_DIR=/run/other\nRESYNC_SECONDS=6\n");
        let now = live.read_again().unwrap();
        assert_eq!(now.settings.data_dir, Path::new("/var/lib/one"));
        assert_eq!(now.settings.state_dir, Path::new(vcn::STATE_DIR));
        assert_eq!(now.settings.resync.as_secs(), 6);
        assert_eq!(now.conditions[0].reason, Reason::RestartNeeded);
        assert!(now.conditions[0].message.starts_with("STATE_DIR, DATA_DIR changed"), "{}", now.conditions[0].message);
        write(&directory, "DATA_DIR=/var/lib/one\n");
        assert_eq!(live.read_again().unwrap().conditions, []);
    }
}
