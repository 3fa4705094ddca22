//! Pods that change something on a node: their form, which manifests/operations/operation-pods.yaml permits, and their state. NodeTasks
//! and files of NodePolicies use them.

mod growths;
mod pod_state;
mod template;

pub(crate) use growths::{Growth, GrowthKey, PolicyGrowths};
pub(crate) use pod_state::PodState;
pub(crate) use template::{NAMESPACE, OperationPod, PodPurpose};
