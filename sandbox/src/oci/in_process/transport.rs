//! The carrier between our client and the emulator: records calls, and holds accepted work until the test settles it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;
use oci::{Carrier, Failure};

use crate::network::Instance;
use crate::oci::emulator::{Emulator, HandledRequest, Operation, Refusal, Request, Task, not_found, route};

#[derive(Debug)]
pub(super) struct InProcessTransport {
    pub(super) emulator: Emulator,
    script: Mutex<Script>,
}

/// What the test requested, and what it may read.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) calls: Vec<(&'static str, String)>,
    /// How many calls are answered before one is not, and whether that one is carried out.
    pub(super) halt: Option<(usize, bool)>,
    pub(super) forbidden: BTreeSet<String>,
    /// Subnets in which no VNIC is created, and how that is refused.
    pub(super) refused_subnets: BTreeMap<String, Refusal>,
    waiting: Vec<Task>,
    /// How many addresses of bulk requests come at a time; `None`: all.
    pub(super) bulk_pace: Option<usize>,
}

/// The future of a response.
type ResponseFuture<'a> = Pin<Box<dyn Future<Output = Result<hyper::Response<Bytes>, Failure>> + Send + 'a>>;

impl Carrier for InProcessTransport {
    fn carry(&self, request: hyper::Request<Bytes>) -> ResponseFuture<'_> {
        let (parts, body) = request.into_parts();
        let request = Request::new(parts, body.to_vec());
        let Some(HandledRequest { response, delay, later }) = self.handle(&request) else { return Box::pin(pending()) };
        if let Some((_, task)) = later {
            self.accept(task);
        }
        let response = response.map(|response| response.into_http(&request));
        let lost = || Failure::Broken("injected fault: the response is lost".into());
        Box::pin(async move {
            // Sleeping for no time would move a paused clock.
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            response.ok_or_else(lost)
        })
    }
}

impl InProcessTransport {
    pub(super) fn new(emulator: Emulator) -> Self {
        Self { emulator, script: Mutex::default() }
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        // Every change is one assignment, so a panic elsewhere leaves it whole.
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when the response never comes.
    fn handle(&self, request: &Request) -> Option<HandledRequest> {
        let mut script = self.script();
        let mut refusal = None;
        if let Some(route) = route(&request.method, &request.path) {
            let subject = route.subject(request);
            if script.forbidden.contains(&subject) {
                refusal = Some(not_found());
            } else if route.operation == Operation::AttachVnic {
                let body = request.json().unwrap_or_default();
                let subnet = body.get("createVnicDetails").and_then(|details| details.get("subnetId")?.as_str());
                refusal = subnet.and_then(|subnet| script.refused_subnets.get(subnet).cloned());
            }
            script.calls.push((route.operation.name(), subject));
        }
        let halted = match script.halt.take() {
            Some((0, carried_out)) => Some(carried_out),
            Some((calls, carried_out)) => {
                script.halt = Some((calls - 1, carried_out));
                None
            }
            None => None,
        };
        drop(script);
        if halted == Some(false) {
            return None;
        }
        let handled = match refusal {
            Some(refusal) => HandledRequest::of(refusal.into()),
            None => self.emulator.handle(request, || Ok(())),
        };
        if halted.is_none() {
            return Some(handled);
        }
        if let Some((_, task)) = handled.later {
            self.accept(task);
        }
        None
    }

    /// Attaching and detaching takes until the test settles it, creating addresses only where it is paced.
    fn accept(&self, task: Task) {
        match task {
            Task::Attach(_) | Task::Detach(_) | Task::GiveUp(_) | Task::Restart(_) => self.script().waiting.push(task),
            Task::CreateAddresses { .. } => {
                self.script().waiting.push(task);
                self.create_addresses();
            }
        }
    }

    /// Creates as many addresses of bulk requests as come at a time.
    fn create_addresses(&self) {
        let mut script = self.script();
        let mut left = script.bulk_pace.unwrap_or(usize::MAX);
        let mut due = Vec::new();
        for task in &mut script.waiting {
            let Task::CreateAddresses { vnic, family, items } = task else { continue };
            let now: Vec<_> = items.drain(..items.len().min(left)).collect();
            left -= now.len();
            due.push(Task::CreateAddresses { vnic: vnic.clone(), family: *family, items: now });
        }
        script.waiting.retain(|task| !matches!(task, Task::CreateAddresses { items, .. } if items.is_empty()));
        drop(script);
        due.into_iter().for_each(|task| self.emulator.finish(task));
    }

    /// Carries out what was accepted, but for addresses that come at a pace.
    pub(super) fn settle(&self) {
        let is_paced = |task: &mut Task| matches!(task, Task::CreateAddresses { .. });
        let due: Vec<Task> = self.script().waiting.extract_if(.., |task| !is_paced(task)).collect();
        due.into_iter().for_each(|task| self.emulator.finish(task));
        self.create_addresses();
    }

    /// The instance of an OCID, changed.
    pub(super) fn change<T>(&self, id: &vcn::Ocid, change: impl FnOnce(&mut Instance) -> T) -> Option<T> {
        let mut instances = self.emulator.vcn().inventory().lock();
        instances.get_mut(id.as_str()).map(change)
    }
}
