//! The suite's vocabulary: VCN nouns (VNIC, subnet, instance), Linux nouns (link name, table, priority, mark) and the
//! identifiers both sides agree on. Floor 0: no input, no output, no dependency on another of our crates.
//!
//! ```text
//!   instance ──has──▶ VNIC ──on──▶ subnet ──via──▶ virtual router
//!                      │ carried by
//!                      ▼
//!                     link ──routed by──▶ table (rules choose it by priority)
//! ```

mod constants;
mod excerpt;
mod family;
mod field;
mod hash;
mod instance;
mod kernel_counts;
mod linux;
mod mac;
mod ocid;
mod printable;
mod text_type;
mod vnic;
mod words;

pub use constants::{
    ATTACHMENTS_COPY_FILE, CAPTURES_FOLDER, CONFLIST_FILE, CONTROLLER_RULES_FILE, COPIED_CONFLIST_FILE,
    HOST_LINK_PREFIX, INTERFACES_ANNOTATION, LINK_ALIAS_PREFIX, LINK_JOURNAL_FILE, MARK_MASK, METADATA_ADDRESS,
    METADATA_ADDRESS_V6, NETWORK_NAME, NFT_TABLE, NODE_POLICY_FILE, NODE_POLICY_PROOFS_FILE, NPN_COPY_FILE,
    PLUGIN_MARKS, POD_GATEWAY_V4, POD_GATEWAY_V6, POD_OWN_TABLE, PODS_TABLE, PRIMARY_MARK, PROTOCOL,
    REPORTED_CONDITIONS_FILE, RETURNED_LINK_PREFIX, RulePriorities, STATE_DIR, TABLE_BASE, VNIC_ATTACH_NETWORK,
    VNICS_COPY_FILE, vnic_mark,
};
pub use excerpt::excerpt;
pub use family::{Family, PerFamily};
pub use field::{Field, FieldError, is_given};
pub use hash::{fnv1a, fnv1a_32};
pub use instance::{Instance, MachineKind};
pub use kernel_counts::{ConntrackCounts, HealthReporter};
pub use linux::{IfName, IfNameError, Mark, Mtu, PodRoute, Priority, TableId, VlanTag, VlanTagError};
pub use mac::{MacAddr, MacAddrError};
pub use ocid::{Ocid, OcidError};
pub use printable::printable;
pub use vnic::{
    AttachMode, ExclusiveLink, LinkIdentity, LinkKindName, LinkSettings, Purpose, SubnetAddressing, Vnic, VnicRoute,
};
