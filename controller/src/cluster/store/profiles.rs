//! VnicProfiles by name. Synchronous and pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{Received, VnicProfile};
use kube::ResourceExt;

#[derive(Debug, Default)]
pub struct Profiles {
    objects: BTreeMap<String, Arc<VnicProfile>>,
    unreadable: BTreeSet<String>,
}

impl Profiles {
    /// All readable ones, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<VnicProfile>> {
        self.objects.values()
    }

    /// The names of those of a later version that this one cannot read.
    pub const fn unreadable(&self) -> &BTreeSet<String> {
        &self.unreadable
    }

    pub fn apply(&mut self, object: Received<VnicProfile>) {
        let name = object.name_any();
        self.delete(&name);
        match object.0 {
            Ok(mut object) => {
                object.metadata.managed_fields = None;
                self.objects.insert(name, Arc::new(object));
            }
            Err(invalid) => {
                tracing::warn!(
                    event = "profile.unreadable",
                    name,
                    error = invalid.error,
                    "its VnicAttachments stay as they are"
                );
                self.unreadable.insert(name);
            }
        }
    }

    pub fn delete(&mut self, name: &str) {
        self.objects.remove(name);
        self.unreadable.remove(name);
    }

    /// Takes a complete list, in place of what was known.
    pub fn replace(&mut self, all: Vec<Received<VnicProfile>>) {
        *self = Self::default();
        all.into_iter().for_each(|object| self.apply(object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(name: &str, purpose: &str) -> Received<VnicProfile> {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": name },
            "spec": { "nodeSelector": {}, "attachments": [
                { "name": "net1", "purpose": purpose, "subnetId": "ocid1.subnet.oc1.iad.s" }
            ] }
        }))
        .unwrap()
    }

    fn names(all: &Profiles) -> (Vec<String>, Vec<String>) {
        (all.iter().map(|profile| profile.name_any()).collect(), all.unreadable().iter().cloned().collect())
    }

    #[test]
    fn profile_of_later_version_is_known_by_name_only() {
        let mut all = Profiles::default();
        all.replace(vec![profile("b", "Host"), profile("a", "Pods"), profile("c", "Moon")]);
        assert_eq!(names(&all), (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]));
        all.apply(profile("b", "Moon"));
        all.apply(profile("c", "Host"));
        all.delete("a");
        assert_eq!(names(&all), (vec!["c".to_owned()], vec!["b".to_owned()]));
    }
}
