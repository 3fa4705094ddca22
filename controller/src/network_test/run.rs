//! One run of a test: its pairs, some at once, until all are tested or the deadline comes.

use std::sync::Arc;
use std::time::Duration;

use api::{NetworkTestSpec, TestState};
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::agents::AgentCalls;
use super::pair::{PairResult, investigate};
use super::pairs::TestPair;
use super::summary::Summary;

const DEADLINE: u16 = 120;
const CONCURRENCY: u8 = 8;

/// A run.
pub(super) struct TestRun {
    found: BoxStream<'static, PairResult>,
    summary: Summary,
    end: Instant,
}

impl TestRun {
    /// Starts the run of a spec. Dropping it stops everything but what agents are doing already.
    pub(super) fn new<A: AgentCalls>(spec: &NetworkTestSpec, pairs: Vec<TestPair>, agents: &Arc<A>) -> Self {
        let at_once = spec.concurrency.unwrap_or(CONCURRENCY).into();
        let deadline = Duration::from_secs(spec.deadline_seconds.unwrap_or(DEADLINE).into());
        let summary = Summary::new(pairs.len());
        let agents = agents.clone();
        let found = stream::iter(pairs).map(move |pair| investigate(agents.clone(), pair)).buffer_unordered(at_once);
        Self { found: found.boxed(), summary, end: Instant::now() + deadline }
    }

    /// What was found so far.
    pub(super) const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Waits until one more pair is tested. Returns the state of the run at its end.
    pub(super) async fn next_pair(&mut self) -> Option<TestState> {
        match timeout_at(self.end, self.found.next()).await {
            Ok(Some(found)) => {
                self.summary.add(found);
                None
            }
            Ok(None) => Some(TestState::Finished),
            Err(_) => Some(TestState::TimedOut),
        }
    }
}
