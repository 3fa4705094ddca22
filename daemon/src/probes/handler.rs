//! Takes requests of the controller: few at once, each on a thread of its own, so that a probe delays nothing else.

use std::sync::Arc;

use api::probe::{ProbeReport, ProbeRequest};
use tokio::sync::{Semaphore, oneshot};

use super::{Surroundings, TaskError, perform};

/// Tasks at once. With the bounds of a task: at most 400 packets per second.
const AT_ONCE: usize = 4;

/// The agent's part of network tests.
#[derive(Clone, Debug)]
pub struct ProbeHandler {
    surroundings: Arc<Surroundings>,
    free: Arc<Semaphore>,
}

/// An answer: the HTTP status, and JSON or the reason in words.
pub(super) type ProbeAnswer = (u16, Vec<u8>);

impl ProbeHandler {
    /// It is idle.
    #[must_use]
    pub fn new(surroundings: Surroundings) -> Self {
        Self { surroundings: Arc::new(surroundings), free: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Carries a request out. 400 for one that exceeds a bound, 429 while others are in progress.
    pub async fn answer(&self, body: &[u8]) -> ProbeAnswer {
        let request = match ProbeRequest::read(body) {
            Ok(request) => request,
            Err(error) => return (400, error.to_string().into_bytes()),
        };
        let Ok(permit) = self.free.clone().try_acquire_owned() else {
            return (429, format!("{AT_ONCE} tasks are in progress; retry").into_bytes());
        };
        let (done, result) = oneshot::channel();
        let surroundings = self.surroundings.clone();
        // Not of the runtime's few threads for blocking work: a probe waits for seconds.
        let spawned = std::thread::Builder::new().name("probe".to_owned()).spawn(move || {
            let _ = done.send(perform(&request, &surroundings));
            drop(permit);
        });
        match (spawned, result.await) {
            (Ok(_), Ok(result)) => reply(result),
            (Err(error), _) => (503, format!("start a thread: {error}").into_bytes()),
            (_, Err(_)) => (500, b"the probe ended without a result".to_vec()),
        }
    }
}

fn reply(result: Result<ProbeReport, TaskError>) -> ProbeAnswer {
    match result {
        Ok(report) => match serde_json::to_vec(&report) {
            Ok(body) => (200, body),
            Err(error) => (500, error.to_string().into_bytes()),
        },
        Err(error @ TaskError::Refused(_)) => (400, error.to_string().into_bytes()),
        Err(error) => (422, error.to_string().into_bytes()),
    }
}
