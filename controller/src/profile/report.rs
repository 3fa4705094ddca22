//! What users see of profiles: their status, and Events on profiles and Nodes.

pub mod changes;
pub mod failures;
pub mod problems;
pub mod status;
