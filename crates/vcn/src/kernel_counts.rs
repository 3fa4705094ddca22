//! What the kernel and its drivers count, as read by netlink and judged by health.

/// What connection tracking counted since boot in a network namespace, on all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConntrackCounts {
    /// Packets that were dropped: the table was full, or they lost a race.
    pub drop: u64,
    /// Connections that were forgotten to make room.
    pub early_drop: u64,
    /// Connections that lost a race for the same flow or the same NAT port.
    pub insert_failed: u64,
}

/// What a driver watches of a device, such as the firmware of a network adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthReporter {
    /// The device's bus, such as `pci`.
    pub bus: String,
    /// Its name there, such as `0000:0c:00.0`.
    pub device: String,
    /// What is watched, such as `fw_fatal`.
    pub name: String,
    /// Whether there is an error that the driver has not recovered from.
    pub is_failed: bool,
    /// Errors since the driver was loaded.
    pub errors: u64,
}
