//! NetworkTests that exist as long as the command: created, waited for, and deleted, also when the command is interrupted.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use api::{NetworkTest, NetworkTestStatus, TestState};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::interrupts::Interrupts;

/// More than the deadline of a test, for the controller to begin and to write the result.
const RUN_TIMEOUT: Duration = Duration::from_secs(210);
/// Between two reads of the status.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Runs tests at the same time. A result for each, in their order: its status, or why it was not created.
///
/// # Errors
/// When a test could not be read or deleted, or the command was interrupted: all tests are deleted then, too.
pub(crate) async fn run(
    cluster: &Cluster,
    tests: Vec<NetworkTest>,
) -> anyhow::Result<Vec<anyhow::Result<NetworkTestStatus>>> {
    let api: Api<NetworkTest> = Api::all(cluster.client().await?);
    // Before the first test exists: from here on, Ctrl-C does not end the process.
    let mut interrupts = Interrupts::new().context("waiting for signals")?;
    let mut created = Vec::new();
    for test in &tests {
        let test = api.create(&PostParams::default(), test).await.context("creating a NetworkTest");
        created.push(test.map(|test| test.metadata.name.unwrap_or_default()));
    }
    let names: Vec<String> = created.iter().flatten().cloned().collect();
    // Cancel-safe: both only read, and the tests are deleted whichever ends first.
    let statuses = tokio::select! {
        statuses = wait(&api, &names) => statuses,
        () = interrupts.next() => Err(anyhow!("interrupted")),
    };
    let mut left = Vec::new();
    for name in &names {
        if let Err(error) = api.delete(name, &DeleteParams::default()).await {
            left.push(format!("{name}: {error}"));
        }
    }
    let statuses = match (statuses, left.is_empty()) {
        (Ok(statuses), true) => statuses,
        (Err(error), true) if names.is_empty() => return Err(error),
        (Err(error), true) => return Err(error.context(format!("deleted NetworkTest {}", names.join(", ")))),
        (_, false) => bail!("deleting NetworkTest {}; a controller deletes it after five minutes", left.join(", ")),
    };
    let mut statuses = statuses.into_iter();
    let status = |name: anyhow::Result<String>| name.and_then(|_| statuses.next().context("no status"));
    Ok(created.into_iter().map(status).collect())
}

/// Waits for the end of all.
async fn wait(api: &Api<NetworkTest>, names: &[String]) -> anyhow::Result<Vec<NetworkTestStatus>> {
    let (began, shows) = (Instant::now(), std::io::stderr().is_terminal());
    let mut found = Vec::new();
    for name in names {
        let status = loop {
            let status = api.get(name).await.with_context(|| format!("reading NetworkTest {name}"))?.status;
            let status = status.unwrap_or_default();
            if shows {
                progress(status.state, began.elapsed());
            }
            if status.finished_at.is_some() {
                break status;
            }
            if began.elapsed() > RUN_TIMEOUT {
                bail!("no result within {} s: is a controller running?", RUN_TIMEOUT.as_secs());
            }
            sleep(POLL_INTERVAL).await;
        };
        found.push(status);
    }
    if shows {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    Ok(found)
}

fn progress(state: Option<TestState>, elapsed: Duration) {
    let state = match state {
        None => "waiting for the controller",
        Some(TestState::Waiting) => "waiting for agents or pods",
        Some(_) => "probing",
    };
    let _ = write!(std::io::stderr(), "\r{state}: {} s ", elapsed.as_secs());
}
