//! Pods that change something on a node: their form, which manifests/operations/operation-pods.yaml permits, and their state. NodeTasks
//! and files of NodePolicies use them.

mod growths;
mod pod_state;
mod requests;
mod template;

pub(crate) use growths::{Growth, GrowthKey, GrowthTask, PolicyGrowths};
pub(crate) use pod_state::PodState;
pub(crate) use requests::{create_pod, delete_pod, pods};
pub(crate) use template::{NAMESPACE, OperationPod, PodPurpose};
