//! Rules of health signals that the leader sends to all agents.

use std::io;
use std::path::Path;

use channel::BODY_MAX;
use health::rules::{Rules, version};
use resident::config::file::read;
use thiserror::Error;

/// The rules for all agents; by default none, and agents then delete those that they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetRules {
    pub text: String,
    /// Its version, empty without a text.
    pub version: String,
}

/// Why a file cannot be sent.
#[derive(Debug, Error)]
pub(crate) enum RulesError {
    /// It cannot be read.
    #[error("read it")]
    Read(#[from] io::Error),
    /// It has another form.
    #[error("it is not a file of rules")]
    Invalid(#[from] serde_json::Error),
    /// No agent accepts it.
    #[error("it is longer than {BODY_MAX} bytes")]
    TooLong,
}

impl FleetRules {
    /// Reads the file, if it is there.
    pub(crate) async fn read(file: &Path) -> Result<Option<Self>, RulesError> {
        let path = file.to_owned();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        let text = match read.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        if text.len() > BODY_MAX {
            return Err(RulesError::TooLong);
        }
        Rules::check_file(&text)?;
        let version = version(&text);
        Ok(Some(Self { text, version }))
    }
}

#[cfg(test)]
mod tests {
    use resident::logging::chain;

    use super::*;

    #[tokio::test]
    async fn file_is_sent_if_agents_would_accept_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("health-rules.json");
        assert_eq!(FleetRules::read(&file).await.unwrap(), None);
        let long = format!(r#"{{"rules": []}}{}"#, " ".repeat(BODY_MAX));
        for (text, problem) in
            [("{}", "it is not a file of rules"), ("", "it is not a file of rules"), (&long, "it is longer than 65536")]
        {
            std::fs::write(&file, text).unwrap();
            let error = FleetRules::read(&file).await.unwrap_err().to_string();
            assert!(error.starts_with(problem), "{error}");
        }
        // Neither blocks, nor reads without end.
        for special in ["mkfifo", "ln"] {
            std::fs::remove_file(&file).unwrap();
            let mut make = std::process::Command::new(special);
            if special == "ln" {
                make.args(["-s", "/dev/zero"]);
            }
            assert!(make.arg(&file).status().unwrap().success());
            let error = chain(&FleetRules::read(&file).await.unwrap_err());
            assert!(error.ends_with("it is not a regular file"), "{special}: {error}");
        }
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, r#"{"rules": []}"#).unwrap();
        assert_eq!(FleetRules::read(&file).await.unwrap().unwrap().version.len(), 71);
    }
}
