//! How the emulated API behaves.

use std::time::Duration;

/// How long things take, and limits. The defaults are those of the real API, with short times.
#[derive(Clone, Debug)]
pub struct OciSettings {
    /// How long a VNIC is ATTACHING (the real one: 10 to 30 s).
    pub attaching: Duration,
    /// How long the VNIC is PROVISIONING once its attachment is ATTACHED.
    pub provisioning: Duration,
    /// How long a new attachment is missing from lists, whatever its state (the real one promises nothing).
    pub listed_after: Duration,
    /// How long it is DETACHING.
    pub detaching: Duration,
    /// How long an instance is STOPPING when it is restarted.
    pub restarting: Duration,
    /// How long a bulk request takes.
    pub bulk: Duration,
    /// The most entries on a page, whatever the caller's limit.
    pub page: usize,
    /// The most secondary addresses of a VNIC, per family; blocks count as one.
    pub addresses_per_vnic: usize,
    /// The port on which proxymux listens (the real one: 12250); 0 means any free one.
    pub proxymux_port: u16,
    /// Whether any compartment can be listed, not only the VCN's.
    pub any_compartment: bool,
}

impl Default for OciSettings {
    fn default() -> Self {
        Self {
            attaching: Duration::from_millis(100),
            provisioning: Duration::ZERO,
            listed_after: Duration::ZERO,
            detaching: Duration::from_millis(100),
            restarting: Duration::from_millis(100),
            bulk: Duration::from_millis(20),
            page: 100,
            addresses_per_vnic: 64,
            proxymux_port: 0,
            any_compartment: false,
        }
    }
}
