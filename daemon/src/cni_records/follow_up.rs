//! The work after a verb that a pod need not wait for: announcing a new address to its subnet, and removing the connections of a
//! freed one. By sending its record, a plugin leaves this to the agent; if no agent listens, the plugin does it. If the agent
//! fails, the next ADD with that address removes its connections first.
//!
//! ```text
//!   records ─▶ FollowUps ─▶ run ────▶ Worker ─┬─ ADD: announce at once and 1 s later
//!                           (when)    (how)   ├─ DEL, GC: remove connections of freed addresses, many in one walk
//!                                             └─ at the end of cooldowns: remove again, mark the addresses as forgotten
//! ```

mod worker;

use std::io;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use crate::facts::follow_ups::DueWork;
use crate::lifecycle::agent::Agent;
use worker::Worker;

/// Does the work when it is due. Without work it sleeps without a timer.
pub(crate) async fn run(agent: Arc<Agent>) -> io::Result<()> {
    let mut worker = Worker::new(agent.clone());
    let follow_ups = &agent.follow_ups;
    follow_ups.check_now();
    loop {
        let next = follow_ups.next();
        // Cancel-safe: an unconsumed notification stays, the work itself is in the plan, and the timer has no state.
        tokio::select! {
            () = follow_ups.added() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
        let due = follow_ups.take_due();
        if due == DueWork::default() {
            continue;
        }
        // Kernel and files: short, but not on the thread that answers health checks.
        let work = tokio::task::spawn_blocking(move || {
            let next_check = worker.work(&due);
            (worker, next_check)
        });
        let (returned, next_check) = work.await.map_err(io::Error::other)?;
        worker = returned;
        follow_ups.checked(next_check);
    }
}
