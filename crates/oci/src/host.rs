//! What Oracle reports about the machines below instances: the health of bare-metal hosts, and maintenance.

use serde::{Deserialize, Serialize};
use vcn::Ocid;

/// A bare-metal host, as `ListComputeHosts` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeHost {
    /// The OCID of the host.
    pub id: Ocid,
    /// The instance that runs on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<Ocid>,
    /// The health that OCI reports: HEALTHY or UNHEALTHY.
    pub health: String,
    /// AVAILABLE, OCCUPIED, PROVISIONING, REPAIR or UNAVAILABLE.
    pub lifecycle_state: String,
    /// Whether a component is impaired; `GetComputeHost` names it.
    #[serde(default)]
    pub has_impacted_components: bool,
}

/// Maintenance of an instance, as `ListInstanceMaintenanceEvents` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceEvent {
    /// The OCID of the event.
    pub id: Ocid,
    /// The OCID of the instance that it is about.
    pub instance_id: Ocid,
    /// SCHEDULED, STARTED, PROCESSING, SUCCEEDED, FAILED or CANCELED.
    pub lifecycle_state: String,
    /// What OCI does with the instance: REBOOT_MIGRATION, TERMINATE, STOP or NONE.
    pub instance_action: String,
    /// Why, such as HARDWARE_REPLACEMENT.
    pub maintenance_reason: String,
    /// When it begins at the earliest (RFC 3339).
    pub time_window_start: String,
    /// When it begins at the latest (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_hard_due_date: Option<String>,
    /// Whether its owner may choose another time.
    #[serde(default)]
    pub can_reschedule: bool,
}

impl MaintenanceEvent {
    /// Whether it is to come, or in progress.
    pub fn is_open(&self) -> bool {
        ["SCHEDULED", "STARTED", "PROCESSING"].contains(&self.lifecycle_state.as_str())
    }
}
