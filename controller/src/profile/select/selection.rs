//! Which nodes each VnicProfile selects: by its selector, and by the nodes' annotations if it allows them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::{VnicProfile, wanted_profiles};
use kube::core::{Selector, SelectorExt};
use vcn::Ocid;

use crate::cluster::store::NodeView;
use crate::profile::select::observed::Observed;

#[derive(Debug, Default)]
pub(crate) struct Selections<'a> {
    /// All readable ones, by name.
    pub profiles: BTreeMap<&'a str, Selection<'a>>,
    /// Profiles that cannot be read because a later version wrote them. Their objects stay as they are.
    pub unreadable: BTreeSet<&'a str>,
    /// The instances with a Node; of several that claim one instance, the senior one.
    pub instances: BTreeMap<Ocid, &'a NodeView>,
    /// Problems that a person must solve.
    pub problems: Vec<NodeProblem<'a>>,
}

#[derive(Debug)]
pub(crate) struct Selection<'a> {
    pub profile: &'a VnicProfile,
    /// Why nothing is created, changed or removed, if so.
    pub hold: Option<InactiveReason>,
    /// The nodes, by their instances.
    pub nodes: BTreeMap<Ocid, &'a NodeView>,
    /// Instances that keep their VNICs: their node's annotation is invalid, or a second node claims them.
    pub undecided: BTreeSet<Ocid>,
    /// Selected nodes without an instance yet.
    pub unborn: BTreeSet<&'a str>,
    /// Selected nodes that get nothing, and why: they are not instances, or another node has the instance.
    pub excluded: BTreeMap<&'a str, String>,
}

/// Why a profile is inactive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InactiveReason {
    Paused,
    InvalidSelector(String),
}

/// A problem of a node's request, for an Event on the Node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) struct NodeProblem<'a> {
    pub node: &'a str,
    /// A stable reason.
    pub reason: &'static str,
    pub note: String,
}

/// The annotation is invalid.
pub(crate) const INVALID_ANNOTATION: &str = "InvalidVnicsAnnotation";
/// The annotation names a profile that does not exist.
pub(crate) const UNKNOWN_PROFILE: &str = "UnknownVnicProfile";
/// The annotation names a profile that does not allow it.
pub(crate) const NOT_ALLOWED: &str = "VnicProfileNotAllowed";
/// The annotation names a profile that does not select the node.
pub(crate) const NOT_SELECTED: &str = "VnicProfileNotForNode";
/// A profile selects the node, which is not an instance.
pub(crate) const NO_INSTANCE: &str = "NodeIsNoInstance";
/// A profile selects the node, but an older node claims the same instance.
pub(crate) const SECOND_CLAIM: &str = "InstanceClaimedTwice";
/// The Node is younger than a VNIC that it no longer requests: it was recreated without its label or annotation.
pub(crate) const NODE_RECREATED: &str = "NodeRecreated";
/// Another requester has a VNIC of this name on the node.
pub(crate) const NAME_CONFLICT: &str = "VnicNameConflict";

pub(crate) fn select(observed: &Observed) -> Selections<'_> {
    let mut all = Selections::default();
    for profile in &observed.profiles {
        let name = profile.metadata.name.as_deref().unwrap_or_default();
        all.profiles.insert(name, Selection::new(profile));
    }
    all.unreadable = observed.unreadable_profiles.iter().map(String::as_str).collect();
    let selectors: BTreeMap<&str, Selector> = all
        .profiles
        .iter_mut()
        .filter_map(|(name, selection)| {
            Selector::try_from(selection.profile.spec.node_selector.clone())
                .map_err(|error| selection.hold = Some(InactiveReason::InvalidSelector(error.to_string())))
                .ok()
                .map(|selector| (*name, selector))
        })
        .collect();
    let mut nodes: Vec<&NodeView> = observed.nodes.iter().map(AsRef::as_ref).collect();
    // Of several Nodes that claim one instance, the senior one counts.
    nodes.sort_by_key(|node| node.seniority());
    for node in nodes {
        all.add(node, &selectors);
    }
    all.problems.sort();
    all
}

pub(in crate::profile) fn is_leaving(profile: &VnicProfile) -> bool {
    profile.metadata.deletion_timestamp.is_some()
}

impl<'a> Selections<'a> {
    /// The node of a profile for an instance.
    pub(crate) fn node_of(&self, profile: &str, instance: &Ocid) -> Option<&'a str> {
        Some(self.profiles.get(profile)?.nodes.get(instance)?.name.as_str())
    }

    pub(in crate::profile) fn is_held(&self, profile: &str) -> bool {
        let held = self.profiles.get(profile).is_some_and(|selection| selection.hold.is_some());
        held || self.unreadable.contains(profile)
    }

    fn add(&mut self, node: &'a NodeView, selectors: &BTreeMap<&str, Selector>) {
        let holder = node.instance.as_ref().map(|instance| *self.instances.entry(instance.clone()).or_insert(node));
        let senior = holder.filter(|holder| holder.name != node.name).map(|holder| holder.name.as_str());
        let wanted = node.vnics.as_deref().map_or(Ok(Vec::new()), wanted_profiles);
        if let Err(error) = &wanted {
            let note = format!("annotation {}: {error}; nothing changes until it is valid", api::VNICS_ANNOTATION);
            self.problems.push(NodeProblem { node: node.name.as_str(), reason: INVALID_ANNOTATION, note });
        }
        let mut named: BTreeSet<&str> = wanted.iter().flatten().map(String::as_str).collect();
        let labels = node.labels.map();
        for (name, selection) in &mut self.profiles {
            let is_named = named.remove(name);
            let Some(selector) = selectors.get(name) else { continue };
            let (selected, by_annotation) = (selector.matches(&labels), selection.profile.spec.allow_node_annotation);
            if is_named && let Some((reason, note)) = refusal(name, selection.profile, selected) {
                self.problems.push(NodeProblem { node: node.name.as_str(), reason, note });
            }
            if !selected {
                continue;
            }
            let is_wanted = !by_annotation || is_named;
            match (&node.instance, senior, &node.stranger) {
                // No partial effect: the other names may be wrong too.
                (Some(instance), _, _) if by_annotation && wanted.is_err() => {
                    selection.undecided.insert(instance.clone());
                }
                (Some(instance), Some(senior), _) if is_wanted => {
                    // Nothing is created for it, and nothing is removed.
                    selection.undecided.insert(instance.clone());
                    selection.excluded.insert(&node.name, format!("its instance is that of Node {senior}"));
                    let note = format!(
                        "VnicProfile {name} is for this Node, but the older Node {senior} has the same providerID and gets the \
                         instance's VNICs. Delete the Node that is not this instance"
                    );
                    self.problems.push(NodeProblem { node: node.name.as_str(), reason: SECOND_CLAIM, note });
                }
                (Some(instance), None, _) if is_wanted => {
                    selection.nodes.insert(instance.clone(), node);
                }
                (None, _, None) if is_wanted => {
                    selection.unborn.insert(node.name.as_str());
                }
                (None, _, Some(error)) if is_wanted => {
                    selection.excluded.insert(&node.name, "its providerID names no OCI instance".to_owned());
                    let note = format!("VnicProfile {name} is for this Node, but its {error}");
                    self.problems.push(NodeProblem { node: node.name.as_str(), reason: NO_INSTANCE, note });
                }
                _ => {}
            }
        }
        let unknown: Vec<_> = named.into_iter().map(|name| self.unknown_profile(node, name)).collect();
        self.problems.extend(unknown);
    }

    fn unknown_profile(&self, node: &'a NodeView, name: &str) -> NodeProblem<'a> {
        let note = if self.unreadable.contains(name) {
            format!("VnicProfile {name} was written by a later version and cannot be read")
        } else {
            format!("annotation {} names VnicProfile {name}, which does not exist", api::VNICS_ANNOTATION)
        };
        NodeProblem { node: node.name.as_str(), reason: UNKNOWN_PROFILE, note }
    }
}

/// Why a node does not get a profile that it names.
fn refusal(name: &str, profile: &VnicProfile, is_selected: bool) -> Option<(&'static str, String)> {
    match (profile.spec.allow_node_annotation, is_selected) {
        // It gets it anyway.
        (false, true) => None,
        (false, false) => Some((
            NOT_ALLOWED,
            format!("VnicProfile {name} does not take requests by annotation: its allowNodeAnnotation is false"),
        )),
        (true, false) => Some((
            NOT_SELECTED,
            format!("VnicProfile {name} is for other Nodes: its nodeSelector does not match this one's labels"),
        )),
        (true, true) => None,
    }
}

impl<'a> Selection<'a> {
    fn new(profile: &'a VnicProfile) -> Self {
        Self {
            profile,
            hold: profile.spec.paused.then_some(InactiveReason::Paused),
            nodes: BTreeMap::new(),
            undecided: BTreeSet::new(),
            unborn: BTreeSet::new(),
            excluded: BTreeMap::new(),
        }
    }
}
