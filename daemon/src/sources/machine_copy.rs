//! The cached copy of what the metadata service says: the instance and its VNICs.

use std::time::{Instant, SystemTime};

use installer::METADATA_KEY;
use ipam::BootId;
use resident::logging::chain;
use serde::{Deserialize, Serialize};
use vcn::{Instance, VNICS_COPY_FILE, Vnic};

use crate::facts::node_facts::{API_SERVER_KEY, DNS_SERVICE_KEY, NodeFacts};
use crate::settings::Settings;
use crate::sources::cached_copy::CachedCopy;
use crate::sources::host_links;

/// The instance and its VNICs, as they are cached.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) instance: Option<Instance>,
    /// The primary one first.
    pub(super) vnics: Vec<Vnic>,
}

pub(super) fn open(settings: &Settings) -> CachedCopy {
    CachedCopy::new(&settings.data_dir, VNICS_COPY_FILE)
}

/// The facts of the cached copy, if it is surely of this machine: an image may be made of another one's disk. It is if it was
/// written in this boot, or if the primary VNIC, which an instance keeps for its whole life, is one of this host's links.
pub(super) fn recall(copy: &CachedCopy) -> NodeFacts {
    let answer = match copy.read::<Machine>() {
        Ok(Some(answer)) => answer,
        Ok(None) => return NodeFacts::default(),
        Err(error) => {
            let path = copy.path().display();
            tracing::warn!(event = "vnics.copy_unusable", %path, error = %chain(&error), "starting without it");
            return NodeFacts::default();
        }
    };
    let is_this_boot = || answer.boot_id.is_some() && answer.boot_id == BootId::current().ok();
    let is_here = |primary: &Vnic| host_links::macs().is_ok_and(|macs| macs.contains(&primary.mac));
    let age = answer.age(SystemTime::now());
    let Machine { instance, vnics } = answer.value;
    match vnics.first() {
        Some(primary) if is_this_boot() || is_here(primary) => NodeFacts::recall(instance, vnics, age, Instant::now()),
        _ => NodeFacts::default(),
    }
}

/// Caches the instance and its VNICs. Until the first list, the copy is all that is known.
pub(super) fn store(copy: &mut CachedCopy, facts: &NodeFacts) -> Result<(), String> {
    if facts.vnics().is_empty() || facts.is_recalled() {
        return Ok(());
    }
    let now = Instant::now();
    let age = [facts.instance.age(now), facts.vnics.age(now)].into_iter().flatten().max().unwrap_or_default();
    let mut instance = facts.instance.value.clone();
    if let Some(instance) = &mut instance {
        // The rest may hold keys and scripts, which are of no concern to readers of our files.
        instance.metadata.retain(|key, _| [METADATA_KEY, API_SERVER_KEY, DNS_SERVICE_KEY].contains(&key.as_str()));
    }
    copy.store(Some(&Machine { instance, vnics: facts.vnics().to_vec() }), SystemTime::now() - age)
}
