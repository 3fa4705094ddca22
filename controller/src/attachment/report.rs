//! What users see: the planned status of an object, the status that is written, and the event when its reason changes.

pub mod attachment_status;
pub mod event_diff;
pub mod node_report;
pub mod status;
