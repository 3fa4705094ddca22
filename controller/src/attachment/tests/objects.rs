//! Objects without an API server: a write is stored, refused, or never answered.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use api::{VNIC_FINALIZER, VnicAttachment, VnicAttachmentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use vcn::Ocid;

use crate::attachment::apply::objects::Objects;
use crate::attachment::observe::pod_network::{PodNetwork, PodNetworkReadError};
use crate::cluster::request::RequestError;
use crate::cluster::store::Store;

/// The API server's part: a write is in the store at once.
#[derive(Clone, Debug)]
pub(super) struct FakeObjects {
    pub(super) store: Arc<Store>,
    /// How many statuses were written.
    pub(super) statuses: Arc<AtomicUsize>,
    /// Deleted objects that the watch has not reported.
    pub(super) vanished: Arc<Mutex<BTreeSet<String>>>,
    /// How many writes are answered before one is not, and whether that one is carried out.
    pub(super) halt: Arc<Mutex<Option<(usize, bool)>>>,
    /// Which writes are refused.
    pub(super) refuse: Arc<Mutex<Option<Refusals>>>,
    /// The pod network of each instance, or of the named one; and how often it was read. Without it the API server does not answer.
    pub(super) pod_network: Arc<Mutex<(Option<PodNetwork>, usize)>>,
}

/// Refused writes: none of the first `after`, then the next `times`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusals {
    pub(super) after: usize,
    pub(super) times: usize,
    pub(super) code: u16,
}

impl FakeObjects {
    /// The refusal of a write that names another version.
    fn check_version(&self, object: &VnicAttachment) -> Result<(), RequestError> {
        let objects = self.store.attachments();
        match objects.get(&object.name_any()) {
            Some(found) if found.resource_version() != object.resource_version() => Err(refused(409)),
            _ => Ok(()),
        }
    }

    /// The refusal of this write, if it is to be refused.
    fn refusal(&self) -> Result<(), RequestError> {
        let mut refuse = self.refuse.lock().unwrap();
        let Some(refusals) = refuse.as_mut() else { return Ok(()) };
        if refusals.after > 0 {
            refusals.after -= 1;
            return Ok(());
        }
        let code = refusals.code;
        refusals.times -= 1;
        if refusals.times == 0 {
            *refuse = None;
        }
        Err(refused(code))
    }

    /// Writes, or never answers.
    async fn write<T>(&self, write: impl FnOnce() -> T) -> T {
        let halt = self.halt.lock().unwrap().take();
        match halt.map(|(writes, done)| (writes.checked_sub(1), done)) {
            Some((None, done)) => {
                if done {
                    write();
                }
                return std::future::pending().await;
            }
            Some((Some(left), done)) => *self.halt.lock().unwrap() = Some((left, done)),
            None => {}
        }
        write()
    }

    fn put_finalizer(&self, object: &VnicAttachment, is_present: bool) -> Option<VnicAttachment> {
        if self.vanished.lock().unwrap().contains(&object.name_any()) {
            return None;
        }
        let mut objects = self.store.attachments_mut();
        let found = objects.get(&object.name_any()).filter(|found| found.uid() == object.uid())?;
        let mut new = next(found);
        new.metadata.finalizers = is_present.then(|| vec![VNIC_FINALIZER.to_owned()]);
        if new.metadata.deletion_timestamp.is_some() && !is_present {
            objects.delete(&object.name_any());
            return None;
        }
        objects.apply(new.clone());
        Some(new)
    }

    fn put_status(&self, object: &VnicAttachment, status: &VnicAttachmentStatus) {
        let mut objects = self.store.attachments_mut();
        if let Some(found) = objects.get(&object.name_any()) {
            let new = VnicAttachment { status: Some(status.clone()), ..next(found) };
            objects.apply(new);
            self.statuses.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Objects for FakeObjects {
    async fn set_finalizer(
        &self,
        object: &VnicAttachment,
        is_present: bool,
    ) -> Result<Option<VnicAttachment>, RequestError> {
        self.refusal()?;
        self.check_version(object)?;
        Ok(self.write(|| self.put_finalizer(object, is_present)).await)
    }

    async fn write_status(&self, object: &VnicAttachment, status: &VnicAttachmentStatus) -> Result<(), RequestError> {
        self.refusal()?;
        self.check_version(object)?;
        self.write(|| self.put_status(object, status)).await;
        Ok(())
    }

    async fn pod_network(&self, instance: &Ocid) -> Result<PodNetwork, PodNetworkReadError> {
        let mut pod_network = self.pod_network.lock().unwrap();
        pod_network.1 += 1;
        match &pod_network.0 {
            None => Err(PodNetworkReadError { words: "429".to_owned(), error: "429".to_owned() }),
            Some(PodNetwork::There(npn)) if npn.instance != *instance => Ok(PodNetwork::Absent),
            Some(known) => Ok(known.clone()),
        }
    }
}

fn refused(code: u16) -> RequestError {
    let status = kube::core::Status { code, message: "as the test wants".to_owned(), ..kube::core::Status::default() };
    RequestError::Refused(Box::new(kube::Error::Api(Box::new(status))))
}

/// The object in its next version.
pub(super) fn next(object: &VnicAttachment) -> VnicAttachment {
    let mut new = object.clone();
    let version: u64 = object.resource_version().unwrap().parse().unwrap();
    new.metadata.resource_version = Some((version + 1).to_string());
    new
}

pub(super) fn delete(store: &Store, name: &str) {
    let mut objects = store.attachments_mut();
    let Some(found) = objects.get(name) else { return };
    let mut new = next(found);
    if new.finalizers().is_empty() {
        objects.delete(name);
    } else {
        new.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1_000_000).unwrap()));
        objects.apply(new);
    }
}
