//! What the watches deliver: VnicAttachments and Nodes by instance, VnicProfiles by name. One task writes each kind;
//! everything reads; nothing here sends requests.

mod attachments;
mod issues;
mod nodes;
mod pools;
mod profiles;
mod watches;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use api::{Received, VnicAttachment, VnicProfile};
use futures::StreamExt;
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use resident::watch_activity::WatchActivity;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use vcn::Ocid;

use crate::cluster::managed_fields::compact;
use crate::malloc;

pub(crate) use attachments::{Attachments, StatedVnic};
pub(crate) use issues::NodeIssues;
pub(crate) use nodes::{NodeObject, NodeView, Nodes};
pub(crate) use pools::{NodePools, PoolAnswer};
pub(crate) use profiles::Profiles;
pub(crate) use watches::Watches;

/// Shorter than the server's longest, and different in each controller, because a restarted API server is busy.
pub(crate) const WATCH_SECONDS: u32 = 240;
/// Objects per page of a list.
pub(crate) const PAGE: u32 = 500;
/// Nodes are ten times as large, because of the names of their images.
const PAGE_OF_NODES: u32 = 100;

/// All watched objects, as they were last received.
#[derive(Debug, Default)]
pub struct Store {
    attachments: RwLock<Attachments>,
    nodes: RwLock<Nodes>,
    profiles: RwLock<Profiles>,
    issues: RwLock<NodeIssues>,
    pools: RwLock<Arc<NodePools>>,
    watches: Arc<Watches>,
    changed: Notify,
}

impl Store {
    /// An empty one; it also records the state of its watches.
    pub fn new(watches: Arc<Watches>) -> Self {
        Self { watches, ..Self::default() }
    }

    /// Locks the VnicAttachments for reading.
    pub fn attachments(&self) -> RwLockReadGuard<'_, Attachments> {
        self.attachments.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the Nodes for reading.
    pub fn nodes(&self) -> RwLockReadGuard<'_, Nodes> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the VnicProfiles for reading.
    pub fn profiles(&self) -> RwLockReadGuard<'_, Profiles> {
        self.profiles.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The problems of what Nodes request.
    pub fn issues(&self) -> RwLockReadGuard<'_, NodeIssues> {
        self.issues.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change them, for the profiles' reconcile.
    pub fn issues_mut(&self) -> RwLockWriteGuard<'_, NodeIssues> {
        self.issues.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node pools that instances' metadata names.
    pub fn pools(&self) -> Arc<NodePools> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes them; `change` returns whether profiles have to be reconciled.
    pub fn change_pools(&self, change: impl FnOnce(&mut NodePools) -> bool) {
        if change(Arc::make_mut(&mut self.pools.write().unwrap_or_else(PoisonError::into_inner))) {
            self.changed.notify_one();
        }
    }

    pub(crate) const fn watches(&self) -> &Arc<Watches> {
        &self.watches
    }

    /// Wakes one waiter at each change, including status changes.
    pub const fn changed(&self) -> &Notify {
        &self.changed
    }

    /// To change the VnicProfiles, for the watch and for tests.
    pub fn profiles_mut(&self) -> RwLockWriteGuard<'_, Profiles> {
        self.profiles.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change the VnicAttachments, for the watch and for tests.
    pub fn attachments_mut(&self) -> RwLockWriteGuard<'_, Attachments> {
        // Each change is complete by itself, so a panic elsewhere leaves it usable.
        self.attachments.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change the Nodes, likewise.
    pub fn nodes_mut(&self) -> RwLockWriteGuard<'_, Nodes> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the VnicAttachments; never returns. Calls `touched` with each instance that may need a reconcile, and `read` once
/// all are known.
pub async fn follow_attachments(client: Client, store: Arc<Store>, read: watch::Sender<bool>, touched: impl Fn(Ocid)) {
    let api = Api::<Received<VnicAttachment>>::all;
    let watched =
        WatchedKind { client, api, page: PAGE, labels: None, what: "VnicAttachments", watches: &store.watches };
    follow(watched, read, readable, |news| {
        let mut all = store.attachments_mut();
        let instances = match news {
            StoreUpdate::All(objects) => {
                let (objects, unreadable): (Vec<_>, Vec<_>) = objects.into_iter().partition(Result::is_ok);
                let instances = all.replace(objects.into_iter().flatten().collect());
                unreadable.into_iter().filter_map(Result::err).for_each(|name| all.cannot_read(name));
                instances
            }
            StoreUpdate::One(Ok(object)) => all.apply(object),
            StoreUpdate::One(Err(name)) => {
                all.cannot_read(name);
                BTreeSet::new()
            }
            StoreUpdate::Gone(name) => all.delete(&name),
        };
        drop(all);
        store.changed.notify_one();
        instances.into_iter().for_each(&touched);
    })
    .await;
}

/// Follows the Nodes, without unneeded fields; never returns. Calls `touched` with each instance whose Node appeared, went or
/// changed in a kept field.
pub async fn follow_nodes(client: Client, store: Arc<Store>, read: watch::Sender<bool>, touched: impl Fn(Ocid)) {
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
    let api = |client| Api::<Received<NodeObject>>::all_with(client, &resource);
    let watched =
        WatchedKind { client, api, page: PAGE_OF_NODES, labels: None, what: "Nodes", watches: &store.watches };
    follow(watched, read, NodeView::received, |news| {
        let mut all = store.nodes_mut();
        let before = all.changes();
        let instances = match news {
            StoreUpdate::All(objects) => all.replace(objects),
            StoreUpdate::One(object) => all.apply(object),
            StoreUpdate::Gone(name) => all.delete(&name),
        };
        // A heartbeat changes nothing.
        if all.changes() != before {
            store.changed.notify_one();
        }
        drop(all);
        instances.into_iter().for_each(&touched);
    })
    .await;
}

/// Follows the VnicProfiles; never returns.
pub async fn follow_profiles(client: Client, store: Arc<Store>, read: watch::Sender<bool>) {
    let api = Api::<Received<VnicProfile>>::all;
    let watched = WatchedKind { client, api, page: PAGE, labels: None, what: "VnicProfiles", watches: &store.watches };
    follow(
        watched,
        read,
        |object| object,
        |news| {
            let mut all = store.profiles_mut();
            match news {
                StoreUpdate::All(objects) => all.replace(objects),
                StoreUpdate::One(object) => all.apply(object),
                StoreUpdate::Gone(name) => all.delete(&name),
            }
            drop(all);
            store.changed.notify_one();
        },
    )
    .await;
}

/// A change that a watch delivers.
pub(crate) enum StoreUpdate<V> {
    All(Vec<V>),
    /// A new or changed object.
    One(V),
    /// The object of this name is gone.
    Gone(String),
}

/// A kind of object, and how it is read.
pub(crate) struct WatchedKind<'a, A> {
    pub(crate) client: Client,
    /// The objects, of a client.
    pub(crate) api: A,
    /// Objects per page of a list.
    pub(crate) page: u32,
    /// The labels of the objects; all without it.
    pub(crate) labels: Option<&'static str>,
    /// The kind, for logs.
    pub(crate) what: &'static str,
    pub(crate) watches: &'a Watches,
}

/// Reads a watch; never returns. A list is delivered whole, so that no reader takes half of one for all; `read` is called after
/// the first. Each object is reduced at once: ten thousand whole Nodes are too large for the controller.
pub(crate) async fn follow<K, V>(
    watched: WatchedKind<'_, impl FnOnce(Client) -> Api<K>>,
    read: watch::Sender<bool>,
    keep: impl Fn(K) -> V,
    mut take: impl FnMut(StoreUpdate<V>),
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let WatchedKind { client, api, page, labels, what, watches } = watched;
    let activity = WatchActivity::begin();
    let api = api(activity.client(&client));
    watches.follow(what, activity);
    let mut config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(page);
    config.label_selector = labels.map(str::to_owned);
    let mut stream = pin!(watcher(api, config).default_backoff());
    let mut listed: Option<Vec<V>> = None;
    watches.reads(what);
    while let Some(event) = stream.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                watches.failed(what, resident::logging::chain(&error));
                continue;
            }
        };
        match event {
            // It is only about to send the request: a list that fails starts like this too.
            Event::Init => {
                watches.reads(what);
                listed = Some(Vec::new());
            }
            Event::InitApply(object) => listed.get_or_insert_default().push(keep(object)),
            Event::InitDone => {
                take(StoreUpdate::All(listed.take().unwrap_or_default()));
                malloc::trim();
            }
            Event::Apply(object) => take(StoreUpdate::One(keep(object))),
            Event::Delete(object) => take(StoreUpdate::Gone(object.name_any())),
        }
        if listed.is_none() {
            watches.is_current(what);
            read.send_if_modified(|read| !std::mem::replace(read, true));
        }
    }
}

/// An object, or the name of one that cannot be read.
pub(crate) fn readable(object: Received<VnicAttachment>) -> Result<VnicAttachment, String> {
    match object.0 {
        Ok(mut object) => {
            compact(&mut object);
            Ok(object)
        }
        Err(invalid) => {
            let name = invalid.metadata.name.unwrap_or_default();
            tracing::warn!(event = "object.unreadable", name, error = invalid.error, "it is not changed");
            Err(name)
        }
    }
}
