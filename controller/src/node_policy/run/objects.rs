//! The policies as the watch delivers them.

use std::sync::Arc;

use api::{NodePolicy, Received};
use kube::ResourceExt as _;

use crate::cluster::store::StoreUpdate;
use crate::node_policy::engine::PolicyObjects;

impl PolicyObjects {
    pub(super) fn take(&mut self, news: StoreUpdate<Received<NodePolicy>>) {
        match news {
            StoreUpdate::All(all) => {
                *self = Self::default();
                all.into_iter().for_each(|object| self.apply(object));
            }
            StoreUpdate::One(object) => self.apply(object),
            StoreUpdate::Gone(name) => self.delete(&name),
        }
    }

    fn apply(&mut self, object: Received<NodePolicy>) {
        let name = object.name_any();
        self.delete(&name);
        match object.0 {
            Ok(object) => drop(self.objects.insert(name, Arc::new(object))),
            Err(unreadable) => {
                tracing::warn!(
                    event = "node_policy.unreadable",
                    name,
                    error = unreadable.error,
                    "nodes with this policy get no document"
                );
                self.unreadable.insert(name, unreadable.metadata.uid.unwrap_or_default());
            }
        }
    }

    fn delete(&mut self, name: &str) {
        self.objects.remove(name);
        self.unreadable.remove(name);
    }
}
