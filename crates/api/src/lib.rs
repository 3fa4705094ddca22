//! The vocabulary spoken with the Kubernetes API: objects other programs write and we read, our own custom resources with
//! their conditions, and the annotation that asks for them. Floor 0: parsing and schemas only, no client, no clock.
//!
//! ```text
//!   OKE control plane ──writes──▶ NativePodNetwork (JSON) ──NativePodNetwork::parse──▶ addresses that pods may use
//!
//!   users ──▶ VnicProfile ──┐  (nodes that its selector matches, or that name it: wanted_profiles)
//!                           ▼
//!   users ──────────▶ VnicAttachment ──▶ one VNIC on one instance (instance_of a Node)
//!                       spec: users, profiles    status: conditions, each with a Reason
//! ```
//!
//! Who lists or watches our resources does so through `kube::core::DeserializeGuard`: an object that a later version
//! wrote may not be readable, and must not hide the others.

pub mod annotation;
pub mod condition;
pub mod crd;
#[cfg(test)]
mod documents;
mod field;
mod names;
pub mod npn;
mod provider_id;
mod reason;
mod schema;
mod size;
mod vnic_attachment;
mod vnic_name;
mod vnic_profile;
mod vnic_template;

pub use annotation::{AnnotationError, wanted_profiles};
pub use condition::{Condition, ConditionStatus, ConditionType, Reason};
pub use field::{Field, FieldError};
pub use names::{
    CLUSTER_TAG, FIELD_MANAGER, FORCE_DETACH_ANNOTATION, GROUP, NAME_TAG, NODE_NAME_MAX, PROFILE_FINALIZER,
    PROFILE_LABEL, RELEASED_TAG, TAG_PREFIX, UID_TAG, VERSION, VNIC_FINALIZER, VNICS_ANNOTATION,
};
pub use npn::NativePodNetwork;
pub use provider_id::{ProviderIdError, instance_of};
pub use reason::{AttachmentReason, ProfileReason};
pub use size::{MOST as OBJECT_MAX, MOST_SHARED as POD_ADDRESSES_MAX, NAME_AND_SPEC as NAME_AND_SPEC_MAX};
pub use vnic_attachment::{NodeReport, VnicAttachment, VnicAttachmentSpec, VnicAttachmentStatus};
pub use vnic_name::{VnicName, VnicNameError};
pub use vnic_profile::{ProfileSummary, VnicProfile, VnicProfileSpec, VnicProfileStatus};
pub use vnic_template::{AttachMode, OnDelete, Purpose, Route, VnicTemplate};
