//! Files of the host by policy, without input and output. This module decides which folders a policy may name, what changes on a
//! node, and how an unconfirmed change is undone.
//!
//! ```text
//!   DesiredFile ─▶ check (folders, contents) ─┐
//!   FileRecord (what was applied last) ───────┼─▶ plan ─▶ steps, units to restart, reports
//!   ObservedFile (what is there now) ─────────┘            └─▶ begin: the record with what the node had before
//!                                                                ├─▶ guard: commands that bring it back
//!                                                                └─▶ confirm, or roll_back
//! ```

pub mod answer;
pub mod check;
pub mod compare;
mod contents;
pub mod folders;
pub mod guard;
pub mod order;
pub mod plan;
pub mod record;
pub mod reservations;
mod sysctl_lines;

pub use answer::{FileConfirmation, FilesAnswer, FilesState};
pub use api::node_policy::{FileGrant, HostUnit};
pub use check::check;
pub use compare::{FileComparison, compare};
pub use folders::{Place, place};
pub use order::{FileOrder, OrderedFile, OrderedReservations};
pub use plan::{DesiredFile, DesiredFiles, FilePlan, FileReport, FileStep, ObservedFile, StepAction, plan};
pub use record::{FileRecord, FileState, Original, PendingChange, RecordedFile};
