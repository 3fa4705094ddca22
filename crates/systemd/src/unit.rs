//! The state of a unit, from its properties.

use std::collections::HashMap;
use std::fmt;

use zbus::{OwnedVariant, Variant};

/// A unit as systemd describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Whether its file was read: no such unit, a masked one and a damaged one are not loaded.
    pub is_loaded: bool,
    /// Whether the unit runs.
    pub active: UnitState,
    /// Its detail, such as `running` or `auto-restart`.
    pub sub: String,
    /// Names one start of the unit, in hexadecimal digits; empty before the first one.
    pub invocation: String,
    /// Whether a start, stop or restart of it is queued or in progress.
    pub has_job: bool,
}

/// The state of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// The unit runs: systemd's `active`.
    Active,
    /// It starts, stops or reloads.
    Changing,
    /// It does not run.
    Inactive,
    /// It ended with an error.
    Failed,
}

impl Unit {
    /// From its properties; the name of a missing one is the error.
    pub(crate) fn of(properties: &HashMap<String, OwnedVariant>) -> Result<Self, &'static str> {
        let text = |name: &'static str| match properties.get(name).map(|value| &**value) {
            Some(Variant::Str(text)) => Ok(text.to_string()),
            _ => Err(name),
        };
        let invocation = properties.get("InvocationID").and_then(|id| Vec::<u8>::try_from(id.clone()).ok());
        let job = properties.get("Job").and_then(|job| <(u32, zbus::OwnedObjectPath)>::try_from(job.clone()).ok());
        Ok(Self {
            is_loaded: text("LoadState")? == "loaded",
            active: match text("ActiveState")?.as_str() {
                "active" => UnitState::Active,
                "inactive" => UnitState::Inactive,
                "failed" => UnitState::Failed,
                _ => UnitState::Changing,
            },
            sub: text("SubState")?,
            invocation: invocation.ok_or("InvocationID")?.iter().map(|byte| format!("{byte:02x}")).collect(),
            has_job: job.ok_or("Job")?.0 != 0,
        })
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let active = match self.active {
            UnitState::Active => "active",
            UnitState::Changing => "changing",
            UnitState::Inactive => "inactive",
            UnitState::Failed => "failed",
        };
        write!(formatter, "{active} ({})", self.sub)
    }
}
