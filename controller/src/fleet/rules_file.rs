//! The file of rules for all agents, in the controller's ConfigMap. A file that is missing for long withdraws the rules; one that is
//! missing for a moment, while a ConfigMap is made again, does not.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use health::rules::{Rules, RulesText};
use prometheus_client::metrics::gauge::Gauge;
use resident::logging::chain;
use tokio::time::{Instant, sleep};

use crate::fleet::rules::FleetRules;
use crate::fleet::shared::SharedRoster;

/// How often the file is read. The kubelet takes about a minute to update it.
const INTERVAL: Duration = Duration::from_secs(10);

/// How long the file is missing before the rules are withdrawn.
const WITHDRAWAL_DELAY: Duration = Duration::from_mins(10);

/// Lets the roster send the file's rules, and those of each later version; never returns. While the file cannot be sent, `invalid`
/// is 1, and agents keep what they have.
pub(crate) async fn follow(file: &Path, roster: Arc<SharedRoster>, invalid: &Gauge) {
    let (mut sent, mut trouble, mut missing_since) = (None, None, None);
    loop {
        let read = FleetRules::read(file).await;
        invalid.set(i64::from(read.is_err()));
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
            Ok(None) if missing_since.get_or_insert_with(Instant::now).elapsed() >= WITHDRAWAL_DELAY => {
                Some(FleetRules::default())
            }
            _ => None,
        };
        if let Some(rules) = rules.filter(|rules| sent.as_ref() != Some(rules)) {
            log(file, &rules);
            roster.lock().set_rules(Arc::new(rules.clone()));
            sent = Some(rules);
        }
        sleep(INTERVAL).await;
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
    use crate::fleet::poll::PollLimits;

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
        let invalid = Gauge::default();
        tokio::select! {
            () = follow(&file, roster.clone(), &invalid) => unreachable!("it never returns"),
            found = looks => assert_eq!(found, [Some(71), Some(71), Some(0)]),
        }
    }
}
