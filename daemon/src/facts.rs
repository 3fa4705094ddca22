//! What is known of a node, as nouns: what each source said, the facts of all sources, conditions, and the result of a reconcile.
//! Pure, and without knowledge of the other folders: sources fill these types, `decide` and `reconcile` use them, `report` shows
//! them.

pub mod condition;
pub mod node_facts;
pub mod reconcile_report;
pub(crate) mod refused;
pub(crate) mod source;
