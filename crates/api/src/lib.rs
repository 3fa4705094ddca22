//! The vocabulary of the Kubernetes API: objects that other programs write and we read, our custom resources with their
//! conditions, and the annotation that requests them. Floor 0: parsing and schemas only, no client, no clock.
//!
//! ```text
//!   npn              OKE ──writes──▶ NativePodNetwork ──parse──▶ addresses for pods
//!
//!   annotation       Node ─requested_profiles┐
//!   vnic_profile     users ──▶ VnicProfile ──┴──▶ nodes that it selects
//!                                 ▼
//!   vnic_attachment  users ──▶ VnicAttachment ──▶ one VNIC on one instance (provider_id)
//!   vnic_template,     spec: users, profiles      status: condition, each with a Reason
//!   vnic_name
//!
//!   node_policy      operators ──▶ NodePolicy ──▶ kernel settings and link options of nodes
//!   node_task        operators ──▶ NodeTask ──▶ one action on nodes
//!   operation        what the Pod of an action reports to the controller
//!   network_test     operators ──▶ NetworkTest ──▶ probes between nodes
//!
//!   bundle, capture  what agent, controller and kubectl exchange for support bundles and captures
//!
//!   crd, schema, attachment_size: the CustomResourceDefinitions and their limits     names: labels, finalizers, tags
//! ```
//!
//! List and watch objects through [`Received`]: one that is not readable, because a later version or another program wrote it,
//! must not hide the others. Statuses are read field by field.

pub mod annotation;
mod attachment_size;
pub mod bundle;
pub mod capture;
pub mod condition;
pub mod crd;
mod names;
mod network_test;
pub mod node_policy;
pub mod node_task;
pub mod npn;
pub mod operation;
mod provider_id;
mod received;
mod schema;
mod vnic_attachment;
mod vnic_name;
mod vnic_profile;
mod vnic_template;

pub use annotation::{AnnotationError, requested_profiles};
pub use attachment_size::{NAME_AND_SPEC_MAX, OBJECT_MAX, POD_ADDRESSES_MAX};
pub use condition::reason::{AttachmentReason, PolicyReason, ProfileReason, TaskReason};
pub use condition::{Condition, ConditionStatus, ConditionType, Reason};
pub use names::{
    AGENT_CHANNEL_ANNOTATION, CLUSTER_TAG, CONTROLLER_KEYS, CORDON_ANNOTATION, CORDON_OWNER_MAX, CREATED_BY_ANNOTATION,
    FIELD_MANAGER, FORCE_DETACH_ANNOTATION, GROUP, NAME_TAG, NODE_NAME_MAX, NODE_POOL_ANNOTATION, POLICY_FINALIZER,
    PROFILE_FINALIZER, PROFILE_LABEL, RELEASED_TAG, TAG_PREFIX, TASK_FINALIZER, UID_TAG, VERSION, VNIC_FINALIZER,
    VNICS_ANNOTATION,
};
pub use network_test::{
    MAX_WORST_PAIRS, NetworkTest, NetworkTestSpec, NetworkTestStatus, PairVerdict, PodSelection, ProbeKind, STATUS_MAX,
    TargetService, TestCounts, TestLatency, TestProbe, TestSource, TestState, TestTarget, TestThroughput,
};
pub use node_policy::{NodePolicy, NodePolicySpec, NodePolicyStatus, NodeSettings};
pub use node_task::{NodeTask, NodeTaskSpec, NodeTaskStatus};
pub use npn::NativePodNetwork;
pub use provider_id::{ProviderIdError, instance_of};
pub use received::{Received, UnreadableObject, lenient, lenient_list};
pub use vnic_attachment::{NodeReport, VnicAttachment, VnicAttachmentSpec, VnicAttachmentStatus};
pub use vnic_name::{VnicName, VnicNameError};
pub use vnic_profile::{ProfileSummary, VnicProfile, VnicProfileSpec, VnicProfileStatus};
pub use vnic_template::{AttachMode, OnDelete, Purpose, Route, VnicTemplate};
