//! A task for each NetworkTest: started when the object appears, dropped when it goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{NetworkTest, Received};
use kube::{Api, ResourceExt};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::agents::AgentCalls;
use super::life::live;
use super::shared::NetworkTests;
use crate::cluster::store::{StoreUpdate, WatchedKind, follow};

/// Tests that run at once.
pub(crate) const AT_ONCE: usize = 4;
/// Objects per page of a list.
const PAGE: u32 = 100;

/// The running tests, by name.
struct Tasks<A> {
    context: Arc<NetworkTests<A>>,
    set: JoinSet<()>,
    running: BTreeMap<String, (Option<String>, AbortHandle)>,
}

impl<A: AgentCalls> NetworkTests<A> {
    /// Runs tests until it is dropped, which stops all of them.
    pub(crate) async fn run(self) {
        let (client, api) = (self.client.clone(), Api::<Received<NetworkTest>>::all);
        let watches = self.store.watches().clone();
        let watched = WatchedKind { client, api, page: PAGE, labels: None, what: "NetworkTests", watches: &watches };
        let mut tasks = Tasks { context: Arc::new(self), set: JoinSet::new(), running: BTreeMap::new() };
        let (read, _) = watch::channel(false);
        follow(watched, read, readable, |news| tasks.take(news)).await;
    }
}

/// An object that cannot be read is a test of a later version, and is left to that one.
fn readable(object: Received<NetworkTest>) -> Result<NetworkTest, String> {
    object.0.map_err(|invalid| {
        let name = invalid.metadata.name.unwrap_or_default();
        tracing::warn!(event = "network_test.unreadable", name, error = invalid.error, "it is not run");
        name
    })
}

impl<A: AgentCalls> Tasks<A> {
    fn take(&mut self, news: StoreUpdate<Result<NetworkTest, String>>) {
        // Those that ended by a panic.
        while self.set.try_join_next().is_some() {}
        match news {
            StoreUpdate::All(tests) => {
                let mut gone: Vec<String> = self.running.keys().cloned().collect();
                for test in tests.into_iter().flatten() {
                    gone.retain(|name| *name != test.name_any());
                    self.start(test);
                }
                gone.iter().for_each(|name| self.stop(name));
            }
            StoreUpdate::One(Ok(test)) => self.start(test),
            StoreUpdate::One(Err(name)) | StoreUpdate::Gone(name) => self.stop(&name),
        }
    }

    /// A test that runs already is left alone: its spec cannot change. One that is being deleted stops.
    fn start(&mut self, test: NetworkTest) {
        let (name, uid) = (test.name_any(), test.uid());
        if test.metadata.deletion_timestamp.is_some() {
            return self.stop(&name);
        }
        if self.running.get(&name).is_some_and(|(running, task)| *running == uid && !task.is_finished()) {
            return;
        }
        self.stop(&name);
        let task = self.set.spawn(live(self.context.clone(), test));
        self.running.insert(name, (uid, task));
    }

    fn stop(&mut self, name: &str) {
        if let Some((_, task)) = self.running.remove(name) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
