//! How the NativePodNetwork is watched, and read.

use std::time::Duration;

use api::NativePodNetwork;
use backoff::Backoff;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher::Config;
use resident::logging::chain;
use serde_json::value::to_raw_value;
use vcn::Ocid;

use super::{parse, read_copy};
use crate::sources::cached_copy::CachedCopy;
use crate::sources::instance_watch::{InstanceKind, ListResult};
use crate::sources::object_watch::ObjectWatch;

/// The NativePodNetwork, which has the instance's unique id as its name.
#[derive(Debug)]
pub(crate) struct OwnNpn;

impl InstanceKind for OwnNpn {
    type Object = DynamicObject;
    type Value = Option<NativePodNetwork>;
    const PREFIX: &'static str = "npn";

    fn watch(instance: &Ocid) -> ObjectWatch<DynamicObject> {
        ObjectWatch {
            field: "metadata.name",
            name: instance.unique_id().to_owned(),
            kind: "NativePodNetwork",
            resource: api::npn::resource(),
            api: |client| Api::all_with(client, &api::npn::resource()),
            config: Config::default(),
            deadline: Duration::from_secs(30),
            retry: Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(60) },
            prefix: Self::PREFIX,
        }
    }

    /// An object that cannot be used leaves the last good answer, which gets older.
    fn read(instance: &Ocid, objects: Vec<DynamicObject>, _: Option<Self::Value>) -> ListResult<Self::Value> {
        let read = |mut object: DynamicObject| {
            // Half of it, and of no use here.
            object.metadata.managed_fields = None;
            let document = to_raw_value(&object)?;
            let place = format!("NativePodNetwork {}", instance.unique_id());
            anyhow::Ok((parse(document.get().as_bytes(), instance, &place)?, document))
        };
        match objects.into_iter().next().map(read).transpose() {
            Ok(object) => {
                let (npn, document) = object.unzip();
                ListResult { value: Some(npn), document, unreadable: None }
            }
            Err(error) => ListResult { value: None, document: None, unreadable: Some(chain(error.as_ref())) },
        }
    }

    fn read_copy(copy: &CachedCopy, instance: &Ocid) -> anyhow::Result<Option<(Self::Value, Duration)>> {
        Ok(read_copy(copy, instance)?.map(|(npn, age)| (Some(npn), age)))
    }
}
