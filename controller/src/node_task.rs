//! NodeTasks.

#[expect(dead_code, reason = "the leader's task for NodeTasks carries these plans out")]
mod reboot;
