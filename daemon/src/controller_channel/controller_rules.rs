//! Rules of health signals that the controller sends to all agents: kept in a file that outlives a boot, so that they hold
//! after a start without the controller. The thread of health signals reads the file.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use channel::Fingerprint;
use health::rules::Rules;
use ipam::{read_state, write_atomically};
use resident::logging::chain;
use thiserror::Error;
use tokio::task::{JoinError, spawn_blocking};

use crate::settings::Settings;

/// The file, and what it contains.
#[derive(Clone, Debug)]
pub(super) struct ControllerRules {
    path: PathBuf,
    /// The SHA-256 of the file, empty if there is none.
    version: Arc<Mutex<String>>,
}

/// Why rules are not kept.
#[derive(Debug, Error)]
pub(super) enum RulesError {
    #[error("the rules are not a file of rules")]
    Invalid(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the task that writes the rules ended")]
    Ended(#[from] JoinError),
}

impl ControllerRules {
    /// The rules that an earlier agent of this node received. What cannot be read is asked for again.
    pub(super) fn of(settings: &Settings) -> Self {
        let path = settings.controller_rules();
        let version = read_state(&path).map_or_else(|_| String::new(), |text| version(&text));
        Self { path, version: Arc::new(Mutex::new(version)) }
    }

    /// The version of the rules that are kept.
    pub(super) fn version(&self) -> String {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps other rules; none withdraw the earlier ones.
    ///
    /// # Errors
    /// If they are not a file of rules, or cannot be written. The earlier ones then stay.
    pub(super) async fn replace(&self, text: Vec<u8>) -> Result<(), RulesError> {
        let kept = self.clone();
        spawn_blocking(move || kept.write(&text)).await?
    }

    fn write(&self, text: &[u8]) -> Result<(), RulesError> {
        // Held until the file is written: it has one writer at a time.
        let mut kept = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        let written = if text.is_empty() {
            fs::remove_file(&self.path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
        } else {
            let text = std::str::from_utf8(text).map_err(|error| RulesError::Invalid(error.into()))?;
            Rules::check_file(text).map_err(|error| RulesError::Invalid(error.into()))?;
            write_atomically(&self.path, text.as_bytes())
        };
        written.map_err(|source| RulesError::Write { path: self.path.clone(), source })?;
        *kept = version(text);
        tracing::info!(event = "rules.received", version = *kept, file = %self.path.display());
        Ok(())
    }
}

impl RulesError {
    /// The HTTP status and text of the answer.
    pub(super) fn answer(&self) -> (u16, String) {
        let status = if matches!(self, Self::Invalid(_)) { 400 } else { 500 };
        (status, format!("{}\n", chain(self)))
    }
}

fn version(text: &[u8]) -> String {
    if text.is_empty() { String::new() } else { Fingerprint::of(text).to_string() }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Args;

    const RULES: &[u8] = br#"{"rules": [{"name": "conntrack-nearly-full", "bound": 90}]}"#;

    #[tokio::test]
    async fn rules_are_kept_for_the_next_start_until_others_come_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let command = ["oke-node-agent", "--data-dir", folder.path().to_str().unwrap()];
        let settings = Settings::new(Args::try_parse_from(command).unwrap().options).unwrap();
        let kept = ControllerRules::of(&settings);
        assert_eq!(kept.version(), "");
        kept.replace(RULES.to_vec()).await.unwrap();
        let version = kept.version();
        assert_eq!((version.len(), fs::read(settings.controller_rules()).unwrap()), (71, RULES.to_vec()));
        assert_eq!(ControllerRules::of(&settings).version(), version, "after a restart");

        for invalid in [&b"{}"[..], b"\xff", br#"{"rules": {}}"#, br#"{"rules": [], "more": 1}"#] {
            let error = kept.replace(invalid.to_vec()).await.unwrap_err();
            assert_eq!((error.answer().0, kept.version()), (400, version.clone()), "{error}");
        }
        assert_eq!(fs::read(settings.controller_rules()).unwrap(), RULES, "invalid rules replace nothing");

        for _ in 0..2 {
            kept.replace(Vec::new()).await.unwrap();
            assert!(kept.version().is_empty() && !settings.controller_rules().exists());
        }
        drop(folder);
        let error = kept.replace(RULES.to_vec()).await.unwrap_err();
        assert_eq!((error.answer().0, kept.version().as_str()), (500, ""), "{error}");
    }
}
