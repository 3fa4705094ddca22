//! A metadata service in memory, for tests of its callers. Clones share their state.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vcn::{Instance, Vnic};

use crate::{Error, Failure, Metadata, VnicList};

/// A metadata service in memory.
#[derive(Clone, Debug)]
pub struct FakeMetadata {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    instance: Instance,
    vnics: VnicList,
    failing: Option<u16>,
    questions: u32,
}

impl FakeMetadata {
    /// A service that answers with these.
    pub fn new(instance: Instance, vnics: impl Into<VnicList>) -> Self {
        let vnics = vnics.into();
        Self { state: Arc::new(Mutex::new(State { instance, vnics, failing: None, questions: 0 })) }
    }

    /// Attaches and detaches: from now on these are the VNICs.
    pub fn set_vnics(&self, vnics: Vec<Vnic>) {
        self.state().vnics = vnics.into();
    }

    /// From now on every question fails with this HTTP status; `None` ends it.
    pub fn set_failing(&self, status: Option<u16>) {
        self.state().failing = status;
    }

    /// How many questions were asked so far.
    pub fn questions(&self) -> u32 {
        self.state().questions
    }

    fn answer<T>(&self, path: &str, of: impl FnOnce(&State) -> T) -> Result<T, Error> {
        let mut state = self.state();
        state.questions = state.questions.saturating_add(1);
        match state.failing {
            None => Ok(of(&state)),
            Some(status) => Err(Error::Request {
                url: format!("fake:/{path}"),
                attempts: 1,
                source: Failure::Status { status, beginning: String::new() },
            }),
        }
    }

    /// A panic elsewhere cannot leave this state half written, so a poisoned lock is taken as it is.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Metadata for FakeMetadata {
    async fn instance(&self) -> Result<Instance, Error> {
        self.answer("instance/", |state| state.instance.clone())
    }

    async fn vnics(&self) -> Result<VnicList, Error> {
        self.answer("vnics/", |state| state.vnics.clone())
    }
}
