//! The objects that the controller creates from a profile's template (stamps): their names, and which profile an object is of.

use api::{PROFILE_LABEL, VnicAttachment, VnicName};
use kube::ResourceExt;
use vcn::{Ocid, fnv1a};

/// The profile of an object: its label names it, and its name is the stamped one. An object without the label belongs to its
/// user.
pub fn profile_of(object: &VnicAttachment) -> Option<&str> {
    let profile = object.labels().get(PROFILE_LABEL)?;
    let given = object_name(profile, &object.spec.vnic.name, &object.spec.instance_id);
    (object.metadata.name.as_ref() == Some(&given)).then_some(profile)
}

/// The name of a stamped object: constant for profile, VNIC and instance. So a controller that crashed creates nothing
/// twice, and a node that returns under another name finds its objects. The parts contain no dots.
pub fn object_name(profile: &str, vnic: &VnicName, instance: &Ocid) -> String {
    format!("{profile}.{vnic}.{:012x}", fnv1a(instance.as_str().bytes()) & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_all_three_parts_and_fit() {
        let vnic: VnicName = "b".repeat(63).parse().unwrap();
        let instance: Ocid = format!("ocid1.instance.oc1.iad.{}", "x".repeat(60)).parse().unwrap();
        let name = object_name(&"a".repeat(63), &vnic, &instance);
        assert_eq!(name.len(), 140, "a DNS subdomain has up to 253");
        let short: VnicName = "b".parse().unwrap();
        let names = [object_name("a", &short, &instance), object_name("a-b", &short, &instance), name];
        assert_ne!(names[0], names[1]);
    }
}
