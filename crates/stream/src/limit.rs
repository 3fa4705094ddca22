//! The time of a connection, which a stream extends.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How long a connection may last whose answer is a stream.
pub const STREAM_MAX: Duration = Duration::from_mins(10);

/// Waits until a connection that begins now has lasted for its limit.
pub async fn expired(mut limit: watch::Receiver<Duration>) {
    let begun = Instant::now();
    loop {
        let end = begun + *limit.borrow_and_update();
        // Cancel-safe: both only wait.
        tokio::select! {
            () = sleep_until(end) => return,
            Ok(()) = limit.changed() => {}
        }
    }
}
