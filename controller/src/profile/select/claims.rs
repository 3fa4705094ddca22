//! Which profile may give which instance a VNIC of which name. The first requester keeps a name: existing objects come before
//! planned ones, older profiles before younger ones. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{VnicAttachment, VnicName};
use vcn::Ocid;

use crate::profile::select::fate::{Fate, fate};
use crate::profile::select::from_template::{TemplateObject, profile_of};
use crate::profile::select::observed::AttachmentIndex;
use crate::profile::select::selection::{Selections, is_leaving};

/// The claim of a stamp.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Claim<'a> {
    /// Its object exists, and is the profile's.
    Held(&'a VnicAttachment),
    /// The name is free: the object may be created.
    Free,
    /// It waits for an object that is being deleted, or cannot be read.
    Waits,
    /// Another requester has the name, with the reason.
    Taken(String),
}

/// All stamps of all profiles, in serving order.
pub(crate) fn stamps(selections: &Selections<'_>) -> Vec<TemplateObject> {
    let mut profiles: Vec<_> = selections.profiles.values().collect();
    profiles.sort_by_key(|selection| {
        let metadata = &selection.profile.metadata;
        (metadata.creation_timestamp.as_ref().map(|time| time.0), metadata.name.clone())
    });
    let all = profiles.into_iter().filter(|selection| !is_leaving(selection.profile)).flat_map(|selection| {
        let templates: Vec<_> = selection.profile.spec.attachments.iter().cloned().map(Arc::new).collect();
        selection.nodes.iter().flat_map(move |(instance, node)| {
            let stamp = |template| TemplateObject::new(selection.profile, template, instance, &node.name);
            templates.iter().map(stamp).collect::<Vec<_>>()
        })
    });
    all.collect()
}

/// Decides for each stamp, in the same order.
pub(crate) fn claims<'a>(
    stamps: &[TemplateObject],
    there: &AttachmentIndex<'a>,
    selections: &Selections<'a>,
) -> Vec<Claim<'a>> {
    let stamp_names: BTreeSet<&str> = stamps.iter().map(|stamp| stamp.name.as_str()).collect();
    let mut holders: BTreeMap<(&Ocid, &VnicName), &str> = BTreeMap::new();
    for stamp in
        stamps.iter().filter(|stamp| there.objects.get(stamp.name.as_str()).is_some_and(|own| is_its(own, stamp)))
    {
        holders.entry(stamp.place()).or_insert(&stamp.name);
    }
    let mut claims = Vec::with_capacity(stamps.len());
    for stamp in stamps {
        claims.push(claim(stamp, there, selections, &stamp_names, &mut holders));
    }
    claims
}

fn claim<'a, 's>(
    stamp: &'s TemplateObject,
    there: &AttachmentIndex<'a>,
    selections: &Selections<'a>,
    stamp_names: &BTreeSet<&str>,
    holders: &mut BTreeMap<(&'s Ocid, &'s VnicName), &'s str>,
) -> Claim<'a> {
    let (profile, name) = (&stamp.profile, stamp.name.as_str());
    if there.unreadable.contains(name) {
        return Claim::Waits;
    }
    match there.objects.get(name) {
        Some(own) if is_its(own, stamp) => return Claim::Held(own),
        Some(_) => {
            return Claim::Taken(format!("VnicAttachment {name} exists and was not created for VnicProfile {profile}"));
        }
        None => {}
    }
    if let Some(holder) = holders.get(&stamp.place()) {
        return Claim::Taken(taken(stamp, holder));
    }
    let (instance, vnic) = stamp.place();
    let others = there.in_place(instance, vnic);
    let mut stay = others.iter().map(|other| (other, other.metadata.name.as_deref().unwrap_or_default()));
    let stays = stay.find(|(other, name)| {
        let goes = !stamp_names.contains(name) && will_go(other, selections);
        other.metadata.deletion_timestamp.is_none() && !goes
    });
    match stays {
        Some((_, holder)) => Claim::Taken(taken(stamp, holder)),
        None if !others.is_empty() || selections.is_held(&stamp.profile) => Claim::Waits,
        None => {
            holders.insert(stamp.place(), name);
            Claim::Free
        }
    }
}

fn taken(stamp: &TemplateObject, holder: &str) -> String {
    format!("VNIC {} of node {} belongs to VnicAttachment {holder}", stamp.template.name, stamp.node)
}

/// Whether an object that no profile wants is going to be deleted.
fn will_go<'a>(object: &'a VnicAttachment, selections: &Selections<'a>) -> bool {
    matches!(fate(object, selections), Fate::Goes(_) | Fate::GoesLater(_))
}

/// Whether the object of a stamp's name is the profile's. If not, two instances have the same hash.
fn is_its(object: &VnicAttachment, stamp: &TemplateObject) -> bool {
    profile_of(object) == Some(&stamp.profile) && object.spec.instance_id == stamp.instance
}

impl TemplateObject {
    fn place(&self) -> (&Ocid, &VnicName) {
        (&self.instance, &self.template.name)
    }
}
