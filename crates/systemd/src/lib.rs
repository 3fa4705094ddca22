//! systemd of this machine, through its documented interface on the system bus: the state of units, restarts, and commands as
//! transient units. Why the bus: docs/decisions/0031.
//!
//! ```text
//!   Systemd::connect ─ /run/dbus/system_bus_socket ─▶ dbus-daemon ─▶ systemd
//!      .unit(name)      ─▶ Unit { state, invocation, … }
//!      .restart(name)   ─▶ a job; the unit's state shows its end
//!      .sequence(…)     ─▶ a transient unit of several commands, which systemd runs without this program
//!      .command_line(…) ─▶ what a service starts, with its environment
//!      .run(command)    ─▶ a transient unit, with output to a descriptor, until it ends
//! ```

mod bus;
mod error;
mod sequence;
mod transient;
mod unit;

pub use bus::Systemd;
pub use error::Error;
pub use sequence::{SequenceStep, ServiceCommand};
pub use transient::{Command, Exit};
pub use unit::{Unit, UnitState};
