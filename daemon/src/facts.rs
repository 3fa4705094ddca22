//! What is known of a node, as nouns: what each source said, the facts of all sources, conditions, the result of a reconcile, and
//! what plugins did. This folder imports no other one: sources fill these types, `decide` and `reconcile` use them, `report`
//! shows them.

pub mod condition;
pub(crate) mod deleted_attachments;
pub(crate) mod follow_ups;
pub mod node_facts;
pub(crate) mod recent_runs;
pub mod reconcile_report;
pub(crate) mod refused;
pub(crate) mod source;
