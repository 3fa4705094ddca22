//! The one planner: what has to change so that what is observed becomes what is desired. Pure; its steps are data that
//! can be printed, applied and undone.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{LinkKind, LinkSpec, Object, Place, SysctlSpec};

/// One change in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The namespace in which it is done.
    pub place: Place,
    /// What is done to which object.
    pub change: Change,
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Make the object, which does not exist.
    Add(Object),
    /// Remove the object, which is not desired.
    Delete(Object),
    /// Give an existing thing another value.
    Replace {
        /// The object as it is.
        from: Object,
        /// The object as it must be.
        to: Object,
    },
}

/// The steps from `observed` to `desired`. On success of all of them the namespaces hold every desired object, and of
/// the observed ones only those that are desired. `observed` must list only our objects: whatever it names and
/// `desired` does not is deleted, last made first, before anything is added (a stale route would be in the way).
/// Kernel settings and hardware devices cannot be deleted and are left.
pub fn plan(desired: &[(Place, Object)], observed: &[(Place, Object)]) -> Vec<Step> {
    let is_desired = |place: Place, object: &Object| desired.iter().any(|(p, o)| *p == place && o.same_slot(object));
    let deleted: Vec<&(Place, Object)> =
        observed.iter().filter(|(place, object)| deletable(object) && !is_desired(*place, object)).collect();
    let goes_with_its_link = |place: Place, object: &Object| {
        deleted.iter().any(|(p, other)| match other {
            Object::Link(link) => *p == place && object.carrier() == Some(&link.name),
            _ => false,
        })
    };
    let pod_end_dies = deleted.iter().any(|(_, object)| is_pair(object));
    let deletions = deleted
        .iter()
        .rev()
        .filter(|(place, object)| !goes_with_its_link(*place, object))
        .filter(|(place, object)| !(pod_end_dies && *place == Place::Pod && !matches!(object, Object::Rule(_))))
        .map(|(place, object)| Step { place: *place, change: Change::Delete(object.clone()) });
    let found = |place: Place, object: &Object| observed.iter().find(|(p, o)| *p == place && o.same_slot(object));
    // With the pair, which is raised then: see `apply`.
    let new_pair = desired.iter().find_map(|(place, object)| match object {
        Object::Link(link) if is_pair(object) && found(*place, object).is_none() => Some(link),
        _ => None,
    });
    let comes_with_it = |object: &Object| match object {
        Object::Sysctl(setting) => {
            new_pair.is_some_and(|pair| *setting == SysctlSpec::ignoring_router_advertisements(&pair.name))
        }
        other => new_pair.is_some() && is_pod_end(other),
    };
    let additions = desired.iter().filter_map(|(place, object)| {
        let change = match found(*place, object) {
            None if comes_with_it(object) => return None,
            None => Change::Add(object.clone()),
            Some((_, found)) if object.satisfied_by(found) => return None,
            Some((_, found)) => Change::Replace { from: found.clone(), to: kept_up(object, found) },
        };
        Some(Step { place: *place, change })
    });
    deletions.chain(additions).collect()
}

impl Step {
    /// The step that takes this one back.
    pub fn undo(&self) -> Self {
        let change = match &self.change {
            Change::Add(object) => Change::Delete(object.clone()),
            Change::Delete(object) => Change::Add(object.clone()),
            Change::Replace { from, to } => Change::Replace { from: to.clone(), to: from.clone() },
        };
        Self { place: self.place, change }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place == Place::Pod {
            f.write_str("pod: ")?;
        }
        match &self.change {
            Change::Add(object @ Object::Sysctl(_)) => write!(f, "sysctl {object}"),
            Change::Add(Object::Link(link)) if matches!(link.kind, LinkKind::VethPeer | LinkKind::Device) => {
                write!(f, "link set {link}")
            }
            Change::Add(Object::Link(link @ LinkSpec { kind: LinkKind::Moved(_), .. })) => {
                write!(f, "link move {link}")
            }
            Change::Add(object) => write!(f, "{} add {object}", object.noun()),
            Change::Delete(Object::Link(LinkSpec { name, kind: LinkKind::Moved(device), .. })) => {
                write!(f, "link move {name} back to the host as {}", device.link)
            }
            Change::Delete(Object::Link(link)) => write!(f, "link del {}", link.name),
            Change::Delete(object) => write!(f, "{} del {object}", object.noun()),
            Change::Replace { from: Object::Sysctl(from), to: to @ Object::Sysctl(_) } => {
                write!(f, "sysctl {to} (was {})", from.value)
            }
            Change::Replace { from: Object::Link(from), to: Object::Link(to) } => match (&from.alias, &to.alias) {
                (was, Some(alias)) if was.as_ref() != Some(alias) => {
                    write!(f, "link set {} alias {alias} (was {})", to.name, was.as_deref().unwrap_or("none"))
                }
                _ => write!(f, "link set {to} (was {from})"),
            },
            Change::Replace { to, .. } => write!(f, "{} replace {to}", to.noun()),
        }
    }
}

/// The desired object in place of the found one. A desired link without `up` does not mean that it is set down.
fn kept_up(desired: &Object, found: &Object) -> Object {
    match (desired, found) {
        (Object::Link(want), Object::Link(have)) => Object::Link(LinkSpec { up: want.up || have.up, ..want.clone() }),
        _ => desired.clone(),
    }
}

const fn is_pair(object: &Object) -> bool {
    matches!(object, Object::Link(link) if matches!(link.kind, LinkKind::Veth(_)))
}

const fn is_pod_end(object: &Object) -> bool {
    matches!(object, Object::Link(link) if matches!(link.kind, LinkKind::VethPeer))
}

const fn deletable(object: &Object) -> bool {
    match object {
        Object::Sysctl(_) => false,
        Object::Link(link) => !matches!(link.kind, LinkKind::Device),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use vcn::{IfName, Mtu, VlanTag};

    use super::*;

    fn vlan(up: bool, alias: Option<&str>) -> Object {
        let [name, parent] = ["nic0.7", "ens3"].map(|name| IfName::new(name).unwrap());
        let kind = LinkKind::Vlan { parent, tag: VlanTag::new(7).unwrap() };
        Object::Link(LinkSpec { name, kind, mac: None, mtu: Some(Mtu::VCN), up, alias: alias.map(str::to_owned) })
    }

    #[test]
    fn link_that_is_up_stays_up_during_other_changes() {
        let (desired, found) = (vlan(false, Some("alias")), vlan(true, None));
        let steps = plan(&[(Place::Host, desired)], &[(Place::Host, found.clone())]);
        let change = Change::Replace { from: found, to: vlan(true, Some("alias")) };
        assert_eq!(steps, [Step { place: Place::Host, change }]);
    }
}
