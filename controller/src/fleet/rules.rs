//! Rules of health signals that the leader sends to all agents: a file of the controller's ConfigMap. A file that is missing for
//! long withdraws them; one that is missing for a moment, while a ConfigMap is made again, does not.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use channel::BODY_MAX;
use health::rules::{Rules, RulesText, version};
use resident::config::file::read;
use resident::logging::chain;
use thiserror::Error;
use tokio::time::{Instant, sleep};

use crate::fleet::shared::SharedRoster;
use crate::report::metrics::Metrics;

/// How often the file is read. The kubelet takes about a minute to update it.
const EVERY: Duration = Duration::from_secs(10);

/// How long the file is missing before the rules are withdrawn.
const MISSING: Duration = Duration::from_mins(10);

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

/// Lets the roster send the file's rules, and those of each later version; never returns. While the file cannot be sent, agents
/// keep what they have.
pub(crate) async fn follow(file: &Path, roster: Arc<SharedRoster>, metrics: &Metrics) {
    let (mut sent, mut trouble, mut missing_since) = (None, None, None);
    loop {
        let read = FleetRules::read(file).await;
        metrics.fleet.rules_invalid.set(i64::from(read.is_err()));
        let error = read.as_ref().err().map(|error| chain(error));
        if let Some(error) = error.as_ref().filter(|error| trouble.as_ref() != Some(*error)) {
            tracing::warn!(event = "rules.invalid", file = %file.display(), error, "agents keep their rules");
        }
        trouble = error;
        let rules = match read {
            Ok(Some(rules)) => {
                missing_since = None;
                Some(rules)
            }
            Ok(None) if missing_since.get_or_insert_with(Instant::now).elapsed() >= MISSING => {
                Some(FleetRules::default())
            }
            _ => None,
        };
        if let Some(rules) = rules.filter(|rules| sent.as_ref() != Some(rules)) {
            log(file, &rules);
            roster.lock().set_rules(Arc::new(rules.clone()));
            sent = Some(rules);
        }
        sleep(EVERY).await;
    }
}

fn log(file: &Path, rules: &FleetRules) {
    let path = file.display();
    if rules.text.is_empty() {
        tracing::info!(event = "rules.none", file = %path, "agents delete rules that they received");
        return;
    }
    for problem in Rules::read(&[RulesText { source: "HEALTH_RULES", text: &rules.text }]).problems {
        tracing::warn!(event = "rules.invalid", file = %path, error = problem, "agents leave this rule out");
    }
    tracing::info!(event = "rules.read", file = %path, version = rules.version);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::roster::PollLimits;

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
            assert!(error.ends_with("it is no regular file"), "{special}: {error}");
        }
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, r#"{"rules": []}"#).unwrap();
        assert_eq!(FleetRules::read(&file).await.unwrap().unwrap().version.len(), 71);
    }

    #[tokio::test(start_paused = true)]
    async fn rules_are_withdrawn_when_the_file_is_missing_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("health-rules.json");
        std::fs::write(&file, r#"{"rules": []}"#).unwrap();
        let roster = Arc::new(SharedRoster::new(PollLimits::DEFAULT));
        let length = || roster.lock().rules_version().map(str::len);
        let looks = async {
            let mut found = Vec::new();
            for minutes in [1, 9, 2] {
                sleep(Duration::from_mins(minutes)).await;
                found.push(length());
                let _ = std::fs::remove_file(&file);
            }
            found
        };
        let metrics = Metrics::default();
        tokio::select! {
            () = follow(&file, roster.clone(), &metrics) => unreachable!("it never returns"),
            found = looks => assert_eq!(found, [Some(71), Some(71), Some(0)]),
        }
    }
}
