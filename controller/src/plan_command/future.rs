//! The objects as they would be: profiles with their finalizers, or no longer paused; VnicAttachments after the profiles'
//! steps. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{PROFILE_FINALIZER, VnicAttachment, VnicProfile};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use vcn::Ocid;

use crate::profile::plan::step::Step;
use crate::profile::select::observed::Observed;

/// The uid of an object that does not exist yet: no VNIC has it in its tags.
const NOT_MADE_YET: &str = "not-made-yet";

/// The objects of each instance, by its OCID.
pub(super) type Objects = BTreeMap<Ocid, Vec<Arc<VnicAttachment>>>;

/// With the finalizer on every profile: the controller needs it before it creates objects.
pub(super) fn with_finalizers(observed: &Observed) -> Observed {
    with_profiles(observed, |profile| {
        let finalizers = profile.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|finalizer| finalizer == PROFILE_FINALIZER) {
            finalizers.push(PROFILE_FINALIZER.to_owned());
        }
    })
}

/// With no profile paused.
pub(super) fn unpaused(observed: &Observed) -> Observed {
    with_profiles(observed, |profile| profile.spec.paused = false)
}

fn with_profiles(observed: &Observed, change: impl Fn(&mut VnicProfile)) -> Observed {
    let mut observed = observed.clone();
    for profile in &mut observed.profiles {
        if profile.metadata.deletion_timestamp.is_none() {
            change(Arc::make_mut(profile));
        }
    }
    observed
}

/// The objects after the steps.
pub(super) fn after<'a>(there: impl Iterator<Item = &'a Arc<VnicAttachment>>, steps: &[Step]) -> Objects {
    let mut all: BTreeMap<String, Arc<VnicAttachment>> =
        there.map(|object| (object.name_any(), Arc::clone(object))).collect();
    for step in steps {
        match step {
            Step::Create(stamp) => {
                let mut object = stamp.object();
                object.metadata.uid = Some(format!("{NOT_MADE_YET}-{}", stamp.name));
                object.metadata.creation_timestamp = Some(Time(Timestamp::MAX));
                all.insert(stamp.name.clone(), Arc::new(object));
            }
            Step::Update { stamp, .. } => {
                if let Some(object) = all.get_mut(&stamp.name).map(Arc::make_mut) {
                    object.spec = stamp.spec();
                }
            }
            Step::Delete { object, .. } | Step::Replace { object, .. } => {
                if let Some(object) = all.get_mut(&object.name).map(Arc::make_mut) {
                    object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
                }
            }
            Step::AddFinalizer(_) | Step::RemoveFinalizer(_) => {}
        }
    }
    let mut objects = Objects::new();
    for object in all.into_values() {
        objects.entry(object.spec.instance_id.clone()).or_default().push(object);
    }
    objects
}
