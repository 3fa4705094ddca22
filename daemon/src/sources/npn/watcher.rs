//! Watches the one NativePodNetwork of this instance, by its name: no node lists or hears of another's. Whatever goes wrong,
//! it begins anew, for ever, with a pause; what was seen last is kept on disk.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use api::NativePodNetwork;
use futures::StreamExt;
use kube::Api;
use kube::api::DynamicObject;
use kube::core::Status;
use kube::runtime::watcher::{self, watch_object};
use patience::Backoff;
use resident::logging::chain;
use thiserror::Error;
use tokio::sync::{Notify, watch};
use vcn::Ocid;

use super::cluster::Seen;
use super::keeper::Keeper;
use super::{ClusterNpn, Kept, read};
use crate::sources::backoff::{chance, jittered};
use resident::api_server::client;

/// Between failures. All nodes of a cluster fail together when its API server does.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(60) };

/// Where the kind does not exist, as on clusters without VCN-native pod networking, it may come all the same.
const NO_SUCH_KIND: Duration = Duration::from_secs(240);

/// How long the first answer of a watch may take.
const FIRST_OBJECT: Duration = Duration::from_secs(30);

/// The task that watches.
#[derive(Debug)]
pub struct Watcher {
    wanted: watch::Receiver<Option<Ocid>>,
    seen: watch::Sender<Seen>,
    keeper: Keeper,
    published: Arc<Notify>,
}

/// How a watch ended.
#[derive(Debug, Error)]
enum Ended {
    #[error("setting up the client of the API server: {0}")]
    Client(String),
    #[error("the API server does not answer within {} s", FIRST_OBJECT.as_secs())]
    Silent,
    #[error("the API server ended the watch")]
    Closed,
    #[error("watching NativePodNetwork {name} at {server}: {why}")]
    Failed { name: String, server: String, why: String },
    #[error("there is no kind NativePodNetwork (404): it is being made anew, or somebody else answers")]
    NoSuchKind,
}

impl Watcher {
    /// The task, and whom to ask for what it sees.
    #[must_use]
    pub fn new(kept: Kept, published: Arc<Notify>) -> (ClusterNpn, Self) {
        let (wanted_in, wanted) = watch::channel(None);
        let (seen, seen_out) = watch::channel(Seen::default());
        let keeper = Keeper::new(kept);
        (ClusterNpn::new(wanted_in, seen_out, keeper.clone()), Self { wanted, seen, keeper, published })
    }

    /// Watches for ever; ends when nobody asks any more.
    pub async fn run(mut self) {
        loop {
            let instance = self.wanted.borrow_and_update().clone();
            let Some(instance) = instance else {
                match self.wanted.changed().await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            };
            let mut wanted = self.wanted.clone();
            tokio::select! {
                () = self.watch_one(&instance) => {}
                changed = wanted.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn watch_one(&self, instance: &Ocid) {
        self.seen.send_replace(Seen::default());
        self.take_kept(instance);
        let (mut failures, mut told) = (0_u32, false);
        loop {
            let mut answered = false;
            let ended = self.watch_once(instance, || {
                answered = true;
                if told {
                    tracing::info!(event = "npn.watched_again", name = instance.unique_id());
                }
                told = false;
            });
            let ended = ended.await;
            if answered {
                failures = 0;
            }
            let pause = match ended {
                Ended::NoSuchKind if self.seen.borrow().knows_no_object() => {
                    self.seen.send_modify(|seen| {
                        seen.current(None);
                        seen.put_off(Instant::now());
                    });
                    self.published.notify_one();
                    jittered(NO_SUCH_KIND, chance())
                }
                ended => {
                    failures = failures.saturating_add(1);
                    let why = ended.to_string();
                    if !told {
                        tracing::warn!(event = "npn.watch_lost", name = instance.unique_id(), "{why}");
                        told = true;
                    }
                    self.seen.send_modify(|seen| seen.lost(why, Instant::now()));
                    RETRY.pause(failures, chance())
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Watches until it fails; `answered` is called whenever the API server said something.
    async fn watch_once(&self, instance: &Ocid, mut answered: impl FnMut()) -> Ended {
        let (client, server) = match client() {
            Ok(made) => made,
            Err(why) => return Ended::Client(why),
        };
        let api: Api<DynamicObject> = Api::all_with(client, &api::npn::resource());
        let mut objects = Box::pin(watch_object(api, instance.unique_id()));
        let mut next = match tokio::time::timeout(FIRST_OBJECT, objects.next()).await {
            Ok(next) => next,
            Err(_) => return Ended::Silent,
        };
        loop {
            match next {
                Some(Ok(object)) => {
                    answered();
                    self.take(instance, object).await;
                }
                Some(Err(error)) => return ended(instance, server, &error),
                None => return Ended::Closed,
            }
            // The server ends every watch after some minutes and the next one goes on; a dead connection is noticed then.
            next = objects.next().await;
        }
    }

    /// What an earlier agent saw.
    fn take_kept(&self, instance: &Ocid) {
        match self.keeper.kept().look(instance, SystemTime::now()) {
            Ok(Some((npn, age))) => self.seen.send_modify(|seen| seen.kept(npn, age, Instant::now())),
            Ok(None) => {}
            Err(error) => tracing::warn!(event = "npn.copy_unusable", error = %chain(&error), "going on without it"),
        }
    }

    async fn take(&self, instance: &Ocid, object: Option<DynamicObject>) {
        let object = object.map(|mut object| {
            // Half of it, and of no interest here.
            object.metadata.managed_fields = None;
            serde_json::to_value(&object)
        });
        let read = match object.transpose() {
            Ok(object) => self.understand(instance, object).await,
            Err(error) => Err(error.to_string()),
        };
        self.seen.send_modify(|seen| match read {
            Ok(npn) => seen.current(npn),
            Err(why) => seen.unreadable(why, Instant::now()),
        });
        self.published.notify_one();
    }

    async fn understand(
        &self,
        instance: &Ocid,
        object: Option<serde_json::Value>,
    ) -> Result<Option<NativePodNetwork>, String> {
        let place = || format!("NativePodNetwork {}", instance.unique_id());
        let document = object.as_ref().map(serde_json::Value::to_string);
        let npn = document.map(|document| read(document.as_bytes(), instance, place())).transpose();
        let npn = npn.map_err(|error| chain(&error))?;
        let keeper = self.keeper.clone();
        // Whoever asks next is told where that fails.
        let _ = tokio::task::spawn_blocking(move || keeper.keep(object, SystemTime::now())).await;
        Ok(npn)
    }
}

fn ended(instance: &Ocid, server: String, error: &watcher::Error) -> Ended {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => Ended::NoSuchKind,
        error => Ended::Failed { name: instance.unique_id().to_owned(), server, why: why(error) },
    }
}

/// What the API server said, or what kept it from saying something. The errors of kube repeat their causes, and show a
/// refusal as the data structure that it is.
pub(crate) fn why(error: &watcher::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    loop {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            return status.message.clone();
        }
        match (cause.downcast_ref::<Status>(), cause.source()) {
            (Some(status), _) => return status.message.clone(),
            (None, Some(source)) => cause = source,
            (None, None) => return cause.to_string(),
        }
    }
}
