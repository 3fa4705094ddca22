//! NodeTasks: one action on one node, or on the nodes that a selector matches, in the order of their names. The status is written
//! before an effect, in the place of the version that was read, so that the next leader continues and no node has an action twice.
//!
//! ```text
//!   NodeTasks ─watch─▶ run ─▶ action (observe, step) of each running node ─▶ outcomes
//!   Nodes, stop switch ─┐                                                      │
//!                       └──────▶ plan (pure) ◀─────────────────────────────────┘
//!                                  └─▶ status written ─▶ action (apply), Events; undo of what ended or was deleted
//! ```

mod action;
mod ages;
mod capture;
mod dispatch;
mod events;
mod memory;
mod objects;
mod occupancy;
mod operation;
mod plan;
mod progress;
mod reboot;
mod reboot_state;
mod results;
pub(crate) mod run;
mod selection;
#[cfg(test)]
mod tests;

pub(crate) use action::{EnabledActions, TaskContext};
pub(crate) use reboot_state::Reboots;
