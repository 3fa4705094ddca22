//! VnicAttachments by name and by instance. Synchronous and pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::{ConditionType, NodeReport, VNIC_FINALIZER, VnicAttachment, condition};
use kube::ResourceExt;
use vcn::Ocid;

use crate::report::metrics::Census;

#[derive(Debug, Default)]
pub struct Attachments {
    objects: HashMap<String, Arc<VnicAttachment>>,
    names: BTreeMap<Ocid, BTreeSet<String>>,
    /// Those of a later version that this one cannot read.
    unreadable: BTreeSet<String>,
}

/// What an object states: its instance and its VNIC.
pub(crate) type StatedVnic = (Ocid, Ocid);

impl Attachments {
    /// Those of an instance, by name.
    pub fn of(&self, instance: &Ocid) -> Vec<Arc<VnicAttachment>> {
        let names = self.names.get(instance).into_iter().flatten();
        names.filter_map(|name| self.objects.get(name).cloned()).collect()
    }

    /// One by its name.
    pub fn get(&self, name: &str) -> Option<&Arc<VnicAttachment>> {
        self.objects.get(name)
    }

    /// All of them, unordered.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<VnicAttachment>> {
        self.objects.values()
    }

    /// The names of unreadable objects: they must not be overwritten.
    pub const fn unreadable(&self) -> &BTreeSet<String> {
        &self.unreadable
    }

    /// An unreadable object exists. If it was readable before, that content stays.
    pub fn cannot_read(&mut self, name: String) {
        self.unreadable.insert(name);
    }

    /// The number of instances with objects, and of objects.
    pub fn load(&self) -> (usize, usize) {
        (self.names.len(), self.objects.len())
    }

    /// Instance and VNIC in their statuses.
    pub fn believed(&self) -> Vec<StatedVnic> {
        let vnic = |object: &Arc<VnicAttachment>| {
            Some((object.spec.instance_id.clone(), object.status.as_ref()?.vnic_id.clone()?))
        };
        self.objects.values().filter_map(vnic).collect()
    }

    /// The instances that have some.
    pub fn instances(&self) -> impl Iterator<Item = &Ocid> {
        self.names.keys()
    }

    /// A new or changed object. Returns the affected instances.
    pub fn apply(&mut self, object: VnicAttachment) -> BTreeSet<Ocid> {
        let (name, instance) = (object.name_any(), object.spec.instance_id.clone());
        self.unreadable.remove(&name);
        let before = self.objects.get(&name).cloned();
        let mut touched = BTreeSet::new();
        match before {
            Some(before) if *before == object => return touched,
            // Created again under the same name.
            Some(before) if before.spec.instance_id != instance => {
                touched = self.delete(&name);
                touched.insert(instance.clone());
            }
            // The watch returns our own writes: a new status alone causes no reconcile.
            Some(before) if same_but_for_status(&before, &object) => {}
            _ => {
                touched.insert(instance.clone());
            }
        }
        self.names.entry(instance).or_default().insert(name.clone());
        self.objects.insert(name, Arc::new(object));
        touched
    }

    /// An object is gone.
    pub fn delete(&mut self, name: &str) -> BTreeSet<Ocid> {
        self.unreadable.remove(name);
        let Some(object) = self.objects.remove(name) else { return BTreeSet::new() };
        let instance = object.spec.instance_id.clone();
        if let Some(names) = self.names.get_mut(&instance) {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(&instance);
            }
        }
        BTreeSet::from([instance])
    }

    /// The complete list. Every instance with objects is touched, because changes may have been missed.
    pub fn replace(&mut self, all: Vec<VnicAttachment>) -> BTreeSet<Ocid> {
        let mut touched: BTreeSet<Ocid> = self.names.keys().cloned().collect();
        *self = Self::default();
        for object in all {
            touched.extend(self.apply(object));
        }
        touched
    }

    /// Their number, by their condition Ready.
    pub fn census(&self) -> Census {
        let mut census = Census::new();
        for object in self.objects.values() {
            let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let ready = condition::find(conditions, ConditionType::Ready);
            let key = ready.map_or_else(
                || ("Unknown".to_owned(), "Pending".to_owned()),
                |ready| (ready.status.clone(), ready.reason.clone()),
            );
            *census.entry(key).or_default() += 1;
        }
        census
    }
}

/// Whether only our own writes differ: the status but for the report of the node's agent, our finalizer, and the version.
fn same_but_for_status(one: &VnicAttachment, other: &VnicAttachment) -> bool {
    let (a, b) = (&one.metadata, &other.metadata);
    one.spec == other.spec
        && (&a.uid, a.generation, &a.deletion_timestamp) == (&b.uid, b.generation, &b.deletion_timestamp)
        && a.labels == b.labels
        && a.annotations == b.annotations
        && node_report(one) == node_report(other)
        // We added our finalizer ourselves.
        && (!has_finalizer(one) || has_finalizer(other))
}

fn node_report(object: &VnicAttachment) -> Option<&NodeReport> {
    object.status.as_ref()?.node.as_ref()
}

fn has_finalizer(object: &VnicAttachment) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == VNIC_FINALIZER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::sample::{attachment, instance};

    #[test]
    fn objects_are_found_by_instance() {
        let mut all = Attachments::default();
        assert_eq!(all.apply(attachment("a", 1)), BTreeSet::from([instance(1)]));
        assert_eq!(all.apply(attachment("b", 1)), BTreeSet::from([instance(1)]));
        assert_eq!(all.apply(attachment("b", 1)), BTreeSet::new(), "nothing changed");
        let names: Vec<String> = all.of(&instance(1)).iter().map(|object| object.name_any()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(all.delete("a"), BTreeSet::from([instance(1)]));
        assert_eq!(all.delete("b"), BTreeSet::from([instance(1)]));
        assert_eq!((all.delete("b"), all.instances().count()), (BTreeSet::new(), 0));
    }

    #[test]
    fn an_object_recreated_for_another_instance_touches_both() {
        let mut all = Attachments::default();
        all.apply(attachment("a", 1));
        assert_eq!(all.apply(attachment("a", 2)), BTreeSet::from([instance(1), instance(2)]));
        assert_eq!((all.of(&instance(1)).len(), all.of(&instance(2)).len()), (0, 1));
    }

    #[test]
    fn an_unreadable_object_is_known_by_name() {
        let mut all = Attachments::default();
        let names = |all: &Attachments| all.unreadable().iter().cloned().collect::<Vec<_>>();
        all.apply(attachment("a", 1));
        all.cannot_read("a".to_owned());
        all.cannot_read("b".to_owned());
        assert_eq!(names(&all), ["a", "b"]);
        all.apply(attachment("a", 1));
        assert_eq!(names(&all), ["b"]);
        all.delete("b");
        assert_eq!(names(&all), [""; 0]);
    }

    #[test]
    fn report_of_the_agent_touches_its_instance_once() {
        let mut all = Attachments::default();
        all.apply(attachment("a", 1));
        let mut reported = attachment("a", 1);
        let node = Some(api::NodeReport { configured: true, ..Default::default() });
        reported.status = Some(api::VnicAttachmentStatus { node, ..Default::default() });
        assert_eq!(all.apply(reported.clone()), BTreeSet::from([instance(1)]));
        assert_eq!(all.apply(reported), BTreeSet::new());
    }

    #[test]
    fn our_own_status_write_touches_nothing() {
        let mut all = Attachments::default();
        all.apply(attachment("a", 1));
        let mut with_status = attachment("a", 1);
        with_status.status = Some(api::VnicAttachmentStatus { observed_generation: Some(1), ..Default::default() });
        with_status.metadata.resource_version = Some("9".to_owned());
        assert_eq!(all.apply(with_status.clone()), BTreeSet::new());
        assert_eq!(**all.get("a").unwrap(), with_status);
        let mut kept = with_status.clone();
        kept.metadata.finalizers = Some(vec![VNIC_FINALIZER.to_owned()]);
        assert_eq!(all.apply(kept), BTreeSet::new(), "nor is our finalizer");
        assert_eq!(all.apply(with_status), BTreeSet::from([instance(1)]), "its removal by another program does");
    }

    #[test]
    fn a_new_list_forgets_missing_objects() {
        let mut all = Attachments::default();
        all.apply(attachment("a", 1));
        assert_eq!(all.replace(vec![attachment("b", 2)]), BTreeSet::from([instance(1), instance(2)]));
        assert!(all.get("a").is_none() && all.of(&instance(1)).is_empty());
        assert_eq!(all.census(), Census::from([(("Unknown".to_owned(), "Pending".to_owned()), 1)]));
    }
}
