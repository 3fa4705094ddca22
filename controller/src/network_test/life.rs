//! The life of one NetworkTest: its runs, its status, its end.

use std::sync::Arc;
use std::time::Duration;

use api::{NetworkTest, NetworkTestStatus, TestState};
use backoff::{Backoff, chance};
use futures::stream::{self, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};
use resident::logging::chain;
use tokio::time::{Instant, sleep, timeout_at};

use super::agents::AgentCalls;
use super::pair::investigate;
use super::pair_error::PairError;
use super::pairs::{TestPair, pairs};
use super::pods::pods;
use super::shared::NetworkTests;
use super::summary::Summary;
use crate::cluster::object_writes::write_status;
use crate::cluster::request::send;

/// While a test runs, its status is written at most this often.
const PROGRESS: Duration = Duration::from_secs(10);
/// The wait after a failed write.
const RETRY: Duration = Duration::from_secs(30);
/// Seconds to wait for the first pair, and then for all pairs.
const DEADLINE: u16 = 120;
/// Pairs that are tested at once.
const CONCURRENCY: u8 = 8;
/// The waits for the first pair.
const PAIR_BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), cap: Duration::from_mins(1) };
/// How long a finished test stays.
const TTL: u32 = 86_400;

/// Runs the test as its spec says, and deletes it in the end; never returns before that.
pub(crate) async fn live<A: AgentCalls>(context: Arc<NetworkTests<A>>, test: NetworkTest) {
    let mut status = test.status.clone().unwrap_or_default();
    loop {
        match (test.spec.interval_seconds, &status.started_at, &status.finished_at) {
            (None, _, Some(finished)) => {
                let stays = test.spec.ttl_seconds_after_finished.unwrap_or(TTL);
                sleep(left(finished, stays, Timestamp::now())).await;
                delete(&context, &test).await;
            }
            (Some(interval), Some(started), Some(_)) => {
                sleep(left(started, interval, Timestamp::now())).await;
                status = run(&context, &test).await;
            }
            // A run that another leader began is begun again: probes leave nothing behind.
            _ => status = run(&context, &test).await,
        }
    }
}

/// The time until so many seconds after something.
fn left(since: &Time, seconds: u32, now: Timestamp) -> Duration {
    let due = since.0.as_second().saturating_add(i64::from(seconds));
    Duration::from_secs(u64::try_from(due.saturating_sub(now.as_second())).unwrap_or(0))
}

/// One run, with its status written at the start, in between and at the end.
async fn run<A: AgentCalls>(context: &NetworkTests<A>, test: &NetworkTest) -> NetworkTestStatus {
    let started = Time(Timestamp::now());
    let selected = match selected(context, test, &started).await {
        Ok(selected) => selected,
        Err(error) => {
            let refused = NetworkTestStatus {
                state: Some(TestState::Refused),
                message: error.to_string(),
                started_at: Some(started.clone()),
                finished_at: Some(Time(Timestamp::now())),
                ..NetworkTestStatus::default()
            };
            return written(context, test, refused.bounded()).await;
        }
    };
    // Few tests at once: the others wait here, and their status says nothing yet.
    let Ok(_turn) = context.turns.acquire().await else { return NetworkTestStatus::default() };
    tracing::info!(event = "network_test.started", name = test.name_any(), pairs = selected.len());
    let mut summary = Summary::new(selected.len());
    let agents = context.agents.clone();
    // Dropping `found` stops everything but what agents are doing already.
    let mut found = stream::iter(selected)
        .map(move |pair| investigate(agents.clone(), pair))
        .buffer_unordered(test.spec.concurrency.unwrap_or(CONCURRENCY).into());
    let end = Instant::now() + deadline(test);
    let _ = write(context, test, &summary.status(TestState::Running, started.clone(), None)).await;
    let mut last = Instant::now();
    let state = loop {
        match timeout_at(end, found.next()).await {
            Ok(Some(pair)) => summary.add(pair),
            Ok(None) => break TestState::Finished,
            Err(_) => break TestState::TimedOut,
        }
        if last.elapsed() >= PROGRESS {
            last = Instant::now();
            let _ = write(context, test, &summary.status(TestState::Running, started.clone(), None)).await;
        }
    };
    let status = summary.status(state, started, Some(Time(Timestamp::now())));
    tracing::info!(event = "network_test.finished", name = test.name_any(), worst = status.worst_verdict);
    written(context, test, status).await
}

fn deadline(test: &NetworkTest) -> Duration {
    Duration::from_secs(test.spec.deadline_seconds.unwrap_or(DEADLINE).into())
}

/// The pairs. A leader that has just begun does not know all agents yet, and waits for them; selected pods may not run yet.
async fn selected<A: AgentCalls>(
    context: &NetworkTests<A>,
    test: &NetworkTest,
    started: &Time,
) -> Result<Vec<TestPair>, PairError> {
    let end = Instant::now() + deadline(test);
    let mut attempt = 1;
    loop {
        let selected = pods(&context.client, &test.spec).await?;
        let left = end.saturating_duration_since(Instant::now());
        match pairs(&test.spec, &context.nodes(selected)) {
            Err(error @ PairError::None) if !left.is_zero() => {
                if attempt == 1 {
                    let waiting = NetworkTestStatus {
                        state: Some(TestState::Waiting),
                        message: error.to_string(),
                        started_at: Some(started.clone()),
                        ..NetworkTestStatus::default()
                    };
                    let _ = write(context, test, &waiting.bounded()).await;
                }
                sleep(PAIR_BACKOFF.delay(attempt, chance()).min(left)).await;
                attempt += 1;
            }
            selected => return selected,
        }
    }
}

/// Writes a final status until it is written.
async fn written<A>(context: &NetworkTests<A>, test: &NetworkTest, status: NetworkTestStatus) -> NetworkTestStatus {
    while let Err(why) = write(context, test, &status).await {
        tracing::warn!(event = "network_test.status", name = test.name_any(), error = why, "retried");
        sleep(RETRY).await;
    }
    status
}

async fn write<A>(context: &NetworkTests<A>, test: &NetworkTest, status: &NetworkTestStatus) -> Result<(), String> {
    let result = write_status(&context.client, test, status, None).await;
    context.metrics.wrote("network_test_status", result.is_ok());
    result.map(drop).map_err(|error| chain(&error))
}

/// Deletes the test. The watch then ends this task.
async fn delete<A>(context: &NetworkTests<A>, test: &NetworkTest) {
    let api: Api<NetworkTest> = Api::all(context.client.clone());
    let preconditions = Preconditions { uid: test.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    let result = send(api.delete(&test.name_any(), &params)).await;
    context.metrics.wrote("network_test_delete", result.is_ok());
    if let Err(error) = result {
        tracing::warn!(event = "network_test.delete", name = test.name_any(), error = chain(&error), "retried");
    }
    sleep(RETRY).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_at_once_when_they_are_over() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(left(&Time(at(100)), 60, at(130)), Duration::from_secs(30));
        assert_eq!(left(&Time(at(100)), 60, at(161)), Duration::ZERO);
        assert_eq!(left(&Time(at(100)), u32::MAX, at(100)), Duration::from_secs(u32::MAX.into()));
    }
}
