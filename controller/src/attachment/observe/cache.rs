//! Rarely changing data that many instances share: subnets and shapes, read once in a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oci::{CloudView, Error, Shape, Subnet};
use tokio::time::Instant;
use vcn::Ocid;

use crate::attachment::refusal::visible;

/// A subnet gets another block perhaps once in its life.
const SUBNETS: Duration = Duration::from_mins(10);
/// New shapes appear perhaps once a year.
const SHAPES: Duration = Duration::from_hours(1);

#[derive(Debug, Default)]
pub(crate) struct Cache {
    subnets: TimedCache<Ocid, Subnet>,
    shapes: TimedCache<Ocid, Arc<[Shape]>>,
}

type TimedCache<K, V> = Mutex<HashMap<K, (Instant, V)>>;

impl Cache {
    pub(in crate::attachment) async fn subnet(&self, cloud: &CloudView, id: &Ocid) -> Result<Option<Subnet>, Error> {
        if let Some(subnet) = fresh(&self.subnets, id, SUBNETS) {
            return Ok(Some(subnet));
        }
        // A refusal is not cached, because a policy may be added.
        let subnet = visible(cloud.subnet(id).await)?;
        if let Some(subnet) = &subnet {
            keep(&self.subnets, id, subnet.clone());
        }
        Ok(subnet)
    }

    /// `None` if shapes are not visible: then OCI's own refusal shows that an instance is full.
    pub(in crate::attachment) async fn shapes(
        &self,
        cloud: &CloudView,
        compartment: &Ocid,
    ) -> Result<Arc<[Shape]>, Error> {
        if let Some(shapes) = fresh(&self.shapes, compartment, SHAPES) {
            return Ok(shapes);
        }
        let shapes: Arc<[Shape]> = visible(cloud.shapes(compartment).await)?.unwrap_or_default().into();
        keep(&self.shapes, compartment, shapes.clone());
        Ok(shapes)
    }
}

fn fresh<K: Eq + Hash, V: Clone>(kept: &TimedCache<K, V>, key: &K, life: Duration) -> Option<V> {
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.get(key).filter(|(since, _)| since.elapsed() < life).map(|(_, value)| value.clone())
}

fn keep<K: Eq + Hash + Clone, V>(kept: &TimedCache<K, V>, key: &K, value: V) {
    kept.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), (Instant::now(), value));
}
