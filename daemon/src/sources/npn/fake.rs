//! NativePodNetworks in memory, for tests.

use std::sync::{Arc, Mutex, PoisonError};

use api::NativePodNetwork;
use vcn::Ocid;

use super::{Answer, Error, NativePodNetworks};

/// NativePodNetworks in memory. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct FakeNativePodNetworks {
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug, Default)]
struct State {
    npn: Option<NativePodNetwork>,
    failing: Option<String>,
}

impl FakeNativePodNetworks {
    /// From now on this is the instance's.
    pub fn set(&self, npn: Option<NativePodNetwork>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).npn = npn;
    }

    /// From now on every question fails with this; `None` ends it.
    pub fn set_failing(&self, why: Option<&str>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failing = why.map(str::to_owned);
    }
}

impl NativePodNetworks for FakeNativePodNetworks {
    async fn mine(&self, _instance: &Ocid) -> Result<Answer, Error> {
        let State { npn, failing } = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match failing {
            Some(why) => Err(Error::Unavailable(why)),
            None => Ok(Answer::now(npn)),
        }
    }
}
