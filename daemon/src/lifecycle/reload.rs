//! The configuration of a running agent, and what is wrong with its file as conditions.

use std::path::Path;
use std::sync::Arc;

use resident::reload::{self, Trouble};
use resident::{logging, reload::Live};
use tokio::sync::watch;

use crate::report::condition::{Condition, Reason};
use crate::report::metrics::Metrics;
use crate::settings::Settings;

pub use resident::reload::changed;

/// What the agent goes by.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The settings.
    pub settings: Arc<Settings>,
    /// What is wrong with what the file says now.
    pub conditions: Vec<Condition>,
}

impl Configuration {
    /// As it was read from a file.
    #[must_use]
    pub fn of(read: &reload::Configuration<Settings>, file: &Path) -> Self {
        let file = file.display();
        let condition = |trouble: &Trouble| match trouble {
            Trouble::Invalid(message) => Condition::degraded(Reason::ConfigurationInvalid, message).about(&file),
            Trouble::RestartNeeded(message) => Condition::degraded(Reason::RestartNeeded, message).about(&file),
        };
        Self { settings: read.settings.clone(), conditions: read.trouble.iter().map(condition).collect() }
    }
}

/// Looks after the configuration for ever.
pub async fn run(live: Live<Settings>, configurations: watch::Sender<Configuration>, metrics: Arc<Metrics>) {
    let file = live.file().to_owned();
    reload::run(live, |read| {
        metrics.configuration_read(!matches!(read.trouble, Some(Trouble::Invalid(_))));
        logging::set(read.settings.log_level);
        configurations.send_replace(Configuration::of(read, &file));
    })
    .await;
}

#[cfg(test)]
mod tests {
    use resident::config::Layers;

    use super::*;

    fn write(directory: &tempfile::TempDir, text: &str) {
        std::fs::write(directory.path().join("agent.conf"), text).unwrap();
    }

    fn live(directory: &tempfile::TempDir) -> Live<Settings> {
        let layers = Layers { file: directory.path().join("agent.conf"), file_is_named: true, ..Layers::default() };
        let keys = crate::args::keys();
        let read = layers.read(&keys);
        let values = read.values.clone();
        Live::new(layers, values, read.settings(&keys).unwrap())
    }

    fn again(live: &mut Live<Settings>) -> Option<Configuration> {
        live.read_again().map(|read| Configuration::of(read, Path::new("agent.conf")))
    }

    #[test]
    fn what_is_right_is_taken_over_and_what_is_wrong_leaves_the_last_good() {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "RESYNC_SECONDS=5\n");
        let mut live = live(&directory);
        assert!(again(&mut live).is_none());
        write(&directory, "RESYNC_SECONDS=6\n");
        assert_eq!(again(&mut live).unwrap().settings.resync.as_secs(), 6);
        write(&directory, "RESYNC_SECONDS=7\nRESYNK=1\nLOG_LEVEL=loud\n");
        let now = again(&mut live).unwrap();
        assert_eq!(now.settings.resync.as_secs(), 6);
        assert_eq!(now.conditions[0].reason, Reason::ConfigurationInvalid);
        let message = &now.conditions[0].message;
        assert!(message.contains("line 2: RESYNK is no key") && message.contains("line 3: LOG_LEVEL"), "{message}");
        write(&directory, "RESYNC_SECONDS=7\n");
        let now = again(&mut live).unwrap();
        assert_eq!((now.settings.resync.as_secs(), now.conditions.len()), (7, 0));
    }

    #[test]
    fn of_a_file_of_somebody_elses_the_beginning_is_told() {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "");
        let mut live = live(&directory);
        let lines = "{\"key\": \"a value that means nothing to us\"}\n".repeat(500)
            + &"A".repeat(100_000)
            + "=1\n"
            + &"B=1\n".repeat(100_000);
        write(&directory, &lines);
        let now = again(&mut live).unwrap();
        let message = &now.conditions[0].message;
        assert!(message.ends_with("and 981 more") && message.len() < 8192, "{} bytes", message.len());
    }

    #[test]
    fn where_things_are_stays_and_the_rest_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "DATA_DIR=/var/lib/one\n");
        let mut live = live(&directory);
        write(&directory, "DATA_DIR=/var/lib/other\nSTATE_DIR=/run/other\nRESYNC_SECONDS=6\n");
        let now = again(&mut live).unwrap();
        assert_eq!(now.settings.data_dir, Path::new("/var/lib/one"));
        assert_eq!(now.settings.state_dir, Path::new(vcn::STATE_DIR));
        assert_eq!(now.settings.resync.as_secs(), 6);
        assert_eq!(now.conditions[0].reason, Reason::RestartNeeded);
        assert!(now.conditions[0].message.starts_with("STATE_DIR, DATA_DIR changed"), "{}", now.conditions[0].message);
        write(&directory, "DATA_DIR=/var/lib/one\n");
        assert_eq!(again(&mut live).unwrap().conditions, []);
    }
}
