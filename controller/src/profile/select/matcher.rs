//! Whether a VnicProfile selects a node: by the labels of the Node, or by its node pool. The Node's annotation only nominates,
//! because its kubelet may write it; the metadata of the instance confirms. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::VnicProfile;
use kube::core::{Selector, SelectorExt};
use vcn::Ocid;

use crate::cluster::store::{NodePools, NodeView, PoolAnswer};
use crate::profile::select::from_template::profile_of;
use crate::profile::select::observed::Observed;

/// The instances with VnicAttachments of each profile, by its name.
#[derive(Debug, Default)]
pub(super) struct ServedInstances<'a>(BTreeMap<&'a str, BTreeSet<&'a Ocid>>);

/// How a profile selects nodes.
#[derive(Debug)]
pub(super) enum Matcher<'a> {
    Labels(Selector),
    Pools {
        nominated: &'a [Ocid],
        answers: &'a NodePools,
        /// The instances with VnicAttachments of the profile.
        served: Option<&'a BTreeSet<&'a Ocid>>,
    },
}

/// Whether the instance's metadata confirms the node pool.
#[derive(Debug)]
pub(super) enum Confirmation {
    /// Labels select the node.
    NotNeeded,
    Given,
    /// The metadata was not read yet, or the read failed, and why.
    Pending {
        /// Whether the instance has VNICs of the profile: an earlier leader had the confirmation.
        has_vnic: bool,
        error: Option<String>,
    },
    /// The metadata names another node pool, or none.
    Refused(Option<Ocid>),
}

impl<'a> ServedInstances<'a> {
    /// Empty if no profile selects by node pool: there may be ten thousand objects.
    pub(super) fn of(observed: &'a Observed) -> Self {
        let mut served = Self::default();
        if observed.profiles.iter().any(|profile| !profile.spec.node_pools.is_empty()) {
            for object in &observed.attachments {
                let instances = profile_of(object).map(|profile| served.0.entry(profile).or_default());
                instances.map(|instances| instances.insert(&object.spec.instance_id));
            }
        }
        served
    }
}

impl<'a> Matcher<'a> {
    /// The matcher of a profile, or why there is none.
    pub(super) fn of(
        profile: &'a VnicProfile,
        observed: &'a Observed,
        served: &'a ServedInstances<'a>,
    ) -> Result<Self, String> {
        let spec = &profile.spec;
        match &spec.node_selector {
            Some(selector) if spec.node_pools.is_empty() => {
                Selector::try_from(selector.clone()).map(Self::Labels).map_err(|error| error.to_string())
            }
            // An absent selector is not an empty one, which selects all.
            None if spec.node_pools.is_empty() => {
                Err("the profile has neither nodePools nor a nodeSelector".to_owned())
            }
            None => {
                let served = profile.metadata.name.as_deref().and_then(|name| served.0.get(name));
                Ok(Self::Pools { nominated: &spec.node_pools, answers: &observed.pools, served })
            }
            Some(_) => Err("the profile has both nodePools and a nodeSelector".to_owned()),
        }
    }

    /// Whether the profile is for a node with these labels, if its instance confirms that.
    pub(super) fn matches(&self, node: &NodeView, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Labels(selector) => selector.matches(labels),
            Self::Pools { nominated, .. } => node.node_pool.as_ref().is_some_and(|pool| nominated.contains(pool)),
        }
    }

    /// Whether the instance of a node that matches confirms that.
    pub(super) fn confirmation(&self, node: &NodeView, instance: &Ocid) -> Confirmation {
        let Self::Pools { answers, served, .. } = self else { return Confirmation::NotNeeded };
        let has_vnic = served.is_some_and(|served| served.contains(instance));
        match answers.of(instance) {
            Some(PoolAnswer::Named(named)) if *named == node.node_pool => Confirmation::Given,
            Some(PoolAnswer::Named(named)) => Confirmation::Refused(named.clone()),
            Some(PoolAnswer::Unreadable(error)) => Confirmation::Pending { has_vnic, error: Some(error.clone()) },
            None => Confirmation::Pending { has_vnic, error: None },
        }
    }
}
