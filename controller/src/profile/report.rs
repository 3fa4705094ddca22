//! What users see of profiles: their status, and Events on profiles and Nodes.

pub(crate) mod changes;
pub(crate) mod failures;
pub(crate) mod problems;
pub(crate) mod status;
