//! What the API server told: VnicAttachments by instance, and Nodes by instance, kept by watches. One task each writes,
//! everybody reads; nothing here asks.

mod attachments;
mod nodes;

use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use api::VnicAttachment;
use futures::StreamExt;
use kube::core::{ApiResource, DeserializeGuard};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use vcn::Ocid;

pub use attachments::Attachments;
pub use nodes::{NodeObject, NodeView, Nodes};

/// Shorter than the server's longest, and not alike in all controllers: a restarted API server has enough to do.
const WATCH_SECONDS: u32 = 240;
/// Answers to lists come in pieces of so many objects.
const PAGE: u32 = 500;
/// For how long a watch may fail before it is said again.
const TOLD_AGAIN: Duration = Duration::from_mins(5);

/// Both.
#[derive(Debug, Default)]
pub struct Store {
    attachments: RwLock<Attachments>,
    nodes: RwLock<Nodes>,
}

impl Store {
    /// The VnicAttachments.
    pub fn attachments(&self) -> RwLockReadGuard<'_, Attachments> {
        self.attachments.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The Nodes.
    pub fn nodes(&self) -> RwLockReadGuard<'_, Nodes> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change the VnicAttachments, for the watch and for tests.
    pub fn attachments_mut(&self) -> RwLockWriteGuard<'_, Attachments> {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        self.attachments.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change the Nodes, likewise.
    pub fn nodes_mut(&self) -> RwLockWriteGuard<'_, Nodes> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the VnicAttachments for ever; `touched` is told of every instance that may need a look, `read` once all are
/// known.
pub async fn follow_attachments(client: Client, store: Arc<Store>, read: watch::Sender<bool>, touched: impl Fn(Ocid)) {
    // An object that a later version wrote may not be readable, and must not hide the others.
    let api: Api<DeserializeGuard<VnicAttachment>> = Api::all(client);
    let mut stream = pin!(watcher(api, config()).default_backoff());
    let mut listed: Option<Vec<VnicAttachment>> = None;
    let mut trouble = Trouble::of("VnicAttachments");
    while let Some(event) = stream.next().await {
        let Some(event) = trouble.passed(event) else { continue };
        let instances = match event {
            Event::Init => {
                listed = Some(Vec::new());
                continue;
            }
            Event::InitApply(object) => {
                listed.get_or_insert_default().extend(readable(object));
                continue;
            }
            Event::InitDone => store.attachments_mut().replace(listed.take().unwrap_or_default()),
            Event::Apply(object) => match readable(object) {
                Some(object) => store.attachments_mut().apply(object),
                None => continue,
            },
            Event::Delete(object) => store.attachments_mut().delete(&object.name_any()),
        };
        instances.into_iter().for_each(&touched);
        if listed.is_none() {
            read.send_replace(true);
        }
    }
}

/// Follows the Nodes for ever, without what is not needed of them; `touched` is told of every instance whose Node came, went
/// or changed in what is kept of it.
pub async fn follow_nodes(client: Client, store: Arc<Store>, read: watch::Sender<bool>, touched: impl Fn(Ocid)) {
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
    let api: Api<NodeObject> = Api::all_with(client, &resource);
    let mut stream = pin!(kube_watcher(api).default_backoff());
    let mut listed: Option<Vec<NodeView>> = None;
    let mut trouble = Trouble::of("Nodes");
    while let Some(event) = stream.next().await {
        let Some(event) = trouble.passed(event) else { continue };
        let instances = match event {
            Event::Init => {
                listed = Some(Vec::new());
                continue;
            }
            Event::InitApply(object) => {
                listed.get_or_insert_default().push(NodeView::of(object));
                continue;
            }
            Event::InitDone => store.nodes_mut().replace(listed.take().unwrap_or_default()),
            Event::Apply(object) => store.nodes_mut().apply(NodeView::of(object)),
            Event::Delete(object) => store.nodes_mut().delete(&object.name_any()),
        };
        instances.into_iter().for_each(&touched);
        if listed.is_none() {
            read.send_replace(true);
        }
    }
}

fn kube_watcher(api: Api<NodeObject>) -> impl futures::Stream<Item = watcher::Result<Event<NodeObject>>> + Send {
    watcher(api, config())
}

fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE)
}

fn readable(object: DeserializeGuard<VnicAttachment>) -> Option<VnicAttachment> {
    match object.0 {
        Ok(mut object) => {
            // A third of the object, and of no use here.
            object.metadata.managed_fields = None;
            Some(object)
        }
        Err(invalid) => {
            let name = invalid.metadata.name.unwrap_or_default();
            tracing::warn!(event = "object.unreadable", name, error = invalid.error, "it is left alone");
            None
        }
    }
}

/// Says when a watch begins to fail and when it has recovered.
struct Trouble {
    what: &'static str,
    told: Option<tokio::time::Instant>,
}

impl Trouble {
    const fn of(what: &'static str) -> Self {
        Self { what, told: None }
    }

    fn passed<T>(&mut self, event: watcher::Result<T>) -> Option<T> {
        match event {
            Ok(event) => {
                if self.told.take().is_some() {
                    tracing::info!(event = "watch.recovered", what = self.what);
                }
                Some(event)
            }
            Err(error) => {
                if self.told.is_none_or(|told| told.elapsed() > TOLD_AGAIN) {
                    self.told = Some(tokio::time::Instant::now());
                    let error = resident::logging::chain(&error);
                    tracing::warn!(event = "watch.failed", what = self.what, error, "it is tried again for ever");
                }
                None
            }
        }
    }
}
