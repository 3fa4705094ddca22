//! Which nodes each VnicProfile selects: by node pool or by its selector, and by the nodes' annotations if it allows them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::{VnicProfile, requested_profiles};
use vcn::Ocid;

use crate::cluster::store::NodeView;
use crate::profile::select::matcher::{Confirmation, Matcher, ServedInstances};
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
    /// The instances whose node pool decides about VNICs, with the node pool that their Node's annotation names.
    pub nominated: BTreeMap<Ocid, &'a Ocid>,
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
    /// Nodes whose node pool the instance's metadata has not confirmed yet. They get no new VNIC; those that have one of this
    /// profile are among `nodes` as well.
    pub unconfirmed: BTreeMap<Ocid, Unconfirmed<'a>>,
    /// Selected nodes without an instance yet.
    pub without_instance: BTreeSet<&'a str>,
    /// Selected nodes that get nothing, and why: they are not instances, or another node has the instance.
    pub excluded: BTreeMap<&'a str, String>,
}

/// A node whose node pool is not confirmed yet.
#[derive(Debug)]
pub(crate) struct Unconfirmed<'a> {
    pub node: &'a NodeView,
    /// Why its instance could not be read, if that was tried.
    pub error: Option<String>,
}

/// Why a profile is inactive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InactiveReason {
    Paused,
    InvalidSelector(String),
    /// An attachment is possible for one node only, and several are selected.
    InvalidSpec(String),
}

/// A problem of a node's request, for an Event on the Node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) struct NodeProblem<'a> {
    pub node: &'a str,
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
/// The node's annotation names a node pool, and its instance's metadata does not.
pub(crate) const POOL_MISMATCH: &str = "NodePoolMismatch";
/// The node's annotation names a node pool, and its instance cannot be read.
pub(crate) const POOL_UNREADABLE: &str = "NodePoolUnreadable";
/// A VNIC exists, and its template got an address later.
pub(crate) const PRIVATE_IP_IGNORED: &str = "PrivateIpIgnored";
/// Another requester has a VNIC of this name on the node.
pub(crate) const NAME_CONFLICT: &str = "VnicNameConflict";

pub(crate) fn select(observed: &Observed) -> Selections<'_> {
    let mut all = Selections::default();
    for profile in &observed.profiles {
        let name = profile.metadata.name.as_deref().unwrap_or_default();
        all.profiles.insert(name, Selection::new(profile));
    }
    all.unreadable = observed.unreadable_profiles.iter().map(String::as_str).collect();
    let served = ServedInstances::of(observed);
    let matchers: BTreeMap<&str, Matcher<'_>> = all
        .profiles
        .iter_mut()
        .filter_map(|(name, selection)| {
            Matcher::of(selection.profile, observed, &served)
                .map_err(|why| selection.hold = Some(InactiveReason::InvalidSelector(why)))
                .ok()
                .map(|matcher| (*name, matcher))
        })
        .collect();
    let mut nodes: Vec<&NodeView> = observed.nodes.iter().map(AsRef::as_ref).collect();
    // Of several Nodes that claim one instance, the senior one counts.
    nodes.sort_by_key(|node| node.seniority());
    for node in nodes {
        all.add(node, &matchers);
    }
    all.profiles.values_mut().for_each(Selection::hold_if_ambiguous);
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

    /// Whether a new VNIC of the profile may be requested for the instance.
    pub(in crate::profile) fn is_confirmed(&self, profile: &str, instance: &Ocid) -> bool {
        self.profiles.get(profile).is_none_or(|selection| !selection.unconfirmed.contains_key(instance))
    }

    fn add(&mut self, node: &'a NodeView, matchers: &BTreeMap<&str, Matcher<'_>>) {
        let holder = node.instance.as_ref().map(|instance| *self.instances.entry(instance.clone()).or_insert(node));
        let senior = holder.filter(|holder| holder.name != node.name).map(|holder| holder.name.as_str());
        let requested = node.vnics.as_deref().map_or(Ok(Vec::new()), requested_profiles);
        if let Err(error) = &requested {
            let note = format!("annotation {}: {error}; nothing changes until it is valid", api::VNICS_ANNOTATION);
            self.problems.push(NodeProblem { node: node.name.as_str(), reason: INVALID_ANNOTATION, note });
        }
        let mut named: BTreeSet<&str> = requested.iter().flatten().map(String::as_str).collect();
        let labels = node.labels.map();
        for (name, selection) in &mut self.profiles {
            let is_named = named.remove(name);
            let Some(matcher) = matchers.get(name) else { continue };
            let (selected, by_annotation) =
                (matcher.matches(node, &labels), selection.profile.spec.allow_node_annotation);
            if is_named && let Some((reason, note)) = refusal(name, selection.profile, selected) {
                self.problems.push(NodeProblem { node: node.name.as_str(), reason, note });
            }
            if !selected {
                continue;
            }
            let is_requested = !by_annotation || is_named;
            match (&node.instance, senior, &node.stranger) {
                // No partial effect: the other names may be wrong too.
                (Some(instance), _, _) if by_annotation && requested.is_err() => {
                    selection.undecided.insert(instance.clone());
                }
                (Some(instance), Some(senior), _) if is_requested => {
                    // Nothing is created for it, and nothing is removed.
                    selection.undecided.insert(instance.clone());
                    selection.excluded.insert(&node.name, format!("its instance is that of Node {senior}"));
                    let note = format!(
                        "VnicProfile {name} is for this Node, but the older Node {senior} has the same providerID and gets the \
                         instance's VNICs. Delete the Node that is not this instance"
                    );
                    self.problems.push(NodeProblem { node: node.name.as_str(), reason: SECOND_CLAIM, note });
                }
                (Some(instance), None, _) if is_requested => {
                    let confirmation = matcher.confirmation(node, instance);
                    if !matches!(confirmation, Confirmation::NotNeeded)
                        && let Some(pool) = &node.node_pool
                    {
                        self.nominated.insert(instance.clone(), pool);
                    }
                    self.problems.extend(selection.take(node, instance, confirmation));
                }
                (None, _, None) if is_requested => {
                    selection.without_instance.insert(node.name.as_str());
                }
                (None, _, Some(error)) if is_requested => {
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
            format!(
                "VnicProfile {name} is for other Nodes: neither its nodePools nor its nodeSelector matches this one"
            ),
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
            unconfirmed: BTreeMap::new(),
            without_instance: BTreeSet::new(),
            excluded: BTreeMap::new(),
        }
    }

    /// Adds a selected node, if its node pool is confirmed. Returns what a person must know.
    fn take(&mut self, node: &'a NodeView, instance: &Ocid, confirmation: Confirmation) -> Option<NodeProblem<'a>> {
        let profile = self.profile.metadata.name.as_deref().unwrap_or_default();
        let pool = node.node_pool.as_ref().map_or("none", Ocid::as_str);
        let problem = |reason, note| Some(NodeProblem { node: &node.name, reason, note });
        match confirmation {
            Confirmation::NotNeeded | Confirmation::Given => {
                self.nodes.insert(instance.clone(), node);
                None
            }
            Confirmation::Pending { has_vnic, error } => {
                if has_vnic {
                    self.nodes.insert(instance.clone(), node);
                }
                let note = error.as_ref().map(|error| {
                    format!("VnicProfile {profile}: whether the instance is of node pool {pool} is not known: {error}; retried")
                });
                self.unconfirmed.insert(instance.clone(), Unconfirmed { node, error });
                note.and_then(|note| problem(POOL_UNREADABLE, note))
            }
            Confirmation::Refused(named) => {
                let named = named.map_or_else(|| "no node pool".to_owned(), |named| format!("node pool {named}"));
                let note = format!(
                    "VnicProfile {profile} is not for this Node: its annotation {} names node pool {pool}, its instance's metadata \
                     (oke-pool-id) {named}",
                    api::NODE_POOL_ANNOTATION
                );
                self.excluded.insert(&node.name, "its instance's metadata does not confirm its node pool".to_owned());
                problem(POOL_MISMATCH, note)
            }
        }
    }

    /// An address can be on one VNIC only. Nodes that are not confirmed do not count: a Node that names another's node pool must
    /// not stop the profile.
    fn hold_if_ambiguous(&mut self) {
        let fixed = self.profile.spec.attachments.iter().find(|template| template.private_ip.is_some());
        let waiting = self.unconfirmed.keys().filter(|instance| self.nodes.contains_key(*instance)).count();
        // A Node without an instance is not confirmed either.
        let without_instance = if self.profile.spec.node_pools.is_empty() { self.without_instance.len() } else { 0 };
        let nodes = self.nodes.len() - waiting + without_instance;
        if let (Some(template), None, 2..) = (fixed, &self.hold, nodes) {
            let why = format!("attachment {} has privateIp, and the profile selects {nodes} nodes", template.name);
            self.hold = Some(InactiveReason::InvalidSpec(why));
        }
    }
}
