//! Rules of health signals that the controller sends to all agents: written to a file that outlives a boot, so that they hold
//! after a start without the controller. The thread of health signals reads the file, and reports what is in force.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use health::rules::{Rules, version};
use hyper::body::Bytes;
use ipam::write_atomically;
use resident::logging::chain;
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

/// The file, which has one writer at a time.
#[derive(Clone, Debug)]
pub(super) struct ControllerRules(Arc<Mutex<PathBuf>>);

/// Why rules are not kept.
#[derive(Debug, Error)]
pub(super) enum RulesError {
    #[error("the health rules from the controller cannot be parsed")]
    Invalid(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the task that writes the rules ended")]
    Ended(#[from] JoinError),
}

impl ControllerRules {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(Arc::new(Mutex::new(path)))
    }

    /// Keeps other rules; none withdraw the earlier ones.
    /// After an error the earlier ones stay.
    pub(super) async fn replace(&self, text: Bytes) -> Result<(), RulesError> {
        let path = self.0.clone().lock_owned().await;
        spawn_blocking(move || write(&path, &text)).await?
    }
}

fn write(path: &Path, text: &[u8]) -> Result<(), RulesError> {
    let text = std::str::from_utf8(text).map_err(|error| RulesError::Invalid(error.into()))?;
    let written = if text.is_empty() {
        fs::remove_file(path).or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    } else {
        Rules::check_file(text).map_err(|error| RulesError::Invalid(error.into()))?;
        write_atomically(path, text.as_bytes())
    };
    written.map_err(|source| RulesError::Write { path: path.to_owned(), source })?;
    let version = if text.is_empty() { "none".to_owned() } else { version(text) };
    tracing::info!(event = "rules.received", version, file = %path.display(), "in force within a minute");
    Ok(())
}

impl RulesError {
    /// The HTTP status and text of the answer.
    pub(super) fn answer(&self) -> (u16, String) {
        let status = if matches!(self, Self::Invalid(_)) { 400 } else { 500 };
        (status, format!("{}\n", chain(self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"{"rules": [{"name": "conntrack-nearly-full", "bound": 90}]}"#;

    #[tokio::test]
    async fn rules_stay_until_others_come_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.json");
        let rules = ControllerRules::new(file.clone());
        rules.replace(RULES.into()).await.unwrap();
        for invalid in [&b"{}"[..], b"\xff", br#"{"rules": {}}"#, br#"{"rules": [], "more": 1}"#] {
            let error = rules.replace(Bytes::from_static(invalid)).await.unwrap_err();
            assert_eq!((error.answer().0, fs::read_to_string(&file).unwrap().as_str()), (400, RULES), "{error}");
        }
        for _ in 0..2 {
            rules.replace(Bytes::new()).await.unwrap();
            assert!(!file.exists());
        }
        drop(folder);
        assert_eq!(rules.replace(RULES.into()).await.unwrap_err().answer().0, 500, "the folder is gone");
    }
}
