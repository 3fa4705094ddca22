//! Takes requests of the controller: few at once, each on a thread of its own, so that a probe delays nothing else.

use std::sync::Arc;

use nettest::probe::{ProbeKind, ProbeReport, ProbeRequest, Task};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{ProbeEnvironment, TaskError, perform};

/// Tasks at once. With the bounds of a task: at most 400 packets per second, next to one measurement of throughput.
const AT_ONCE: usize = 4;

/// The agent's part of network tests.
#[derive(Clone, Debug)]
pub(crate) struct ProbeHandler {
    surroundings: Arc<ProbeEnvironment>,
    free: Arc<Semaphore>,
    /// Throughput is sent by one task at a time, and received by one.
    sender: Arc<Semaphore>,
    receiver: Arc<Semaphore>,
}

/// An answer: the HTTP status, and JSON or the reason in words.
pub(super) type ProbeAnswer = (u16, Vec<u8>);

impl ProbeHandler {
    pub(crate) fn new(surroundings: ProbeEnvironment) -> Self {
        let places = |number| Arc::new(Semaphore::new(number));
        let surroundings = Arc::new(surroundings);
        Self { surroundings, free: places(AT_ONCE), sender: places(1), receiver: places(1) }
    }

    /// Carries a request out. 400 for one that exceeds a bound, 429 while others are in progress.
    pub(crate) async fn answer(&self, body: &[u8]) -> ProbeAnswer {
        let request = match ProbeRequest::read(body) {
            Ok(request) => request,
            Err(error) => return (400, error.to_string().into_bytes()),
        };
        let Some(permit) = self.place(&request.task) else {
            return (429, b"as many tasks as allowed are in progress; retry".to_vec());
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

    /// A place for a task, if there is one.
    fn place(&self, task: &Task) -> Option<OwnedSemaphorePermit> {
        let places = match task {
            Task::Receive(_) => &self.receiver,
            Task::Send(send) if send.kind == ProbeKind::Throughput => &self.sender,
            _ => &self.free,
        };
        places.clone().try_acquire_owned().ok()
    }
}

fn reply(result: Result<ProbeReport, TaskError>) -> ProbeAnswer {
    match result {
        Ok(report) => match serde_json::to_vec(&report) {
            Ok(body) => (200, body),
            Err(error) => (500, error.to_string().into_bytes()),
        },
        Err(error @ (TaskError::Refused(_) | TaskError::ForeignSource(_))) => (400, error.to_string().into_bytes()),
        Err(error) => (422, error.to_string().into_bytes()),
    }
}
