//! When to reconcile: when a source has news, the kernel's network or a file changed, or an interval passed.

pub(crate) mod file_changes;
pub(crate) mod kernel_events;
pub(crate) mod reconcile_loop;
mod schedule;
mod wakeups;
