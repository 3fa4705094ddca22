//! Sends the requests of the roster, a bounded number at once.

use std::sync::Arc;

use channel::Client;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use resident::logging::chain;
use tokio::time::{Instant, sleep_until};

use crate::fleet::answer::{AnswerError, request_summary, update_rules};
use crate::fleet::poll::{Answer, Poll};
use crate::fleet::schedule::Lane;
use crate::fleet::shared::SharedRoster;
use crate::report::metrics::Metrics;

/// Regular requests at once. Of ten thousand agents that are queried once a minute, 167 become due per second. One behind a
/// broken network keeps its place for five seconds. So there is room for all others when half are cut off at once.
const MAX_REGULAR_REQUESTS: usize = 512;
/// Retries at once, on their own lane: agents that fail take no place of the regular requests.
const MAX_RETRIES_IN_FLIGHT: usize = 32;

pub(crate) struct Sweeper {
    /// With the leader's key.
    pub client: Client,
    pub roster: Arc<SharedRoster>,
    pub metrics: Arc<Metrics>,
    /// 0.0–1.0, for the jitter.
    pub chance: fn() -> f64,
}

/// Requests of a lane, in flight and allowed.
#[derive(Debug)]
struct LaneCapacity {
    lane: Lane,
    used: usize,
    all: usize,
}

impl Sweeper {
    pub(crate) async fn run(self) {
        let mut requests = FuturesUnordered::new();
        let mut places = [
            LaneCapacity { lane: Lane::Regular, used: 0, all: MAX_REGULAR_REQUESTS },
            LaneCapacity { lane: Lane::Retry, used: 0, all: MAX_RETRIES_IN_FLIGHT },
        ];
        loop {
            let mut next: Option<Instant> = None;
            for LaneCapacity { lane, used, all } in &mut places {
                let mut roster = self.roster.lock();
                while *used < *all
                    && let Some(poll) = roster.take(*lane, Instant::now())
                {
                    *used += 1;
                    requests.push(self.request(*lane, poll));
                }
                let due = roster.next_due(*lane).filter(|_| *used < *all);
                next = next.into_iter().chain(due).min();
            }
            let is_due = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            // Cancel-safe: a request stays in its set, a notification is stored, and the time is computed again.
            tokio::select! {
                Some((lane, node, result)) = requests.next() => {
                    places.iter_mut().filter(|places| places.lane == lane).for_each(|places| places.used -= 1);
                    self.record(&node, result);
                }
                () = self.roster.changed().notified() => {}
                () = is_due => {}
            }
        }
    }

    async fn request(&self, lane: Lane, poll: Poll) -> (Lane, Arc<str>, Result<Answer, AnswerError>) {
        let result = request_summary(&self.client, &poll).await;
        if let Ok(answer) = &result
            && let Err(error) = update_rules(&self.client, &poll, answer).await
        {
            let error = chain(&error);
            tracing::debug!(event = "agent.rules_refused", node = %poll.node, error, "retried with the next request");
            self.metrics.fleet.count_request("rules_refused");
        }
        (lane, poll.node, result)
    }

    fn record(&self, node: &Arc<str>, result: Result<Answer, AnswerError>) {
        self.metrics.fleet.count_request(match &result {
            Ok(Answer::Changed(..)) => "ok",
            Ok(Answer::Unchanged) => "unchanged",
            Err(error) => error.word(),
        });
        let result = result.map_err(|error| {
            let error = chain(&error);
            tracing::debug!(event = "agent.unanswered", node = %node, error, "retried with backoff");
            error
        });
        self.roster.lock().answered(node, result, Instant::now(), (self.chance)());
    }
}
