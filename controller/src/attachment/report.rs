//! What users see: the planned status of an object, the written status, and the Event when its reason changes.

pub mod attachment_status;
pub(crate) mod event_diff;
pub(crate) mod node_report;
pub mod status;
