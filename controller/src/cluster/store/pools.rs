//! Node pools of instances, as their metadata in OCI names them. Synchronous and pure.

use std::collections::HashMap;

use vcn::Ocid;

/// OCI's answer about the node pool of each instance that was read.
#[derive(Clone, Debug, Default)]
pub struct NodePools(HashMap<Ocid, PoolAnswer>);

/// An answer about one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolAnswer {
    /// The instance's metadata names this node pool, or none.
    Named(Option<Ocid>),
    /// The instance cannot be read, and why.
    Unreadable(String),
}

impl NodePools {
    /// The answer about an instance, if there is one.
    pub fn of(&self, instance: &Ocid) -> Option<&PoolAnswer> {
        self.0.get(instance)
    }

    /// Records an answer. Returns whether it is new. A failed read does not replace an earlier answer.
    pub fn record(&mut self, instance: &Ocid, answer: PoolAnswer) -> bool {
        let known = self.0.get(instance);
        let stays = known == Some(&answer)
            || matches!((known, &answer), (Some(PoolAnswer::Named(_)), PoolAnswer::Unreadable(_)));
        if !stays {
            self.0.insert(instance.clone(), answer);
        }
        !stays
    }

    /// Forgets all other instances.
    pub fn retain(&mut self, is_kept: impl Fn(&Ocid) -> bool) {
        self.0.retain(|instance, _| is_kept(instance));
    }
}
