//! Rules of health signals that the leader sends to all agents: a file of the controller's ConfigMap.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use channel::{BODY_MAX, Fingerprint};
use health::rules::Rules;
use resident::logging::chain;
use thiserror::Error;
use tokio::time::sleep;

use crate::fleet::shared::SharedRoster;

/// How often the file is read. The kubelet takes about a minute to update it.
const EVERY: Duration = Duration::from_secs(10);

/// The rules for all agents; without a file none, and agents then withdraw those that they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetRules {
    /// The file's text.
    pub text: String,
    /// Its SHA-256, empty if there is no file.
    pub version: String,
}

/// Why a file cannot be sent.
#[derive(Debug, Error)]
pub enum RulesError {
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
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be sent.
    pub async fn read(file: &Path) -> Result<Self, RulesError> {
        let text = match tokio::fs::read_to_string(file).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read?,
        };
        if text.len() > BODY_MAX {
            return Err(RulesError::TooLong);
        }
        Rules::check_file(&text)?;
        let version = Fingerprint::of(text.as_bytes()).to_string();
        Ok(Self { text, version })
    }
}

/// Lets the roster send the file's rules, and those of each later version; never returns. While the file cannot be sent, agents
/// keep what they have.
pub async fn follow(file: &Path, roster: Arc<SharedRoster>) {
    let (mut sent, mut trouble) = (None, None);
    loop {
        match FleetRules::read(file).await {
            Ok(rules) => {
                trouble = None;
                let rules = Arc::new(rules);
                if sent.as_ref() != Some(&rules) {
                    log(file, &rules);
                    roster.lock().set_rules(rules.clone());
                    sent = Some(rules);
                }
            }
            Err(error) => {
                let error = chain(&error);
                if trouble.as_ref() != Some(&error) {
                    tracing::warn!(event = "rules.invalid", file = %file.display(), error, "agents keep their rules");
                }
                trouble = Some(error);
            }
        }
        sleep(EVERY).await;
    }
}

fn log(file: &Path, rules: &FleetRules) {
    let file = file.display();
    for problem in Rules::read([rules.text.as_str()].into_iter().filter(|text| !text.is_empty())).problems {
        tracing::warn!(event = "rules.invalid", %file, error = problem, "agents leave this rule out");
    }
    if !rules.text.is_empty() {
        tracing::info!(event = "rules.read", %file, version = rules.version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn file_is_sent_if_agents_would_accept_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("health-rules.json");
        assert_eq!(FleetRules::read(&file).await.unwrap(), FleetRules::default());
        let long = format!(r#"{{"rules": []}}{}"#, " ".repeat(BODY_MAX));
        for (text, problem) in
            [("{}", "it is not a file of rules"), ("", "it is not a file of rules"), (&long, "it is longer than 65536")]
        {
            std::fs::write(&file, text).unwrap();
            let error = FleetRules::read(&file).await.unwrap_err().to_string();
            assert!(error.starts_with(problem), "{error}");
        }
        std::fs::write(&file, r#"{"rules": []}"#).unwrap();
        assert_eq!(FleetRules::read(&file).await.unwrap().version.len(), 71);
    }
}
