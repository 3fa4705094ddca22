//! Objects for tests.

use std::sync::Arc;

use api::VnicProfile;
use serde_json::json;

use crate::cluster::store::{NodeView, Store};

/// A store with so many nodes, and a profile with one VNIC for each of them.
pub(crate) fn store(nodes: u32) -> Arc<Store> {
    let store = Arc::new(Store::default());
    for number in 0..nodes {
        let instance = format!("ocid1.instance.oc1.iad.i{number}").parse().ok();
        store.nodes_mut().apply(NodeView { name: format!("node-{number}"), instance, ..NodeView::default() });
    }
    let spec = json!({ "nodeSelector": {}, "allNodes": true, "attachments": [
        { "name": "one", "purpose": "Host", "subnetId": "ocid1.subnet.oc1.iad.s" },
    ] });
    let mut profile = VnicProfile::new("pool", serde_json::from_value(spec).unwrap());
    profile.metadata.finalizers = Some(vec![api::PROFILE_FINALIZER.to_owned()]);
    profile.metadata.uid = Some("p".to_owned());
    profile.metadata.generation = Some(1);
    store.profiles_mut().apply(api::Received(Ok(profile)));
    store
}
